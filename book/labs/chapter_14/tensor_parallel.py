"""Tensor parallelism by hand: the ranks share every layer, and each computes with its part of the weights.

A linear layer is cut by its outputs (column parallel) or by its inputs (row parallel). A column-parallel layer and a
row-parallel one behind it need a single sum over the ranks (Shoeybi et al. 2019, arXiv:1909.08053). All ranks get the
same minibatch. With `shard_sequence` the layers between them are shared, too: each rank computes its part of the places
(Korthikanti et al. 2022, arXiv:2205.05198). All functions run on a rank, and every rank of the group must call them in
the same order.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from ..chapter_13.network_parts import BlockParts, ShardedTransformer, TransformerParts
from ..chapter_13.zero import momentum_step
from .autograd_collectives import (
    Change,
    Group,
    add_partials,
    copy_to_ranks,
    gather_places,
    part_along,
    scatter_places,
    split_places,
    summed,
)

__all__ = [
    "ColumnParallel",
    "RowParallel",
    "VocabularyParallel",
    "index_in_part",
    "shard_block",
    "shard_network",
    "shard_sequence",
    "shard_vocabulary",
    "sharded_cross_entropy",
    "tensor_step",
]


class ColumnParallel(nn.Module):
    """A linear layer that is cut by its outputs: X [..., in] -> this rank's part of Y [..., out].

    X is the same on all ranks. `copy_to_ranks` goes before it, so that the gradient of X is complete. `unit` neighbours
    among the outputs (those of a head) stay together.
    """

    def __init__(self, linear: nn.Linear, unit: int = 1, group: Group = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(part_along(linear.weight, 0, unit, group))  # [out / k, in]
        self.bias = nn.Parameter(part_along(linear.bias, 0, unit, group))

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        return F.linear(X, self.weight, self.bias)


class RowParallel(nn.Module):
    """A linear layer that is cut by its inputs: this rank's part of X [..., in] -> Y [..., out].

    Each rank computes a summand of Y. `end` adds them up: `add_partials`, or `scatter_places`, which leaves each rank
    its places. The bias is added once, after that.
    """

    def __init__(self, linear: nn.Linear, unit: int = 1, group: Group = None, end: Change = add_partials) -> None:
        super().__init__()
        self.weight = nn.Parameter(part_along(linear.weight, 1, unit, group))  # [out, in / k]
        self.bias = nn.Parameter(linear.bias.detach().clone())
        self.end, self.group = end, group

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        return self.end(F.linear(X, self.weight), self.group) + self.bias


def shard_block(
    block: BlockParts, group: Group = None, begin: Change = copy_to_ranks, end: Change = add_partials
) -> None:
    """Leave this rank its heads of the attention and its part of the MLP, in a block of `d2lite.Transformer`.

    `begin` comes before attention and MLP, and `end` after the summands of each.

    Raises:
        ValueError: if there are more ranks than heads.
    """
    attention, mlp, k = block.attention, block.mlp, dist.get_world_size(group)
    if attention.num_heads < k:
        raise ValueError(f"num_heads: expected at least {k}, one for each rank, got {attention.num_heads}.")
    unit = len(attention.query.weight) // attention.num_heads  # the numbers of a head
    for name in ("query", "key", "value"):
        setattr(attention, name, ColumnParallel(getattr(attention, name), unit, group))
    attention.out = RowParallel(attention.out, unit, group, end)
    attention.num_heads = len(attention.query.weight) // unit  # the heads of this rank
    mlp.up, mlp.down = ColumnParallel(mlp.up, 1, group), RowParallel(mlp.down, 1, group, end)
    for layer in (attention, mlp):
        layer.register_forward_pre_hook(lambda layer, args: begin(args[0], group))


def index_in_part(tokens: torch.Tensor, first: int, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return each token's row among the `n` from `first` on, 0 where it has none, and whether it has one."""
    index = tokens - first
    is_mine = (index >= 0) & (index < n)
    return index.where(is_mine, 0), is_mine


class VocabularyParallel(nn.Module):
    """An embedding that is cut by characters: tokens [b, t] -> [b, t, width]; a rank has zeros for the others' rows.

    `end` adds up what the ranks have found, as in `RowParallel`.
    """

    def __init__(self, embedding: nn.Embedding, group: Group = None, end: Change = add_partials) -> None:
        super().__init__()
        self.weight = nn.Parameter(part_along(embedding.weight, 0, group=group))  # [characters / k, width]
        self.first = int(part_along(torch.arange(len(embedding.weight)), 0, group=group)[0])
        self.end, self.group = end, group

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        index, is_mine = index_in_part(tokens, self.first, len(self.weight))
        return self.end(self.weight[index].where(is_mine[..., None], 0), self.group)


