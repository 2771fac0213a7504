"""Pipeline parallelism by hand: each rank has a stage, some layers, and microbatches go through all of them.

All functions run on a rank, and every rank of the group must call them in the same order: rank i has stage i.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from d2lite.costs.pipeline_schedule import Pass, one_f_one_b
from d2lite.training.autograd_collectives import Group, part_sizes
from d2lite.training.zero import momentum_step

__all__ = ["Stage", "my_stage", "pipeline_step", "receive", "run_passes", "send", "share_of_loss"]

Schedule = Callable[[int, int, int], list[Pass]]  # of a stage, the number of stages and that of microbatches


class Stage(nn.Module):
    """Stage i of a `d2lite.Transformer`, with which it shares its parameters; stage j has `sizes[j]` blocks.

    The first stage has the embedding as well, the last one the head. A stage takes tokens [b, t] if it is the first
    one, else the activations [b, t, width] of the stage before.

    Raises:
        ValueError: if the sizes do not add up to the blocks of the network, or leave a stage without layers.
    """

    def __init__(self, net: Any, i: int, sizes: Sequence[int]) -> None:
        super().__init__()
        if sum(sizes) != len(net.blocks):
            raise ValueError(f"sizes: expected {len(net.blocks)} blocks in all, got {list(sizes)}.")
        if min(sizes) < 0:
            raise ValueError(f"sizes: expected whole numbers from 0 on, got {list(sizes)}.")
        if 0 in sizes[1:-1]:
            between = "in each stage between the first and the last"
            raise ValueError(f"sizes: expected at least one block {between}, got {list(sizes)}.")
        first = sum(sizes[:i])
        layers = [*net.blocks[first : first + sizes[i]]]
        if i == 0:
            layers.insert(0, net.embedding)
        if i == len(sizes) - 1:
            layers.append(net.head)
        self.layers, self.width = nn.Sequential(*layers), net.embedding.place.embedding_dim

    def empty_activations(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return an uninitialised tensor [b, t, width] for what the stage before computes from tokens [b, t]."""
        param = next(self.parameters())
        return torch.empty(*tokens.shape, self.width, dtype=param.dtype, device=param.device)

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        return self.layers(X)


def my_stage(net: Any, group: Group = None, sizes: Sequence[int] | None = None) -> Stage:
    """Return the stage of this rank; without `sizes` the blocks are divided as evenly as possible.

    Raises:
        ValueError: if there is not one size for each rank, or a stage would be without layers.
    """
    k = dist.get_world_size(group)
    if sizes and len(sizes) != k:
        raise ValueError(f"sizes: expected one for each of {k} ranks, got {list(sizes)}.")
    return Stage(net, dist.get_rank(group), sizes or part_sizes(len(net.blocks), k))


def send(tensor: torch.Tensor, to: int, microbatch: int, group: Group = None) -> tuple[Any, torch.Tensor]:
    """Begin to send a tensor to a rank of the group, and do not wait; return what to wait for, and the tensor.

    The tensor must stay alive until it has arrived.
    """
    tensor = tensor.detach().contiguous()
    return dist.isend(tensor, group=group, group_dst=to, tag=microbatch), tensor


def receive(like: torch.Tensor, source: int, microbatch: int, group: Group = None) -> torch.Tensor:
    """Wait for the tensor that a rank of the group sends for this microbatch; it has the shape and type of `like`."""
    tensor = torch.empty_like(like)
    dist.recv(tensor, group=group, group_src=source, tag=microbatch)
    return tensor


def share_of_loss(logits: torch.Tensor, y_part: torch.Tensor, n: int) -> torch.Tensor:
    """Return what a microbatch, logits [b, t, characters], adds to the mean cross entropy of n pieces."""
    return F.cross_entropy(logits.flatten(0, 1), y_part.flatten(), reduction="sum") / (n * y_part.shape[1])


def run_passes(
    stage: Any,
    passes: Sequence[Pass],
    X: torch.Tensor,
    y: torch.Tensor,
    num_microbatches: int,
    group: Group = None,
    recorder: Any = None,
    send: Callable[..., Any] = send,
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
    """
    rank, last = dist.get_rank(group), dist.get_world_size(group) - 1
    X_parts, y_parts = X.tensor_split(num_microbatches), y.tensor_split(num_microbatches)
    lap = recorder.lap if recorder else lambda *_: None
    inputs, outputs, sent, total = {}, {}, [], torch.zeros(())
    for kind, _, i in passes:
        if kind == "F":
            inputs[i] = X_parts[i]
            if rank > 0:
                inputs[i] = receive(stage.empty_activations(X_parts[i]), rank - 1, i, group).requires_grad_()
            lap("wait")
            outputs[i] = stage(inputs[i])
            if rank == last:
                outputs[i] = share_of_loss(outputs[i], y_parts[i], len(y))
                total = total + outputs[i].detach()
            lap("forward", f"F{i}")
            if rank < last:
                sent.append(send(outputs[i], rank + 1, i, group))
        else:
            grad = None if rank == last else receive(outputs[i].detach(), rank + 1, i, group)
            lap("wait")
            outputs.pop(i).backward(grad)
            lap("backward", f"B{i}")
            X_part: Any = inputs.pop(i)
            if rank > 0:
                sent.append(send(X_part.grad, rank - 1, i, group))
    for work, _ in sent:
        work.wait()
    return total


def pipeline_step(
    stage: Any,
    momenta: Sequence[torch.Tensor],
    X: torch.Tensor,
    y: torch.Tensor,
    lr: float,
    schedule: Schedule = one_f_one_b,
    num_microbatches: int = 4,
    group: Group = None,
) -> torch.Tensor:
    """Take a step of SGD with momentum, in microbatches; returns the mean loss on the last rank, and 0 on all others.

    No gradient of a weight is sent: each rank has those of its stage. `momenta` has a tensor of the shape of each
    parameter of the stage, zero in the beginning. X and y, [b, t], are the same on all ranks.
    """
    passes = schedule(dist.get_rank(group), dist.get_world_size(group), num_microbatches)
    loss = run_passes(stage, passes, X, y, num_microbatches, group)
    for param, momentum in zip(stage.parameters(), momenta, strict=True):
        momentum_step(param.data, param.grad, momentum, lr)
        param.grad = None
    return loss
