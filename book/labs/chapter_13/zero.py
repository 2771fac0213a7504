"""ZeRO by hand: each rank holds a part of the optimizer's state, of the gradients, of the parameters (stages 1, 2, 3).

Stage 3 is what PyTorch's FSDP does. Every stage is plain data parallelism with other owners: the same minibatches give
the same weights, up to rounding (Rajbhandari et al. 2020, arXiv:1910.02054). The optimizer is SGD with momentum. A
tensor is cut into as many parts of equal size as there are ranks; zeros are appended where the sizes do not divide. All
functions run on a rank, and every rank of the process group must call them in the same order.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from .network_parts import Network

__all__ = [
    "all_gather_parts",
    "backward_on_shard",
    "bytes_on_rank",
    "cut",
    "free_params",
    "gather_params",
    "momentum_step",
    "my_part",
    "plain_step",
    "reduce_and_free",
    "reduce_at_once",
    "reduce_scatter_sum",
    "shard_layers",
    "whole_params",
    "zero_1_step",
    "zero_2_step",
    "zero_3_step",
]

Params = Iterable[Any]  # tensors that carry a part, and a gradient of this part, as attributes


def cut(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Return `tensor` as one flat part per rank, all of the same size: zeros are appended where it does not divide."""
    k = dist.get_world_size()
    flat = tensor.detach().flatten()
    return list(F.pad(flat, (0, -len(flat) % k)).chunk(k))


