"""What a step with a known bug computes, without threads: `check_step` compares a learner's step with it.

A step of SGD adds up the gradients of shards, each with a weight. A bug changes the weights, the cut into shards, or
which replica is updated with which gradients. This definition finds a bug in whatever way its code is written; the
museum of the book has one piece of code for each, and a test holds the two together. Bugs with a number of their own,
such as the norm to which gradients are clipped, are in `fitted_bugs`.
"""

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Literal

import torch

from .step_case import NUM_WITHOUT_LABEL, StepCase, flat, start_params

__all__ = [
    "CLIP_EPSILON",
    "KNOWN_BUGS",
    "MASKED_BUGS",
    "OWNERS",
    "RIGHT",
    "Bug",
    "Weight",
    "shards",
    "simulate",
]

CLIP_EPSILON = 1e-6  # torch.nn.utils.clip_grad_norm_ adds it to the norm

Weight = Callable[
    [int, int, int], float
]  # weight(n_i, n, k) of a shard of n_i of n examples (with a label) on k devices
Owners = Callable[[int], torch.Tensor]  # owners(k): for each number of the parameters, the device that owns it


def _in_parts(n: int, k: int) -> torch.Tensor:
    """Return n owners: equal parts, and what is left over is missing in the last one."""
    return torch.arange(n) // -(-n // k)


def _in_even_parts(n: int, k: int) -> torch.Tensor:
    """Return n owners: parts of sizes that differ by one at most."""
    return torch.cat([torch.full((len(part),), i) for i, part in enumerate(torch.arange(n).tensor_split(k))])


def _of_each_tensor(owners: Callable[[int, torch.Tensor, int], torch.Tensor]) -> Owners:
    return lambda k: torch.cat([owners(i, param, k) for i, param in enumerate(start_params())])


# the ways in which ZeRO and FSDP share out parameters
OWNERS: tuple[Owners, ...] = (
    _of_each_tensor(lambda i, param, k: _in_parts(param.numel(), k)),
    _of_each_tensor(lambda i, param, k: _in_even_parts(param.numel(), k)),
    _of_each_tensor(lambda i, param, k: _in_parts(len(param), k).repeat_interleave(param[0].numel())),
    _of_each_tensor(lambda i, param, k: torch.full((param.numel(),), i % k)),
    lambda k: _in_parts(flat(start_params()).numel(), k),
)


def _sum_over_all(n_i: int, n: int, k: int) -> float:
    """Losses are summed, and the sum is divided by the number of all examples: right."""
    return 1 / n


def _sum_of_means(n_i: int, n: int, k: int) -> float:
    """The means over the shards are added."""
    return 1 / n_i


def _mean_of_means(n_i: int, n: int, k: int) -> float:
    """The means over the shards are averaged."""
    return 1 / (n_i * k)


def _sum(n_i: int, n: int, k: int) -> float:
    """The losses are summed, and nothing is divided."""
    return 1.0


@dataclass(frozen=True)
class Bug:
    """A step that `simulate` takes, with its name and its explanation in words.

    `weight` multiplies the gradient of a shard's summed loss. `reach` says which gradients update a replica: "all",
    its "own", "first" (replica 0 gets the sum, the others their own), "used" (replicas with a shard get the sum),
    "owned" (each gets the sum of the parameters that it owns), or "none". `cut` is the cut into shards: "even", "chunk"
    (torch's, which may give fewer than k) or "drop" (examples that are left over are in no shard). `keep` is what is
    left in a gradient for the next step: nothing, the "total", or its "own". `pieces(n_i)` gives the sizes of the
    pieces of a shard, each with its own backward pass; their mean losses are divided by the number of pieces.
    `max_norm` clips the gradient of each replica, which is then multiplied by `after`(n_i, n, k); with `owners` it
    clips the sum, each owner its own part. `decay`(lr, n, k) is the share of the weights that a step takes away, from
    matrices alone if `decays_biases` is False. `momentum` is the part of an update that is added to the next one.
    """

    name: str
    words: str
    weight: Weight = _sum_over_all
    _: KW_ONLY
    reach: Literal["all", "own", "first", "used", "owned", "none"] = "all"
    cut: Literal["even", "chunk", "drop"] = "even"
    keep: Literal["", "total", "own"] = ""
    pieces: Callable[[int], list[int]] | None = None
    max_norm: float = math.inf
    after: Weight | None = None
    decay: Callable[[float, int, int], float] | None = None
    decays_biases: bool = True
    momentum: float = 0.0
    owners: Owners | None = None


