"""Pipeline parallelism by hand: each rank has a stage, some layers, and microbatches go through all of them.

All functions run on a rank, and every rank of the group must call them in the same order: rank i has stage i.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from ..chapter_13.network_parts import Network, TransformerParts
from ..chapter_13.zero import momentum_step
from ..chapter_14.autograd_collectives import Group, part_sizes
from .pipeline_schedule import Pass

__all__ = [
    "Stage",
    "backward_pass",
    "begin_send",
    "check_passes",
    "forward_pass",
    "my_stage",
    "pipeline_step",
    "receive",
    "run_passes",
    "share_of_loss",
]

PipelineSchedule = Callable[[int, int, int], list[Pass]]  # of a stage, the number of stages and that of microbatches


class StageParts(Network, Protocol):
    """What the passes need of a stage: a network that says what it takes from the stage before."""

    def empty_activations(self, tokens: torch.Tensor, /) -> torch.Tensor:
        """Return an uninitialised tensor for what the stage before computes from tokens."""


class Stage(nn.Module):
    """Stage i of a `d2lite.Transformer`, with which it shares its parameters; stage j has `sizes[j]` blocks.

    The first stage has the embedding as well, the last one the head. A stage takes tokens [b, t] if it is the first
    one, else the activations [b, t, width] of the stage before.

    Raises:
        ValueError: if the sizes do not add up to the blocks of the network, or an inner stage has none.
    """

    def __init__(self, net: TransformerParts, i: int, sizes: Sequence[int]) -> None:
        super().__init__()
        if sum(sizes) != len(net.blocks) or min(sizes) < 0 or 0 in sizes[1:-1]:
            expected = f"{len(net.blocks)} blocks in all, and at least one in each inner stage"
            raise ValueError(f"sizes: expected {expected}, got {list(sizes)}.")
        first = sum(sizes[:i])
        layers = [*net.blocks[first : first + sizes[i]]]
        if i == 0:
            layers.insert(0, net.embedding)
        if i == len(sizes) - 1:
            layers.append(net.head)
        self.layers, self.width = nn.Sequential(*layers), net.embedding.place.embedding_dim

    def empty_activations(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return an uninitialised tensor [b, t, width] for what the stage before computes from tokens [b, t]."""
        return next(self.parameters()).new_empty(*tokens.shape, self.width)

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        return self.layers(X)


def my_stage(net: TransformerParts, group: Group = None, sizes: Sequence[int] | None = None) -> Stage:
    """Return the stage of this rank; without `sizes` the blocks are divided as evenly as possible.

    Raises:
        ValueError: if there is not one size for each rank, or an inner stage has no block.
    """
    k = dist.get_world_size(group)
    sizes = sizes or part_sizes(len(net.blocks), k)
    if len(sizes) != k:
        raise ValueError(f"sizes: expected one for each of {k} ranks, got {list(sizes)}.")
    return Stage(net, dist.get_rank(group), sizes)


def begin_send(tensor: torch.Tensor, to: int, microbatch: int, group: Group = None) -> tuple[Any, torch.Tensor]:
    """Begin to send a tensor to a rank of the group, and do not wait; return what to wait for, and the tensor.

    The tensor must stay alive until it has arrived.
    """
    tensor = tensor.detach().contiguous()
    return dist.isend(tensor, group=group, group_dst=to, tag=microbatch), tensor


def receive(like: torch.Tensor, source: int, microbatch: int, group: Group = None) -> torch.Tensor:
    """Wait for the tensor that a rank of the group sends for this microbatch; it has the shape and type of `like`."""
    tensor = like.new_empty(like.shape)  # contiguous, as what is sent
    dist.recv(tensor, group=group, group_src=source, tag=microbatch)
    return tensor


def share_of_loss(logits: torch.Tensor, y_part: torch.Tensor, n: int) -> torch.Tensor:
    """Return what a microbatch, logits [b, t, characters], adds to the mean cross entropy of n pieces."""
    return F.cross_entropy(logits.flatten(0, 1), y_part.flatten(), reduction="sum") / (n * y_part.shape[1])


