"""Pretend GPUs against the record of a real one: 645 short pieces of code, each accepted or refused by both."""

import pytest

from ddp_rehearsal.pretend_gpus import pretend_gpus_environment
from packages.ddp_rehearsal.tests.pretend_gpus.compare_outcomes import RECORD, differs, outcomes
from packages.ddp_rehearsal.tests.pretend_gpus.snippets import SNIPPETS

CPU_MEMORY = "Another library gets the memory where it is: on the CPU."
LABELS = "PyTorch looks at the labels before it calls a kernel on the CPU, and has another type of error for them."
SIZES = "NCCL does not compare the sizes and fills what it should not; pretend GPUs refuse it."
# what stays different, and why
KNOWN = {
    "storage": CPU_MEMORY,
    "dlpack": CPU_MEMORY,
    "__cuda_array_interface__": CPU_MEMORY,
    "labels that are float": LABELS,
    "labels that are int32": LABELS,
    "torch.compile on the CPU's example": "Nothing is compiled, so the error is not wrapped in one of the compiler.",
    "NCCL, all_gather of a wrong shape": SIZES,
    "NCCL, all_gather of a wrong number": SIZES,
    "NCCL, all_reduce of float8": "gloo sends no numbers of 8 bits.",
    "NCCL, functional all_reduce on the CPU": "What PyTorch itself uses is not looked at.",
    "randn differs from the CPU's": "A GPU has another algorithm for random numbers.",
    "NCCL, a wrong rank": "NCCL says only that an argument is invalid; gloo names the rank.",
}
# errors of PyTorch itself, whose words depend on its version
OTHER_WORDS = ("np.mean", "two types without autocast", "memory of a GPU too many")


@pytest.fixture(scope="module")
def found():
    return outcomes(**pretend_gpus_environment(1), CUDA_VISIBLE_DEVICES="0")


@pytest.mark.slow
def test_pretend_gpus_do_what_a_real_gpu_did(found):
    assert list(found) == list(SNIPPETS) == list(RECORD) and {*KNOWN, *OTHER_WORDS} < {*SNIPPETS}
    different = {name: differs(name, found[name], words=name not in OTHER_WORDS) for name in SNIPPETS}
    assert {name: how for name, how in different.items() if how and name not in KNOWN} == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", KNOWN)
def test_a_known_difference_is_still_there(found, name):
    assert differs(name, found[name])