def my_part(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy of the part of `tensor` that this rank owns, flat."""
    return cut(tensor)[dist.get_rank()].clone()


def reduce_scatter_sum(tensor: torch.Tensor) -> torch.Tensor:
    """Return this rank's part of the sum of the ranks' tensors, flat. `tensor` stays as it is."""
    parts = cut(tensor)
    mine = torch.empty_like(parts[0])
    dist.reduce_scatter(mine, parts)
    return mine


def all_gather_parts(part: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    """Return the tensor of this shape whose parts the ranks own: the inverse of `my_part`."""
    parts = [torch.empty_like(part) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, part)
    return torch.cat(parts)[: shape.numel()].view(shape)


def backward_on_shard(net: Network, X: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Compute this rank's share of the gradient, into `.grad`, and return its share of the mean loss.

    The shares of all ranks add up to the loss and the gradient of the mean over the global minibatch, also where shards
    have different sizes.

    Args:
        net: a module with logits [b, ..., classes] as its result, on the device of X.
        X: the global minibatch, [b, ...], the same on all ranks.
        y: the labels, [b, ...], int64.
    """
    rank, k = dist.get_rank(), dist.get_world_size()
    X_shard, y_shard = X.tensor_split(k)[rank], y.tensor_split(k)[rank]
    loss = F.cross_entropy(net(X_shard).flatten(0, -2), y_shard.flatten(), reduction="sum") / y.numel()
    loss.backward()
    return loss.detach()


def momentum_step(param: torch.Tensor, gradient: torch.Tensor, momentum: torch.Tensor, lr: float) -> None:
    """Update `param` and `momentum` in place as torch.optim.SGD(momentum=0.9) does; all three have one shape."""
    momentum.mul_(0.9).add_(gradient)
    param.sub_(lr * momentum)


def plain_step(
    net: Network, momenta: Sequence[torch.Tensor], X: torch.Tensor, y: torch.Tensor, lr: float
) -> torch.Tensor:
    """Take a step of plain data parallelism: every rank holds everything. Returns this rank's share of the loss.

    `momenta` has a tensor of the shape of each parameter, zero in the beginning.
    """
    loss = backward_on_shard(net, X, y)
    for param, momentum in zip(net.parameters(), momenta, strict=True):
        dist.all_reduce(param.grad)
        momentum_step(param.data, param.grad, momentum, lr)
        param.grad = None
    return loss


def zero_1_step(
    net: Network, momenta: Sequence[torch.Tensor], X: torch.Tensor, y: torch.Tensor, lr: float
) -> torch.Tensor:
    """Take a step of ZeRO stage 1: a rank updates its part of each parameter, with its part of the momentum.

    `momenta` has a tensor of the shape of `my_part(param)` for each parameter, zero in the beginning.
    """
    loss = backward_on_shard(net, X, y)
    for param, momentum in zip(net.parameters(), momenta, strict=True):
        gradient, part = reduce_scatter_sum(param.grad), my_part(param)
        momentum_step(part, gradient, momentum, lr)
        param.data.copy_(all_gather_parts(part, param.shape))
        param.grad = None
    return loss


def reduce_at_once(param: Any) -> None:
    """Keep this rank's part of a gradient that is complete, summed over ranks, and free the rest: a hook of autograd.

    For stage 2, `param.register_post_accumulate_grad_hook(reduce_at_once)` for each parameter, once.
    """
    param.gradient_part = reduce_scatter_sum(param.grad)
    param.grad = None


def zero_2_step(
    net: Network, momenta: Sequence[torch.Tensor], X: torch.Tensor, y: torch.Tensor, lr: float
) -> torch.Tensor:
    """Take a step of ZeRO stage 2: as stage 1, but the parameters have `reduce_at_once` as a hook."""
    loss = backward_on_shard(net, X, y)
    for param, momentum in zip(net.parameters(), momenta, strict=True):
        part = my_part(param)
        momentum_step(part, param.gradient_part, momentum, lr)
        param.data.copy_(all_gather_parts(part, param.shape))
    return loss


def gather_params(layer: Network, *_: object) -> None:
    """Make the parameters of a layer complete: a hook before its forward and before its backward pass."""
    for param in layer.parameters():
        param.untyped_storage().resize_(param.nbytes)
        param.data.copy_(all_gather_parts(param.part, param.shape))


def free_params(layer: nn.Module, *_: object) -> None:
    """Free the memory of the parameters of a layer, except the rank's parts: a hook after its forward pass."""
    for param in layer.parameters():
        param.untyped_storage().resize_(0)


def reduce_and_free(param: Any) -> None:
    """Do what `reduce_at_once` does, and free the parameter: a hook of autograd."""
    reduce_at_once(param)
    param.untyped_storage().resize_(0)


def shard_layers(layers: Iterable[Any]) -> None:
    """Leave this rank its part of each parameter of the layers; each layer is complete only while it computes.

    The layers together must have all parameters of the network, each once, and are called once in a forward pass.
    """
    for layer in layers:
        for param in layer.parameters():
            param.part = my_part(param)
            param.register_post_accumulate_grad_hook(reduce_and_free)
        layer.register_forward_pre_hook(gather_params)
        layer.register_forward_hook(free_params)
        layer.register_full_backward_pre_hook(gather_params)
        free_params(layer)


def zero_3_step(
    net: Network, momenta: Sequence[torch.Tensor], X: torch.Tensor, y: torch.Tensor, lr: float
) -> torch.Tensor:
    """Take a step of ZeRO stage 3, of a network whose layers went through `shard_layers`: no rank holds all of it."""
    loss = backward_on_shard(net, X, y)
    for param, momentum in zip(net.parameters(), momenta, strict=True):
        momentum_step(param.part, param.gradient_part, momentum, lr)
    return loss


def whole_params(net: nn.Module) -> list[torch.Tensor]:
    """Return copies of the complete parameters, whether they are sharded (stage 3) or not."""
    params: Params = net.parameters()
    return [all_gather_parts(p.part, p.shape) if hasattr(p, "part") else p.detach().clone() for p in params]


def bytes_on_rank(net: nn.Module, momenta: Iterable[torch.Tensor]) -> dict[str, int]:
    """Return {"parameters", "gradients", "optimizer": bytes} that this rank holds now: call it after a backward pass.

    What is counted are the tensors: those of autograd, and the parts that the stages keep beside them. Activations are
    freed by then, and not counted; `d2lite.profiling.bytes_held` takes a step on one device and counts them.
    """
    params: Params = list(net.parameters())
    parts = [[getattr(p, name) for p in params if hasattr(p, name)] for name in ("part", "gradient_part")]
    return {
        "parameters": sum(p.untyped_storage().nbytes() for p in params) + sum(part.nbytes for part in parts[0]),
        "gradients": sum(p.grad.nbytes for p in params if p.grad is not None) + sum(part.nbytes for part in parts[1]),
        "optimizer": sum(momentum.nbytes for momentum in momenta),
    }
