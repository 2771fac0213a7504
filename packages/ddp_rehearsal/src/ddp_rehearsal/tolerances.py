"""The largest relative differences that rounding explains. A larger one means that the code computes something else.

Two claims need two tables, because rounding grows in one case and not in the other. These figures were measured with
LeNet on the CPU: real images, minibatches of 16 and 128, learning rates from 0.05 to 0.5, 24 pairs of runs for each
type (6 for bfloat16). One run has one device; the other has 2, 4 or 8, with a naive or a ring all-reduce.

                            float64             float32                             bfloat16
    two runs, 1 step        1e-14               1e-5                                1e-2
    two runs, 5 steps       2e-14               2e-5, but 6e-2 in one pair          2e-1 to 6e-1
    two runs, 50 steps      9e-15 to 1e-10      6e-6 to more than 1                 1 to 2
    drift, 50 steps         1e-16               5e-8                                1e-3

For two runs, the figure is the largest difference of an element of a gradient or a weight, over the largest value of
that tensor. The drift is that of 4 replicas, each of which adds up the gradients in an order of its own.

On a GPU cuDNN's convolutions round their float32 inputs to TF32, unless this is switched off: it keeps 10 of the 23
bits of the mantissa. Within two steps LeNet's tensors then differed by 2e-4 (NVIDIA H200, PyTorch 2.11), and those of
the first step by more than the bound. `record_steps` switches it off.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

__all__ = [
    "FLOAT32_STEP_RTOL",
    "FLOAT64_STEP_RTOL",
    "SAME_BUG_RTOL",
    "SIXTEEN_BIT_STEP_RTOL",
    "full_float32",
    "reduction_order_rtol",
    "replica_drift_rtol",
]

# Two runs, or two replicas, that add up the same gradients in different orders, compared tensor by tensor. In two runs
# different weights give different gradients, and an example at the edge of a ReLU or of a maximum may then take a
# different path. In float32 this exceeds any bound after some tens of steps, and sometimes after a few: compare the
# first steps, in float64.
REDUCTION_ORDER_RTOL = {torch.float64: 1e-9, torch.float32: 1e-3}
_FIRST_STEP_RTOL = {torch.float64: 1e-9, torch.float32: 1e-4}  # the weights are still equal
_COARSE_REDUCTION_ORDER_RTOL = 1e-1  # the same for 16-bit types

# Replicas of one run, by `replica_drift`. All of them are updated with the same sum up to rounding, whatever path an
# example takes on one of them, so that the drift hardly grows.
REPLICA_DRIFT_RTOL = {torch.float64: 1e-12, torch.float32: 1e-5}
_COARSE_REPLICA_DRIFT_RTOL = 1e-2  # the same for 16-bit types

# `check_step` compares float64 parameters after 1 to 3 steps, relative to the largest change of a parameter. The first
# bound is exceeded if something is computed in float32, the second one by bugs. The third is for the same bug. Below
# the fourth, numbers of 16 bits may be the cause: their relative error is up to 2**-11 in float16, 2**-8 in bfloat16.
FLOAT64_STEP_RTOL, FLOAT32_STEP_RTOL, SAME_BUG_RTOL, SIXTEEN_BIT_STEP_RTOL = 1e-9, 1e-4, 1e-6, 2e-2


def reduction_order_rtol(dtype: torch.dtype, step: int = 2) -> float:
    """Return the largest difference between two runs in an element, over the largest of its tensor, by rounding.

    Steps count from 1. In the first step the weights are still equal, so that the bound is smaller.
    """
    return (_FIRST_STEP_RTOL if step == 1 else REDUCTION_ORDER_RTOL).get(dtype, _COARSE_REDUCTION_ORDER_RTOL)


def replica_drift_rtol(dtype: torch.dtype) -> float:
    """Return the largest `replica_drift` that rounding explains."""
    return REPLICA_DRIFT_RTOL.get(dtype, _COARSE_REPLICA_DRIFT_RTOL)


@contextlib.contextmanager
def full_float32() -> Iterator[None]:
    """Compute float32 on GPUs without TF32, in all threads, and let cuDNN take algorithms that repeat their results."""
    cudnn: Any = torch.backends.cudnn
    kinds: tuple[Any, ...] = (torch.backends.cuda.matmul, cudnn.conv, cudnn.rnn)
    before = [kind.fp32_precision for kind in kinds], cudnn.deterministic, cudnn.benchmark
    try:
        for kind in kinds:
            kind.fp32_precision = "ieee"
        cudnn.deterministic, cudnn.benchmark = True, False
        yield
    finally:
        precisions, cudnn.deterministic, cudnn.benchmark = before
        for kind, precision in zip(kinds, precisions, strict=True):
            kind.fp32_precision = precision