def forward_pass(
    stage: StageParts, X_part: torch.Tensor, y_part: torch.Tensor, n: int, i: int, group: Group, lap: Callable[..., Any]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the forward pass of microbatch i, of a minibatch of n pieces; return the stage's input and its output.

    The output of the last stage is the microbatch's share of the loss. `lap` notes that a time of waiting has ended,
    and then that the pass has.
    """
    rank, last = dist.get_rank(group), dist.get_world_size(group) - 1
    X_in = X_part
    if rank > 0:
        X_in = receive(stage.empty_activations(X_part), rank - 1, i, group).requires_grad_()
    lap("wait")
    out = stage(X_in)
    if rank == last:
        out = share_of_loss(out, y_part, n)
    lap("forward", f"F{i}")
    return X_in, out


def backward_pass(
    X_in: torch.Tensor, out: torch.Tensor, i: int, group: Group, lap: Callable[..., Any]
) -> torch.Tensor | None:
    """Compute the backward pass of microbatch i; return the gradient of the stage's input, None for tokens."""
    grad = None
    if dist.get_rank(group) < dist.get_world_size(group) - 1:
        grad = receive(out.detach(), dist.get_rank(group) + 1, i, group)
    lap("wait")
    out.backward(grad)
    lap("backward", f"B{i}")
    return X_in.grad


def check_passes(passes: Sequence[Pass], rank: int, num_microbatches: int) -> None:
    """Raise ValueError unless the passes are F and B of this rank's stage, once for each microbatch that there is."""
    for one in passes:
        if one.kind not in "FB" or one.stage != rank or one.microbatch not in range(num_microbatches):
            expected = f"F and B of stage {rank}, microbatches 0 to {num_microbatches - 1}"
            raise ValueError(f"passes of rank {rank}: expected {expected}, got {one}.")
    for kind in "FB":
        for i in range(num_microbatches):
            times = sum(one.kind == kind and one.microbatch == i for one in passes)
            if times != 1:
                raise ValueError(f"passes of rank {rank}: expected {kind}{i} once, got it {times} times.")


def run_passes(
    stage: StageParts,
    passes: Sequence[Pass],
    X: torch.Tensor,
    y: torch.Tensor,
    num_microbatches: int,
    group: Group = None,
    recorder: Any = None,
    send: Callable[..., Any] = begin_send,
) -> torch.Tensor:
    """Compute the passes of this rank's stage in their order; the gradients are added to those of its parameters.

    X and y, [b, t], are those of the complete minibatch, the same on all ranks. The loss of a microbatch is its share
    of the mean over the minibatch, so microbatches may differ in size. Returns the sum of these losses on the last
    rank, and 0 on all others.

    Args:
        stage: this rank's, from `my_stage`.
        passes: this rank's F and B, such as those of `gpipe` or `one_f_one_b`.
        X: the tokens.
        y: the characters that follow them.
        num_microbatches: into how many parts the minibatch is cut.
        group: the ranks; without it all.
        recorder: a Recorder that has begun a step: it gets a lap for each pass, and one for each time of waiting.
        send: how a tensor is sent.

    Raises:
        ValueError: if a pass is none of this rank's stage, or neither F nor B, or missing, before anything is sent.
    """
    rank, last = dist.get_rank(group), dist.get_world_size(group) - 1
    check_passes(passes, rank, num_microbatches)
    X_parts, y_parts = X.tensor_split(num_microbatches), y.tensor_split(num_microbatches)
    lap = recorder.lap if recorder else lambda *_: None
    kept, sent, loss = {}, [], next(stage.parameters()).new_zeros(())
    for kind, _, i in passes:
        if kind == "F":
            kept[i] = forward_pass(stage, X_parts[i], y_parts[i], len(y), i, group, lap)
            if rank < last:
                sent.append(send(kept[i][1], rank + 1, i, group))
            else:
                loss = loss + kept[i][1].detach()
        else:
            X_in, out = kept.pop(i)
            grad = backward_pass(X_in, out, i, group, lap)
            if rank > 0:
                sent.append(send(grad, rank - 1, i, group))
    for work, _ in sent:
        work.wait()
    return loss


def pipeline_step(
    stage: StageParts,
    momenta: Sequence[torch.Tensor],
    X: torch.Tensor,
    y: torch.Tensor,
    lr: float,
    schedule: PipelineSchedule,
    num_microbatches: int = 4,
    group: Group = None,
) -> torch.Tensor:
    """Take a step of SGD with momentum, in microbatches; returns the mean loss on the last rank, and 0 on all others.

    No gradient of a weight is sent: each rank has those of its stage. `momenta` has a tensor of the shape of each
    parameter of the stage, zero in the beginning. X and y, [b, t], are the same on all ranks. `schedule` is `gpipe`,
    `one_f_one_b`, or another function of the stage, the number of stages and that of microbatches.
    """
    passes = schedule(dist.get_rank(group), dist.get_world_size(group), num_microbatches)
    loss = run_passes(stage, passes, X, y, num_microbatches, group)
    for param, momentum in zip(stage.parameters(), momenta, strict=True):
        momentum_step(param.data, param.grad, momentum, lr)
        param.grad = None
    return loss
