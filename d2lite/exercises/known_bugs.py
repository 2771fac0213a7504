"""What a step with a known bug computes, without threads: `check_step` compares a learner's step with it.

A step of SGD is a sum of the gradients of shards, each with a weight. A bug changes the weight, the cut into shards, or
which replica gets which gradients.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from d2lite.models import lenet

__all__ = ["KNOWN_BUGS", "RIGHT", "Bug", "Start", "flat", "simulate"]

Batches = Sequence[tuple[torch.Tensor, torch.Tensor]]


@dataclass(frozen=True)
class Bug:
    """A step that `simulate` takes, and its name.

    `weight(n_i, n, k)` multiplies the gradient of the summed loss of a shard of n_i of n examples on k devices. `reach`
    says which gradients update a replica: "all", its "own", "first" (the sum on replica 0, its own elsewhere), "used"
    (the sum on replicas with a shard), or "none". `cut` is "even", "chunk" or "drop"; `keep` is what is left in a
    gradient for the next step: nothing, the "total", or its "own"; `pieces(n_i)` cuts a shard into backward passes
    whose means are divided by their number.
    """

    name: str
    words: str
    weight: Callable[[int, int, int], float] = lambda n_i, n, k: 1 / n
    reach: str = "all"
    cut: str = "even"
    keep: str = ""
    pieces: Callable[[int], list[int]] | None = None


RIGHT = Bug("equal", "")


class Start:
    """Where a case begins: parameters, and minibatches. The first step's gradients of whole shards are kept, since most
    bugs need them; those of pieces would be hundreds, of 1 MB each.

    All parameters together are one flat vector here.
    """

    def __init__(self, params: Sequence[torch.Tensor], k: int, batches: Batches, lr: float) -> None:
        self.shapes = [p.shape for p in params]
        self.params = flat(params)
        self.k, self.batches, self.lr = k, batches, lr
        self._kept: dict[tuple[int, int], torch.Tensor] = {}

    def gradient(self, params: torch.Tensor, step: int, start: int, end: int, piece: bool = False) -> torch.Tensor:
        """Return the gradient of the summed loss of the examples from start to end: a shard, or a piece of one."""
        if step == 0 and (start, end) in self._kept:
            return self._kept[start, end]
        X, y = self.batches[step]
        leaves = [
            part.view(shape).detach().requires_grad_()
            for part, shape in zip(params.split([shape.numel() for shape in self.shapes]), self.shapes, strict=True)
        ]
        F.cross_entropy(lenet(X[start:end], leaves), y[start:end], reduction="sum").backward()
        grad = flat([leaf.grad for leaf in leaves if leaf.grad is not None])
        if step == 0 and not piece:
            self._kept[start, end] = grad
        return grad


def flat(params: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return all parameters as one vector."""
    return torch.cat([p.detach().flatten() for p in params])


def simulate(bug: Bug, start: Start) -> list[torch.Tensor]:
    """Return the parameters of the replicas after a step on each minibatch, one flat vector per replica."""
    k = start.k
    replicas = [start.params] * k
    left: list[torch.Tensor | None] = [None] * k
    for step, (X, _) in enumerate(start.batches):
        own: list[torch.Tensor] = []
        for rank, (first, last) in enumerate(_shards(bug.cut, len(X), k)):
            grad, old = _gradient(bug, start, replicas[rank], step, first, last), left[rank]
            own.append(grad if old is None else grad + old)
        total = torch.stack(own).sum(0)
        for rank in range(k):
            update = _update(bug.reach, rank, own, total)
            if update is not None:
                replicas[rank] = replicas[rank] - start.lr * update
            left[rank] = {"": None, "total": total, "own": own[rank] if rank < len(own) else None}[bug.keep]
    return replicas


