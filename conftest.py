"""What all tests share: the seeds of hypothesis, and a place for the data."""

import signal
import tempfile
from collections import Counter

import pytest
import torch
from hypothesis import settings

from ddp_rehearsal.tolerances import full_float32
from tests.ranks import close_pools

# examples take milliseconds to a second here, depending on what else the machine does
settings.register_profile("d2lite", deadline=None, derandomize=True, max_examples=25)
settings.load_profile("d2lite")


# Slow tests of these files run for a release: they take minutes, and quick tests guard the same code on each push.
OF_A_RELEASE = set(
    "cluster_runs ended_kernel_browser explorer_browser fair_comparison_browser fake_world grade mesh_game_browser "
    "narrow_browser own_script pretend_gpus specifications stepper_browser styles whodunit_browser".split()
)
# Of their slow tests, which differ by a parameter or end ranks in one more way, each eighth one runs on a push.
MANY_SLOW = set(
    "against_a_real_gpu chapter_5 check examples failures faults flight_recorder hangs horovod interrupts_held "
    "lanes_browser malloc messages panel_browser pool rehearsal significance".split()
)
# Of their quick tests, which compare one function with many cases, each third one runs on a push.
MANY_QUICK = set(
    "alpha_beta bug_museum check_step divergence fake_world fitted_bugs sharded_steps significance specifications "
    "sync_batchnorm tensor_parallel torch_schedules".split()
)


def pytest_collection_modifyitems(items):
    """Choose what runs for a release only. Tests that wait longest begin first: browser, ranks, others."""
    seen: Counter[tuple[str, bool]] = Counter()  # so that a new test elsewhere changes no choice
    for item in items:
        name, is_slow = item.path.stem.removeprefix("test_"), item.get_closest_marker("slow") is not None
        one_of = (8 if name in MANY_SLOW else 1) if is_slow else 3 if name in MANY_QUICK else 1
        seen[name, is_slow] += 1
        if (is_slow and name in OF_A_RELEASE) or (seen[name, is_slow] - 1) % one_of:
            item.add_marker(pytest.mark.release)
    first = {"browser": 0, "notebook_ranks": 1}
    items.sort(key=lambda item: min((first[part] for part in item.path.parts if part in first), default=2))


def pytest_sessionfinish():
    """No rank outlives the run."""
    close_pools()


@pytest.fixture(scope="session", autouse=True)
def interrupts_arrive():
    """A shell starts `make test &` with SIGINT ignored, and Python leaves that as it is: tests send this signal."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def without_tf32():
    """Tests that compare two runs, some of them bit for bit, run on machines with GPUs, too."""
    with full_float32():
        yield


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory):
    """Unit tests never touch the network or the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("D2LITE_OFFLINE", "1")
        patch.setenv("D2LITE_LEDGER", "off")
        yield


@pytest.fixture(scope="session", autouse=True)
def own_temporary_folder(tmp_path_factory):
    """Tests that count what is left behind in the temporary folder must not see what other processes have there."""
    folder = str(tmp_path_factory.mktemp("tmp"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", folder)
        patch.setattr(tempfile, "tempdir", folder)
        yield


@pytest.fixture
def batch():
    """Return make(n, dtype): n random images and labels."""

    def make(n, dtype=torch.float32, seed=0):
        generator = torch.Generator().manual_seed(seed)
        X = torch.rand(n, 1, 28, 28, generator=generator, dtype=dtype)
        return X, torch.randint(0, 10, (n,), generator=generator)

    return make
