"""Collectives inside of a network: each has another one as its gradient (Shoeybi et al. 2019, arXiv:1909.08053).

| forward | gradient | name |
|---|---|---|
| nothing | all-reduce | `copy_to_ranks`, the *f* of Megatron-LM |
| all-reduce | nothing | `add_partials`, its *g* |
| all-gather | reduce-scatter | `gather_places` |
| reduce-scatter | all-gather | `scatter_places` |
| take a part | all-gather | `split_places` |

All ranks compute one and the same loss, so the complete gradient of a tensor that all ranks have is the same on all of
them. All functions run on a rank, and every rank of the group must call them in the same order. Without a group they
mean all ranks.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
import torch.distributed as dist
from torch.autograd.function import once_differentiable

__all__ = [
    "Change",
    "PairedCollective",
    "Group",
    "add_partials",
    "copy_to_ranks",
    "cut_places",
    "gather_places",
    "part_along",
    "part_sizes",
    "scatter_places",
    "split_places",
    "summed",
]

Group: TypeAlias = "dist.ProcessGroup | None"  # None: all ranks; a text, for a PyTorch without torch.distributed
Change = Callable[[torch.Tensor, Any], torch.Tensor]  # of a tensor and a group, to a new tensor


class PairedCollective(torch.autograd.Function):
    """`PairedCollective.apply(X, change, change_back, group)`: `change(X, group)`; `change_back` for the gradient."""

    @staticmethod
    def forward(ctx: Any, X: torch.Tensor, change: Change, change_back: Change, group: Group) -> torch.Tensor:
        ctx.change_back, ctx.group = change_back, group
        return change(X, group)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        return ctx.change_back(grad, ctx.group), None, None, None


def unchanged(X: torch.Tensor, group: Group) -> torch.Tensor:
    """Return X."""
    return X.view_as(X)


def summed(X: torch.Tensor, group: Group) -> torch.Tensor:
    """Return the sum of the ranks' X; X stays as it is."""
    total = X.clone(memory_format=torch.contiguous_format)  # gloo adds memory, also where strides differ
    dist.all_reduce(total, group=group)
    return total


def copy_to_ranks(X: torch.Tensor, group: Group = None) -> torch.Tensor:
    """Return X, whose gradient is summed over the ranks.

    It stands where ranks with different weights read the same X. Each rank then computes a summand of the gradient.
    """
    return PairedCollective.apply(X, unchanged, summed, group)


def add_partials(X: torch.Tensor, group: Group = None) -> torch.Tensor:
    """Return the sum of the ranks' X. The gradient goes to each of them as it is."""
    return PairedCollective.apply(X, summed, unchanged, group)


def part_along(tensor: torch.Tensor, dim: int, unit: int = 1, group: Group = None) -> torch.Tensor:
    """Return a copy of this rank's part of `tensor` along `dim`; `unit` neighbours (those of a head) stay together.

    Parts differ by at most one unit. If there are fewer units than ranks, the last ranks get an empty part.
    """
    dim %= tensor.dim()  # -1 is the last one
    units = tensor.detach().unflatten(dim, (-1, unit))
    mine = units.tensor_split(dist.get_world_size(group), dim)[dist.get_rank(group)]
    return mine.flatten(dim, dim + 1).clone()


def gathered(X: torch.Tensor, group: Group) -> torch.Tensor:
    """Return the ranks' X, joined along dimension 1: [b, t / k, ...] -> [b, t, ...]."""
    parts = [torch.empty_like(X) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, X.contiguous(), group=group)
    return torch.cat(parts, 1)


def cut_places(X: torch.Tensor, group: Group) -> Sequence[torch.Tensor]:
    """Return the parts of X for each rank, along dimension 1.

    Raises:
        ValueError: if the number of ranks does not divide dimension 1.
    """
    k = dist.get_world_size(group)
    if X.shape[1] % k:
        raise ValueError(f"places (dimension 1): expected a multiple of {k} ranks, got {X.shape[1]}. Pad or cut X.")
    return X.chunk(k, 1)


def scattered(X: torch.Tensor, group: Group) -> torch.Tensor:
    """Return this rank's part, along dimension 1, of the sum of the ranks' X: [b, t, ...] -> [b, t / k, ...].

    Raises:
        ValueError: if the number of ranks does not divide t.
    """
    parts = [part.contiguous() for part in cut_places(X, group)]
    mine = torch.empty_like(parts[0])
    dist.reduce_scatter(mine, parts, group=group)
    return mine


def gather_places(X: torch.Tensor, group: Group = None) -> torch.Tensor:
    """Return all places, joined along dimension 1. The gradient is summed, and each rank gets that of its places."""
    return PairedCollective.apply(X, gathered, scattered, group)


def scatter_places(X: torch.Tensor, group: Group = None) -> torch.Tensor:
    """Return this rank's places of the sum of the ranks' X. The gradients of the places are joined.

    Raises:
        ValueError: if the number of ranks does not divide dimension 1.
    """
    return PairedCollective.apply(X, scattered, gathered, group)


def my_places(X: torch.Tensor, group: Group) -> torch.Tensor:
    """Return this rank's part of X along dimension 1.

    Raises:
        ValueError: if the number of ranks does not divide dimension 1.
    """
    return cut_places(X, group)[dist.get_rank(group)].contiguous()


def split_places(X: torch.Tensor, group: Group = None) -> torch.Tensor:
    """Return this rank's places of an X that all ranks have. The gradients of the places are joined.

    Raises:
        ValueError: if the number of ranks does not divide dimension 1.
    """
    return PairedCollective.apply(X, my_places, gathered, group)


def part_sizes(n: int, k: int) -> list[int]:
    """Return the sizes of the k parts that `tensor_split` makes of n: they differ by at most one.

    Example:
        >>> part_sizes(7, 3)
        [3, 2, 2]
    """
    return [n // k + (i < n % k) for i in range(k)]
