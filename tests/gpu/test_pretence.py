"""A real GPU still does what the record says that pretend GPUs are compared with.

Needs pytest and PyTorch alone: `python -m pytest --noconftest tests/gpu/test_pretence.py`.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.pretend.compare_outcomes import RECORD, differs

if not torch.cuda.is_available() or not torch.distributed.is_nccl_available():
    pytest.skip("no CUDA GPU with NCCL here", allow_module_level=True)

SNIPPETS = Path(__file__).parents[1] / "pretend" / "snippets.py"


@pytest.fixture(scope="module")
def found():
    done = subprocess.run(
        [sys.executable, str(SNIPPETS)],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_real_gpu_does_what_the_record_says(found):
    """Words are left out: they change from one version of PyTorch to the next."""
    assert list(found) == list(RECORD)
    different = {name: differs(name, found[name], words=False) for name in RECORD}
    assert {name: how for name, how in different.items() if how} == {}