RIGHT = Bug("equal", "")


def simulate(bug: Bug, case: StepCase) -> list[torch.Tensor]:
    """Return the parameters of the replicas after all steps of the case, one flat vector per replica."""
    k = case.k
    replicas = [flat(start_params())] * k
    left: list[torch.Tensor | None] = [None] * k
    velocity: list[torch.Tensor | float] = [0.0] * k
    for step in range(case.steps):
        own: list[torch.Tensor] = []
        for rank, (first, last) in enumerate(shards(bug.cut, case.n, k)):
            grad, old = _gradient(bug, case, replicas[rank], step, first, last), left[rank]
            own.append(grad if old is None else grad + old)
        total = torch.stack(own).sum(0)
        if bug.owners is not None and bug.max_norm < math.inf:
            total = _clipped_by_owners(bug, total, bug.owners(k))
        for rank in range(k):
            update = _update(bug, rank, own, total, k)
            if update is not None:
                velocity[rank] = update + bug.momentum * velocity[rank]
                replicas[rank] = replicas[rank] * _share_kept(bug, case) - case.lr * velocity[rank]
            left[rank] = {"": None, "total": total, "own": own[rank] if rank < len(own) else None}[bug.keep]
    return replicas


def shards(cut: str, n: int, k: int) -> list[tuple[int, int]]:
    """Return (start, end) of each shard that holds examples."""
    if cut == "chunk":
        size = -(-n // k)
        return [(start, min(start + size, n)) for start in range(0, n, size)]
    n = n // k * k if cut == "drop" else n
    sizes = [n // k + (rank < n % k) for rank in range(k)]
    return [(sum(sizes[:rank]), sum(sizes[: rank + 1])) for rank in range(k)]


def _gradient(bug: Bug, case: StepCase, params: torch.Tensor, step: int, first: int, last: int) -> torch.Tensor:
    """Return the gradient of the shard from first to last, with its weight."""
    n_i = case.num_labels(first, last)
    weight = bug.weight(n_i, case.num_labels(), case.k)
    if bug.pieces is None:
        return _clipped(bug, weight * case.gradient(params, step, first, last), n_i, case)
    sizes = bug.pieces(n_i)
    ends = [first + sum(sizes[: i + 1]) for i in range(len(sizes))]
    parts = [
        case.gradient(params, step, end - size, end, piece=True) * (weight * n_i / (len(sizes) * size))
        for size, end in zip(sizes, ends, strict=True)
    ]
    return torch.stack(parts).sum(0)


def _clipped(bug: Bug, grad: torch.Tensor, n_i: int, case: StepCase) -> torch.Tensor:
    if bug.after is None:
        return grad
    return grad * min(1.0, bug.max_norm / (float(grad.norm()) + CLIP_EPSILON)) * bug.after(n_i, case.n, case.k)


def _share_kept(bug: Bug, case: StepCase) -> torch.Tensor | float:
    """Return what weight decay leaves of each parameter, as a factor."""
    if bug.decay is None:
        return 1.0
    share = bug.decay(case.lr, case.n, case.k)
    return 1 - flat([torch.full_like(p, share * (bug.decays_biases or p.dim() > 1)) for p in start_params()])


def _clipped_by_owners(bug: Bug, total: torch.Tensor, owners: torch.Tensor) -> torch.Tensor:
    clipped = total.clone()
    for owner in owners.unique():
        part = total[owners == owner]
        clipped[owners == owner] = part * min(1.0, bug.max_norm / (float(part.norm()) + CLIP_EPSILON))
    return clipped


def _update(bug: Bug, rank: int, own: list[torch.Tensor], total: torch.Tensor, k: int) -> torch.Tensor | None:
    reach = bug.reach
    if reach == "owned" and bug.owners is not None:
        return total * (bug.owners(k) == rank)
    if reach == "none" or (reach == "used" and rank >= len(own)):
        return None
    return total if reach in ("all", "used") or (reach == "first" and rank == 0) else own[rank]


def _of_size(size: int) -> Callable[[int], list[int]]:
    return lambda n: [min(size, n - start) for start in range(0, n, size)]


def _so_many(number: int) -> Callable[[int], list[int]]:
    return lambda n: _of_size(-(-n // number))(n)


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
_NOT_GATHERED = (
    "each replica holds new values of the parameters that it owns, and old values of all others. An all-gather must "
    "follow the update."
)
_DROPPED = "what is left over when examples are divided by k is in no shard."

KNOWN_BUGS = (
    Bug("sum for mean", _SUM, _sum_of_means),
    Bug("k times too far", "the update is right, but k times as long: a sum where an average is meant, or the learning "
        "rate times k.", lambda n_i, n, k: k / n),
    Bug("lr times k twice", "the update is k*k times too long: two things multiply it by k, such as a learning rate "
        "times k, and a sum of means.", lambda n_i, n, k: k / n_i),
    Bug("lr times k twice", "the update is right, but k*k times as long: two things multiply it by k.",
        lambda n_i, n, k: k * k / n),
    Bug("mean for sum", "the update is k times too short: sums over examples are averaged over replicas and divided by "
        "the number of examples as well.", lambda n_i, n, k: 1 / (n * k)),
    Bug("loss divided by the local batch", "each replica's loss is a mean over its own shard, and these means are "
        "averaged. An example of a small shard counts for more.", _mean_of_means),
    *(Bug("no all-reduce", _APART, weight, reach="own")
      for weight in (_sum_over_all, _sum_of_means, _mean_of_means, _sum)),
    *(Bug("rebinding all-reduce", _FIRST, weight, reach="first")
      for weight in (_sum_over_all, _sum_of_means, _mean_of_means, _sum)),
    *(Bug("forgotten zero_grad", _LEFT, weight, keep=keep)
      for weight in (_sum_over_all, _mean_of_means) for keep in ("total", "own")),
    Bug("chunk loses a device", "a replica has got no examples and no update. chunk(k) may give fewer than k shards: 3 "
        "for 6 examples on 4 devices. tensor_split gives k.", reach="used", cut="chunk"),
    Bug("examples left over are dropped", _DROPPED, lambda n_i, n, k: 1 / (n // k * k), cut="drop"),
    Bug("examples left over are dropped", _DROPPED, cut="drop"),
    *(Bug("pieces divided by their number", _PIECES, weight, pieces=pieces)
      for pieces in [*map(_of_size, (1, 2, 4, 5, 8, 10, 16, 32)), *map(_so_many, (2, 3, 4))]
      for weight in (_sum_over_all, _mean_of_means)),
    *(Bug("no all-gather", _NOT_GATHERED, reach="owned", owners=owners) for owners in OWNERS),
    Bug("no update", "the parameters in device_params are what they were before. Update them in place. (An optimizer "
        "that was made before the network was sharded holds parameters that nobody uses.)", reach="none"),
)  # fmt: skip

# of a step on minibatches in which some examples have no label
MASKED_BUGS = (
    *(bug for bug in KNOWN_BUGS if bug.pieces is None),
    Bug(
        "labels that are left out are counted",
        "the summed loss is divided by the number of all examples. Those with the label -100 have no loss: divide by "
        "the number of the others.",
        lambda n_i, n, k: 1 / (n + NUM_WITHOUT_LABEL),
    ),
)
