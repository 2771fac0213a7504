"""PyTorch's own tests of torch.distributed with NCCL, on two and on four pretend GPUs, one to a rank."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from ddp_rehearsal.pretend_gpus import pretend_gpus_environment
from packages.ddp_rehearsal.tests.pretend_gpus.test_pretend_gpus import free_port

pytest.importorskip("expecttest")  # PyTorch's tests need it
SECONDS = {"test": 1200, "shard": 2400}  # at most; two cores that do nothing else need a tenth
pytestmark = [
    pytest.mark.release,
    pytest.mark.timeout(SECONDS["shard"] + 60),
    pytest.mark.skipif(os.name == "nt", reason="ranks need Linux or macOS"),
]

TESTS = Path(__file__).parent / "torch_distributed.py"
SHARDS = 4
NOT_PRETENDED = {  # what fails, and why
    "test_ddp_profiling_torch_profiler": "The events `record_param_comms` of a trace are written by NCCL's C++ alone.",
}
PASSED = {2: (34, 32, 45, 37), 4: (38, 33, 47, 39)}  # at least, in each shard
RIGHT_SKIPS = (  # begin the reasons for which real cards skip a test as well: it is of the CPU, of gloo or MPI,
    "Nccl does not support",
    "nccl does not support",
    "Nccl send/recv tested by",
    "NCCL send/recv tested by",
    "GLOO Batch",
    "Gloo-only",
    "Only MPI supports",
    "Only Gloo backend",
    "Only gloo backend",
    "Test requires backend nccl to be one of {'gloo'}",
    "Skipped due to small world size",  # of eight ranks,
    "https://github.com/pytorch/pytorch/issues/",  # or switched off by PyTorch
    "Test is failing, see https://github.com/pytorch/pytorch/",
)
OF_FOUR = (
    "Test requires an exact world size of 4",
    "Test requires world size of 4",
    "Need at least 4 accelerator devices",
)


def outcomes(gpus, shard):
    """Run a shard of PyTorch's tests on pretend GPUs, and return {test: outcome}."""
    theirs = {"BACKEND": "nccl", "WORLD_SIZE": str(gpus), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    limits = {"DISTRIBUTED_TESTS_DEFAULT_TIMEOUT": str(SECONDS["test"]), "TEMP_DIR": tempfile.gettempdir()}
    done = subprocess.run(
        [sys.executable, str(TESTS), str(shard), str(SHARDS)],
        env=os.environ | pretend_gpus_environment(gpus) | theirs | limits,
        capture_output=True,
        text=True,
        timeout=SECONDS["shard"],
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("shard", range(SHARDS))
@pytest.mark.parametrize("gpus", PASSED)
def test_what_real_cards_run_passes_or_is_listed(gpus, shard):
    found = outcomes(gpus, shard)
    failed = {name: outcome for name, outcome in found.items() if outcome.startswith("failed")}
    assert {name: outcome for name, outcome in failed.items() if name not in NOT_PRETENDED} == {}
    assert {*failed} == {*NOT_PRETENDED} & {*found}  # what is listed still fails
    skipped = {outcome.removeprefix("skipped: ") for outcome in found.values() if outcome.startswith("skipped")}
    right = RIGHT_SKIPS if gpus >= 4 else RIGHT_SKIPS + OF_FOUR
    assert [reason for reason in skipped if not reason.startswith(right)] == []
    assert [*found.values()].count("passed") >= PASSED[gpus][shard]