def shard_vocabulary(
    net: TransformerParts, group: Group = None, begin: Change = copy_to_ranks, end: Change = add_partials
) -> None:
    """Leave this rank its characters of the embedding and of the head, in a `d2lite.Transformer`.

    The logits of the network are then those of the rank's characters, [b, t, characters / k], for
    `sharded_cross_entropy`.

    Raises:
        ValueError: if there are more ranks than characters.
    """
    k, num_characters = dist.get_world_size(group), len(net.head.linear.weight)
    if num_characters < k:
        raise ValueError(f"num_characters: expected at least {k}, one for each rank, got {num_characters}.")
    net.embedding.character = VocabularyParallel(net.embedding.character, group, end)
    net.head.linear = ColumnParallel(net.head.linear, 1, group)
    net.head.linear.register_forward_pre_hook(lambda layer, args: begin(args[0], group))


def sharded_cross_entropy(logits: torch.Tensor, y: torch.Tensor, first: int, group: Group = None) -> torch.Tensor:
    """Return the mean cross entropy, where each rank has the logits of its characters, `first` and the following.

    It sends three numbers per place: the largest logit, the sum of exponentials, and the logit of the right character.

    Args:
        logits: this rank's, [b, t, characters / k].
        y: the right characters, [b, t], int64, the same on all ranks; each must be one of the vocabulary (-100 is not).
        first: the number of this rank's first character.
        group: the ranks; without it all.
    """
    largest = logits.detach().amax(-1)  # taken away from all logits, so that no exponential is too large
    dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=group)
    total = add_partials((logits - largest[..., None]).exp().sum(-1), group)
    index, is_mine = index_in_part(y, first, logits.shape[-1])
    right = add_partials(logits.gather(-1, index[..., None])[..., 0].where(is_mine, 0), group)
    return (total.log() + largest - right).mean()


def shard_network(
    net: Any, group: Group = None, begin: Change = copy_to_ranks, end: Change = add_partials
) -> ShardedTransformer:
    """Leave this rank its part of every layer of a `d2lite.Transformer`, in place, and return it.

    `net.partial` lists the parameters whose gradients are partial: here none.

    Raises:
        ValueError: if there are more ranks than heads, or than characters.
    """
    shard_vocabulary(net, group, begin, end)
    for block in net.blocks:
        shard_block(block, group, begin, end)
    net.partial = []
    return net


def shard_sequence(net: Any, group: Group = None) -> ShardedTransformer:
    """Do what `shard_network` does, and share normalisations and residuals, too: each rank computes its places.

    The gradients of the parameters that are used there are partial; `net.partial` lists these parameters.

    Raises:
        ValueError: if there are more ranks than heads, or than characters.
    """

    def keep_my_places(layer: nn.Module, args: object, X: torch.Tensor) -> torch.Tensor:
        return split_places(X[None], group)[0]

    shard_network(net, group, gather_places, scatter_places)
    net.embedding.place.register_forward_hook(keep_my_places)
    layers = [net.head.norm, *(layer for block in net.blocks for layer in (block.norm1, block.norm2))]
    net.partial = [param for layer in layers for param in layer.parameters()]
    net.partial += [layer.bias for block in net.blocks for layer in (block.attention.out, block.mlp.down)]
    return net


def tensor_step(
    net: ShardedTransformer,
    momenta: Sequence[torch.Tensor],
    X: torch.Tensor,
    y: torch.Tensor,
    lr: float,
    group: Group = None,
) -> torch.Tensor:
    """Take a step of tensor parallelism, of a network that went through `shard_network`; returns the mean loss.

    X and y, [b, t], are the same on all ranks of the group. No gradient is sent, except those in `net.partial`.
    `momenta` has a tensor of the shape of each parameter of this rank, zero in the beginning.
    """
    loss = sharded_cross_entropy(net(X), y, net.embedding.character.first, group)
    loss.backward()
    for param in net.partial:
        param.grad = summed(param.grad, group)
    for param, momentum in zip(net.parameters(), momenta, strict=True):
        momentum_step(param.data, param.grad, momentum, lr)
        param.grad = None
    return loss.detach()
