"""A real GPU still does what the record says that pretend GPUs are compared with.

Needs pytest and PyTorch alone: `python -m pytest --noconftest tests/gpu/test_pretence.py`.
"""

import os

import pytest
import torch

from packages.ddp_rehearsal.tests.pretend_gpus.compare_outcomes import RECORD, differs, outcomes

if not torch.cuda.is_available() or not torch.distributed.is_nccl_available():
    pytest.skip("no CUDA GPU with NCCL here", allow_module_level=True)


@pytest.fixture(scope="module")
def found():
    return outcomes(CUDA_VISIBLE_DEVICES=os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0])


def test_a_real_gpu_does_what_the_record_says(found):
    """Words are left out: they change from one version of PyTorch to the next."""
    assert list(found) == list(RECORD)
    different = {name: differs(name, found[name], words=False) for name in RECORD}
    assert {name: how for name, how in different.items() if how} == {}
