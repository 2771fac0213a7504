"""A case in which `check_step` compares a training step on k devices with one device."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from d2lite.models import lenet, lenet_params

__all__ = [
    "CASES",
    "MASKED_CASES",
    "NUM_WITHOUT_LABEL",
    "SEED",
    "Replicate",
    "StepCase",
    "TrainBatch",
    "examples",
    "flat",
    "start_params",
]

TrainBatch = Callable[..., Any]  # train_batch(X, y, device_params, devices, lr)
Replicate = Callable[..., Any]  # replicate(params, devices)

SEED = 11
_NO_LABEL = -100  # the default of cross_entropy's ignore_index
_WITHOUT_LABEL = range(1, 3)  # places in the minibatch
NUM_WITHOUT_LABEL = len(_WITHOUT_LABEL)


class StepCase:
    """A few steps of SGD with LeNet in float64, each on a minibatch of `n` examples, on `k` devices.

    The functions of a case take and return all parameters as one flat vector. The gradients of whole shards in the
    first step are kept, because most bugs need them. Those of pieces of a shard are not: they would be hundreds, of
    1 MB each.

    In a case that is `masked`, two examples of the first shard have no label: it is -100, which cross_entropy
    leaves out. Right is the gradient of the mean over the labels.
    """

    def __init__(self, k: int, n: int, steps: int, lr: float, masked: bool = False) -> None:
        self.k, self.n, self.steps, self.lr, self.masked = k, n, steps, lr, masked
        self._kept: dict[tuple[int, int], torch.Tensor] = {}

    def __str__(self) -> str:
        devices, steps = f"{self.k} device{'s' * (self.k > 1)}", f"{self.steps} step{'s' * (self.steps > 1)}"
        labels = f", {self.num_labels()} of them with a label," if self.masked else ""
        return f"{self.n} examples{labels} on {devices}, {steps}, lr {self.lr:g}"

    @functools.cached_property
    def batches(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """The minibatches, one per step: X float64 [n, 1, 28, 28], y int64 [n]."""
        generator = torch.Generator().manual_seed(SEED + self.n)
        drawn = [examples(self.n, generator) for _ in range(self.steps)]
        for _, y in drawn:
            if self.masked:
                y[_WITHOUT_LABEL.start : _WITHOUT_LABEL.stop] = _NO_LABEL
        return drawn

    def num_labels(self, start: int = 0, end: int | None = None) -> int:
        """Return how many of the examples from start to end have a label; by default, of the minibatch."""
        places = range(start, self.n if end is None else end)
        return len(places) - (sum(place in _WITHOUT_LABEL for place in places) if self.masked else 0)

    def gradient(self, params: torch.Tensor, step: int, start: int, end: int, piece: bool = False) -> torch.Tensor:
        """Return the gradient of the summed loss of the examples from start to end: a shard, or a piece of one."""
        if step == 0 and (start, end) in self._kept:
            return self._kept[start, end]
        X, y = self.batches[step]
        shapes = [p.shape for p in start_params()]
        leaves = [
            part.view(shape).detach().requires_grad_()
            for part, shape in zip(params.split([shape.numel() for shape in shapes]), shapes, strict=True)
        ]
        F.cross_entropy(lenet(X[start:end], leaves), y[start:end], reduction="sum").backward()
        grad = flat([leaf.grad for leaf in leaves if leaf.grad is not None])
        if step == 0 and not piece:
            self._kept[start, end] = grad
        return grad


CASES = (
    StepCase(1, 10, 2, 0.05), StepCase(2, 8, 1, 0.05), StepCase(2, 7, 2, 0.1), StepCase(4, 6, 1, 0.05),
    StepCase(3, 11, 3, 0.02), StepCase(2, 77, 1, 0.1),
)  # fmt: skip
MASKED_CASES = tuple(StepCase(case.k, case.n, case.steps, case.lr, masked=True) for case in CASES)


@functools.cache
def start_params() -> tuple[torch.Tensor, ...]:
    """Return LeNet's parameters before the first step. They are shared by all cases: copy them before writing."""
    return tuple(p.double() for p in lenet_params(SEED))


def examples(n: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Return n random images X, float64 [n, 1, 28, 28], and random labels y, int64 [n]."""
    X = torch.rand(n, 1, 28, 28, generator=generator, dtype=torch.float64)
    return X, torch.randint(0, 10, (n,), generator=generator)


def flat(params: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return all parameters as one vector."""
    return torch.cat([p.detach().flatten() for p in params])
