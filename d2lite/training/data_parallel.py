"""DataParallel for any devices, in the four verbs of torch.nn.parallel: scatter, replicate, parallel_apply, gather."""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from d2lite.parallel import check_devices, one_intra_op_thread, parallel_apply
from d2lite.training.sharding import gather, scatter

__all__ = ["DataParallel", "wrap"]


def wrap(module: nn.Module, devices: Sequence[torch.device]) -> nn.Module:
    """Wrap `module` for `devices`: in nn.DataParallel on two or more distinct GPUs, else in d2lite.DataParallel.

    Args:
        module: takes and returns tensors [b, ...]; it is moved to devices[0].
        devices: one device per replica.

    Raises:
        ValueError: if there are no devices.
        TypeError: if `module` is not an nn.Module, or `devices` is a single device.

    Example:
        >>> from d2lite import try_gpus
        >>> net = wrap(nn.Linear(3, 2), try_gpus(2))
        >>> net(torch.zeros(5, 3)).shape
        torch.Size([5, 2])
    """
    check_devices(devices)
    devices = [torch.device(d) for d in devices]
    distinct = len(set(devices)) == len(devices)
    if len(devices) > 1 and distinct and all(d.type == "cuda" for d in devices):
        return nn.DataParallel(module.to(devices[0]), device_ids=devices)
    return DataParallel(module, devices)


class DataParallel(nn.Module):
    """Run `module` on one slice of the minibatch per device; also on CPU cores, where nn.DataParallel cannot.

    As in nn.DataParallel, the parameters live on the first device, are copied to the others at every forward pass,
    and their gradients are summed on the first device. Batch normalisation uses the statistics of each shard, and keeps
    the running ones of the first. Dropout draws from one generator, in the order in which the threads reach it,
    so that masks differ from run to run. A
    minibatch with fewer examples than devices uses fewer devices.

    Args:
        module: takes one tensor [b, ...] and returns one tensor [b, ...]; it is moved to devices[0].
        devices: one device per replica.

    Raises:
        ValueError: if there are no devices.
        TypeError: if `module` is not an nn.Module, or `devices` is a single device; in a forward pass, if `module` does
            not return one tensor.

    Example:
        >>> from d2lite import try_gpus
        >>> linear = nn.Linear(3, 2)
        >>> X = torch.rand(5, 3)
        >>> torch.allclose(DataParallel(linear, try_gpus(2))(X).cpu(), linear.cpu()(X))
        True
    """

    def __init__(self, module: nn.Module, devices: Sequence[torch.device]) -> None:
        super().__init__()
        if not isinstance(module, nn.Module):
            raise TypeError(f"module: expected an nn.Module, got {type(module).__name__}.")
        check_devices(devices)
        self.devices = [torch.device(d) for d in devices]
        self.module = module.to(self.devices[0])
        self._copies: list[nn.Module] = []  # a plain list: the copies are no submodules and no part of the state

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        devices = self.devices[: max(1, len(X))]
        with one_intra_op_thread(devices):
            shards = scatter(X, devices)
            replicas = self.replicate()[: len(devices)]
            outputs = _apply_replicas(replicas, shards, devices)
            return gather(outputs)

    def replicate(self) -> list[nn.Module]:
        """Return one module per device with the current values: the module itself, then copies of it."""
        if [_structure(c) for c in self._copies] != [_structure(self.module)] * (len(self.devices) - 1):
            self._copies = [copy.deepcopy(self.module).to(d) for d in self.devices[1:]]
        with torch.no_grad():
            for replica in self._copies:
                for target, source in zip(_state(replica), _state(self.module), strict=True):
                    target.copy_(source)
                    target.requires_grad_(source.requires_grad)
                for child, original in zip(replica.modules(), self.module.modules(), strict=True):
                    child.training = original.training
        return [self.module, *self._copies]


def _apply_replicas(
    replicas: list[nn.Module], shards: list[torch.Tensor], devices: list[torch.device]
) -> Sequence[torch.Tensor]:
    """Return each replica's output for its shard, with a graph if gradients are needed."""
    if len(devices) == 1 and devices[0].type != "cpu":
        return [_call(replicas[0], shards[0])]
    params = [p for p in replicas[0].parameters() if p.requires_grad]
    if torch.is_grad_enabled() and (params or any(shard.requires_grad for shard in shards)):
        return _ReplicaFunction.apply(replicas, devices, *shards, *params)
    return parallel_apply(_call, list(zip(replicas, shards, strict=True)), devices)


class _ReplicaFunction(torch.autograd.Function):
    """Forward and backward pass of all replicas side by side, as one node of the caller's graph.

    Autograd runs the CPU part of a graph in one thread, so each replica gets a graph and a thread of its own.
    """

    @staticmethod
    def forward(
        ctx: Any, replicas: list[nn.Module], devices: list[torch.device], *tensors: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        k = len(devices)  # tensors: k shards, then the parameters that require gradients
        ctx.devices, ctx.replicas = devices, replicas
        ctx.shards = [shard.detach().requires_grad_(shard.requires_grad) for shard in tensors[:k]]
        with torch.enable_grad():
            ctx.outputs = parallel_apply(_call, list(zip(replicas, ctx.shards, strict=True)), devices)
        return tuple(output.detach() for output in ctx.outputs)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *output_grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        jobs = list(zip(ctx.outputs, ctx.replicas, ctx.shards, output_grads, strict=True))
        grads = parallel_apply(_gradients, jobs, ctx.devices)
        shard_grads = [shard_grad for shard_grad, _ in grads]
        with one_intra_op_thread(ctx.devices):
            sums = [_sum(parts, ctx.devices[0]) for parts in zip(*(g for _, g in grads), strict=True)]
        return None, None, *shard_grads, *sums


def _call(net: nn.Module, X: torch.Tensor) -> torch.Tensor:
    output = net(X)
    if not isinstance(output, torch.Tensor):
        raise TypeError(f"module: expected it to return one tensor, got {type(output).__name__}.")
    return output


def _gradients(
    output: torch.Tensor, net: nn.Module, shard: torch.Tensor, grad: torch.Tensor
) -> tuple[torch.Tensor | None, Sequence[torch.Tensor | None]]:
    """Return (gradient of the shard or None, gradients of the parameters) of one replica."""
    params = [p for p in net.parameters() if p.requires_grad]
    if shard.requires_grad:
        shard_grad, *grads = torch.autograd.grad(output, [shard, *params], grad, allow_unused=True)
        return shard_grad, grads
    return None, torch.autograd.grad(output, params, grad, allow_unused=True)


def _sum(parts: Sequence[torch.Tensor | None], device: torch.device) -> torch.Tensor | None:
    on_device = [part.to(device) for part in parts if part is not None]
    return torch.stack(on_device).sum(0) if on_device else None


def _state(module: nn.Module) -> list[torch.Tensor]:
    return [*module.parameters(), *module.buffers()]


def _structure(module: nn.Module) -> tuple[list[type], list[tuple[str, torch.Size, torch.dtype]]]:
    """What differs between two structures: types of the layers, names, shapes and dtypes of the state."""
    return (
        [type(m) for m in module.modules()],
        [(name, t.shape, t.dtype) for name, t in [*module.named_parameters(), *module.named_buffers()]],
    )
