"""Context parallelism by hand: the ranks share the places of a text, and attention needs all places before each one.

Queries, keys and values are [b, t / k, heads, d]: the places of this rank, as `tensor_split` cuts them. *Ulysses*
(Jacobs et al. 2023, arXiv:2309.14509) exchanges places for heads and back, with an all-to-all each. *Ring attention*
(Liu et al. 2023, arXiv:2310.01889) sends keys and values around the ring, and adds one block after the other to the
weighted mean (the running maximum and sum of Milakov and Gimelshein 2018, arXiv:1805.02867). All functions run on a
rank, and every rank of the group must call them in the same order.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from ..chapter_13.network_parts import Network, TransformerParts
from ..chapter_13.zero import momentum_step
from ..chapter_14.autograd_collectives import Group, part_sizes, summed
from .exchanges import all_to_all, to_next

__all__ = [
    "PlacesAttention",
    "add_block",
    "causal_attention",
    "check_places",
    "context_step",
    "recut",
    "ring_attention",
    "split_text",
    "ulysses_attention",
]

Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, int, Group], torch.Tensor]


def causal_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Return what `d2lite.transformer.Attention` computes from q, k, v [b, t, heads, d], on one device."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))  # [b, heads, t, d]
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
    return (scores.masked_fill(later, -math.inf).softmax(-1) @ v).transpose(1, 2)


def check_places(q: torch.Tensor, t: int, group: Group = None) -> None:
    """Raise ValueError if dimension 1 of q is not this rank's part of t places, or t is less than the number of ranks.

    It sends nothing.
    """
    k, rank = dist.get_world_size(group), dist.get_rank(group)
    if t < k:
        raise ValueError(f"t: expected at least {k} places, one for each rank, got {t}. Use fewer ranks.")
    size = part_sizes(t, k)[rank]
    if q.shape[1] != size:
        raise ValueError(
            f"q: expected {size} places (dimension 1), rank {rank}'s part of t={t}, got {q.shape[1]}. "
            "Cut with tensor_split, and pass the t of all ranks."
        )


def recut(X: torch.Tensor, cut: int, join: int, n: int, group: Group = None) -> torch.Tensor:
    """Cut X along dimension `cut`, and join what the ranks have along `join`, where all together have n: an all-to-all.

    Parts are those of `tensor_split`, before and after. A part may be empty.
    """
    k, rank = dist.get_world_size(group), dist.get_rank(group)
    parts = X.tensor_split(k, cut)
    shapes = [list(parts[rank].shape) for _ in range(k)]
    for shape, size in zip(shapes, part_sizes(n, k), strict=True):
        shape[join] = size
    sent = [part.numel() for part in parts]
    received = [math.prod(shape) for shape in shapes]
    flat = torch.cat([part.flatten() for part in parts])
    came = all_to_all(flat, sent, received, group).split(received)
    return torch.cat([x.view(size) for x, size in zip(came, shapes, strict=True)], join)


def ulysses_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, t: int, group: Group = None) -> torch.Tensor:
    """Return causal attention of this rank's places: all places of some heads are computed on each rank.

    Args:
        q: queries of this rank's places, [b, t / k, heads, d]; likewise k and v.
        k: keys.
        v: values.
        t: how many places all ranks have together.
        group: the ranks; without it all.

    Raises:
        ValueError: if this rank's part of t places has another size than q, or t is less than the number of ranks.
    """
    check_places(q, t, group)
    qkv = recut(torch.cat([q, k, v], -1), 2, 1, t, group)  # [b, t, heads / k, 3 d]
    out = causal_attention(*qkv.chunk(3, -1))
    return recut(out, 1, 2, q.shape[2], group)  # [b, t / k, heads, d]


def add_block(
    largest: torch.Tensor, total: torch.Tensor, out: torch.Tensor, scores: torch.Tensor, v: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Add a block of keys to a softmax-weighted sum; returns the new (largest, total, out).

    In its first block each query needs a key that is not masked: otherwise the result is NaN.

    Args:
        largest: the largest score so far, [..., t, 1], -inf in the beginning.
        total: the sum of exp(score - largest) so far, [..., t, 1], zero in the beginning.
        out: the sum of exp(score - largest) times value so far, [..., t, d], zero in the beginning.
        scores: of the block, [..., t, n]; -inf where a key is masked.
        v: the values of the block, [..., n, d].
    """
    new = torch.maximum(largest, scores.detach().amax(-1, keepdim=True))
    factor, weights = (largest - new).exp(), (scores - new).exp()
    return new, total * factor + weights.sum(-1, keepdim=True), out * factor + weights @ v