def _shards(cut: str, n: int, k: int) -> list[tuple[int, int]]:
    """Return (start, end) of each shard that holds examples."""
    if cut == "chunk":
        size = -(-n // k)
        return [(start, min(start + size, n)) for start in range(0, n, size)]
    n = n // k * k if cut == "drop" else n
    sizes = [n // k + (rank < n % k) for rank in range(k)]
    return [(sum(sizes[:rank]), sum(sizes[: rank + 1])) for rank in range(k)]


def _gradient(bug: Bug, start: Start, params: torch.Tensor, step: int, first: int, last: int) -> torch.Tensor:
    n_i = last - first
    weight = bug.weight(n_i, len(start.batches[step][0]), start.k)
    if bug.pieces is None:
        return weight * start.gradient(params, step, first, last)
    sizes = bug.pieces(n_i)
    ends = [first + sum(sizes[: i + 1]) for i in range(len(sizes))]
    parts = [
        start.gradient(params, step, end - size, end, piece=True) * (weight * n_i / (len(sizes) * size))
        for size, end in zip(sizes, ends, strict=True)
    ]
    return torch.stack(parts).sum(0)


def _update(reach: str, rank: int, own: list[torch.Tensor], total: torch.Tensor) -> torch.Tensor | None:
    if reach == "none" or (reach == "used" and rank >= len(own)):
        return None
    return total if reach in ("all", "used") or (reach == "first" and rank == 0) else own[rank]


def _of_size(size: int) -> Callable[[int], list[int]]:
    return lambda n: [min(size, n - start) for start in range(0, n, size)]


def _so_many(number: int) -> Callable[[int], list[int]]:
    return lambda n: _of_size(-(-n // number))(n)


_BY_N = {"divided by all examples": lambda n_i, n, k: 1 / n, "divided by its own": lambda n_i, n, k: 1 / n_i}
_APART = "each replica is updated with the gradient of its own shard. No all-reduce comes before the update."
_FIRST = (
    "replica 0 is updated with the sum, and the others with their own gradients. Either the sum is bound to a name or "
    "an entry of a list, instead of written into the gradients (copy_), or it is not sent back to the others."
)
_SUM = "the gradients are means over shards and are added: the update is k times as long as their mean."
_PIECES = (
    "the means of pieces of a shard are divided by the number of pieces. A last piece that is smaller counts as much "
    "as the others. Sum the losses, and divide by all examples."
)
_LEFT = "gradients of earlier steps are still there and are added again. Discard them before the backward pass."
_DROPPED = "what is left over when examples are divided by k is in no shard."

KNOWN_BUGS = (
    Bug("sum for mean", _SUM, lambda n_i, n, k: 1 / n_i),
    Bug("k times too far", "the update is right, but k times as long: a sum where an average is meant, or the learning "
        "rate times k.", lambda n_i, n, k: k / n),
    Bug("lr times k twice", "the update is k*k times too long: two things multiply it by k, such as a learning rate "
        "times k, and a sum of means.", lambda n_i, n, k: k / n_i),
    Bug("lr times k twice", "the update is right, but k*k times as long: two things multiply it by k.",
        lambda n_i, n, k: k * k / n),
    Bug("mean for sum", "the update is k times too short: sums over examples are averaged over replicas and divided by "
        "the number of examples as well.", lambda n_i, n, k: 1 / (n * k)),
    Bug("loss divided by the local batch", "each replica's loss is a mean over its own shard, and these means are "
        "averaged. An example of a small shard counts for more.", lambda n_i, n, k: 1 / (n_i * k)),
    *(Bug("no all-reduce", _APART, weight, "own") for weight in _BY_N.values()),
    Bug("no all-reduce", _APART, lambda n_i, n, k: 1 / (n_i * k), "own"),
    *(Bug("rebinding all-reduce", _FIRST, weight, "first") for weight in _BY_N.values()),
    Bug("rebinding all-reduce", _FIRST, lambda n_i, n, k: 1 / (n_i * k), "first"),
    *(Bug("forgotten zero_grad", _LEFT, keep=keep) for keep in ("total", "own")),
    Bug("forgotten zero_grad", _LEFT, lambda n_i, n, k: 1 / (n_i * k), keep="total"),
    Bug("forgotten zero_grad", _LEFT, lambda n_i, n, k: 1 / (n_i * k), keep="own"),
    Bug("chunk loses a device", "a replica has got no examples and no update. chunk(k) may give fewer than k shards: 3 "
        "for 6 examples on 4 devices. tensor_split gives k.", reach="used", cut="chunk"),
    Bug("examples left over are dropped", _DROPPED, lambda n_i, n, k: 1 / (n // k * k), cut="drop"),
    Bug("examples left over are dropped", _DROPPED, cut="drop"),
    *(Bug("pieces divided by their number", _PIECES, weight, pieces=pieces)
      for pieces in [*map(_of_size, (1, 2, 4, 5, 8, 10, 16, 32)), *map(_so_many, (2, 3, 4))]
      for weight in (lambda n_i, n, k: 1 / n, lambda n_i, n, k: 1 / (n_i * k))),
    Bug("no update", "the parameters in device_params are what they were before. An update in place is asked for.",
        reach="none"),
)  # fmt: skip
