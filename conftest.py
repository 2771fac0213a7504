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
OF_A_RELEASE = {
    *(
        "test_cluster_runs.py",
        "test_ended_kernel_browser.py",
        "test_explorer_browser.py",
        "test_fair_comparison_browser.py",
    ),
    *("test_fake_world.py", "test_mesh_game_browser.py", "test_narrow_browser.py", "test_own_script.py"),
    *("test_pretend_gpus.py", "test_specifications.py", "test_stepper_browser.py", "test_whodunit_browser.py"),
}
# Of their slow tests, which differ by a parameter or end ranks in one more way, each third one runs on a push.
EACH_THIRD = {
    *("test_chapter_5.py", "test_failures.py", "test_flight_recorder.py", "test_hangs.py", "test_horovod.py"),
    *("test_interrupts_held.py", "test_lanes_browser.py", "test_malloc.py", "test_messages.py", "test_pool.py"),
    "test_rehearsal.py",
}
# Of their quick tests, which compare one function with many cases, each third one is quick, and the others are slow.
MANY_CASES = {
    *("test_alpha_beta.py", "test_bug_museum.py", "test_check_step.py", "test_divergence.py", "test_fake_world.py"),
    "test_fitted_bugs.py",
    *("test_sharded_steps.py", "test_significance.py", "test_specifications.py", "test_sync_batchnorm.py"),
    *("test_tensor_parallel.py", "test_torch_schedules.py"),
}


def pytest_collection_modifyitems(items):
    """Slow tests that are for a release get its mark. Those that wait longest begin first: browser, ranks, others."""
    seen: Counter[str] = Counter()  # so that a new test elsewhere changes no choice
    for item in items:
        name = item.path.name
        if item.get_closest_marker("slow") is None and name in MANY_CASES:
            seen[f"quick {name}"] += 1
            if seen[f"quick {name}"] % 3 != 1:
                item.add_marker(pytest.mark.slow)
        elif item.get_closest_marker("slow") is not None:
            seen[name] += 1
            if name in OF_A_RELEASE or (name in EACH_THIRD and seen[name] % 3 != 1):
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