def ring_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, t: int, group: Group = None) -> torch.Tensor:
    """Return causal attention of this rank's places: keys and values go around the ring, one block after the other.

    All ranks compute all blocks, also those that are masked completely.

    Args:
        q: queries of this rank's places, [b, t / k, heads, d]; likewise k and v.
        k: keys.
        v: values.
        t: how many places all ranks have together.
        group: the ranks; without it all.

    Raises:
        ValueError: if this rank's part of t places has another size than q, or t is less than the number of ranks.
    """
    check_places(q, t, group)
    ranks, rank = dist.get_world_size(group), dist.get_rank(group)
    places = torch.arange(t, device=q.device).tensor_split(ranks)
    kv = torch.cat([k, v], -1).transpose(0, 1)  # [t / k, b, heads, 2 d]: a row per place
    q = q.transpose(1, 2)  # [b, heads, t / k, d]
    largest, total, out = q.new_tensor(-math.inf), q.new_zeros(1), q.new_zeros(1)
    for i in range(ranks):
        owner = (rank - i) % ranks
        if i > 0:
            kv = to_next(kv, len(places[owner]), group)
        keys, values = kv.permute(1, 2, 0, 3).chunk(2, -1)
        later = places[owner] > places[rank][:, None]
        scores = (q @ keys.mT / math.sqrt(q.shape[-1])).masked_fill(later, -math.inf)
        largest, total, out = add_block(largest, total, out, scores, values)
    return (out / total).transpose(1, 2)


class PlacesAttention(nn.Module):
    """The attention of `d2lite.Transformer`, for this rank's places: [b, t / k, width] -> [b, t / k, width].

    `attend` is `ulysses_attention` or `ring_attention`. Set `t` to the places of all ranks before the call.
    """

    t = 0

    def __init__(self, attention: Any, attend: Attend, group: Group = None) -> None:
        super().__init__()
        self.num_heads = attention.num_heads
        self.query, self.key, self.value, self.out = attention.query, attention.key, attention.value, attention.out
        self.attend, self.group = attend, group

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        q, k, v = (layer(X).unflatten(-1, (self.num_heads, -1)) for layer in (self.query, self.key, self.value))
        return self.out(self.attend(q, k, v, self.t, self.group).flatten(2))


def split_text(net: TransformerParts, attend: Attend, group: Group = None) -> TransformerParts:
    """Let each rank compute its places in a `d2lite.Transformer`, in place, and return it.

    All ranks get the same tokens, [b, t], and the logits of their places come out, [b, t / k, characters]. Each rank
    has all parameters. What a backward pass leaves in `.grad` is partial: add it up over the ranks.

    Args:
        net: the network; all ranks have the same.
        attend: `ulysses_attention` or `ring_attention`.
        group: the ranks; without it all.
    """

    def keep_my_places(embedding: nn.Module, args: object, X: torch.Tensor) -> torch.Tensor:
        for block in net.blocks:
            block.attention.t = X.shape[1]
        return X.tensor_split(dist.get_world_size(group), 1)[dist.get_rank(group)]

    net.embedding.register_forward_hook(keep_my_places)
    for block in net.blocks:
        block.attention = PlacesAttention(block.attention, attend, group)
    return net


def context_step(
    net: Network, momenta: Sequence[torch.Tensor], X: torch.Tensor, y: torch.Tensor, lr: float, group: Group = None
) -> torch.Tensor:
    """Take a step of a network that went through `split_text`; returns this rank's share of the mean loss.

    X and y, [b, t], are the same on all ranks. `momenta` has a tensor of the shape of each parameter, zero in the
    beginning.
    """
    mine = y.tensor_split(dist.get_world_size(group), 1)[dist.get_rank(group)]
    loss = F.cross_entropy(net(X).flatten(0, 1), mine.flatten(), reduction="sum") / y.numel()
    loss.backward()
    for param, momentum in zip(net.parameters(), momenta, strict=True):
        momentum_step(param.data, summed(param.grad, group), momentum, lr)
        param.grad = None
    return loss.detach()
