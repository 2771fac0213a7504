"""nn.DataParallel's four verbs for any devices: replicate, scatter, parallel_apply, gather."""

import copy

import torch
from torch import nn

from d2lite.parallel import check_devices, parallel_apply

__all__ = ["DataParallel", "wrap"]


def wrap(module, devices):
    """Wrap `module` for `devices`: nn.DataParallel on two or more distinct GPUs, else d2lite.DataParallel."""
    check_devices(devices)
    devices = [torch.device(d) for d in devices]
    distinct = len(set(devices)) == len(devices)
    if len(devices) > 1 and distinct and all(d.type == "cuda" for d in devices):
        return nn.DataParallel(module.to(devices[0]), device_ids=devices)
    return DataParallel(module, devices)


class DataParallel(nn.Module):
    """Run `module` on one slice of the minibatch a device; also where nn.DataParallel cannot: on CPU cores.

    As in nn.DataParallel, the parameters live on the first device, are copied to the others at every forward pass,
    and their gradients are summed on the first device; BatchNorm uses the statistics of each shard, and keeps the
    running ones of the first. A minibatch with fewer examples than devices uses fewer devices. `module` takes
    a tensor [b, ...] and returns a tensor [b, ...]. Dropout draws from one generator in the order in which
    the threads come.
    """

    def __init__(self, module, devices):
        super().__init__()
        if not isinstance(module, nn.Module):
            raise TypeError(f"module: expected an nn.Module, got {type(module).__name__}.")
        check_devices(devices)
        self.devices = [torch.device(d) for d in devices]
        self.module = module.to(self.devices[0])
        self._copies = []  # a plain list: the copies are no submodules and no part of the state

    def replicate(self):
        """Return one module a device with the values of now: the module itself, then copies of it."""
        if [_outline(c) for c in self._copies] != [_outline(self.module)] * (len(self.devices) - 1):
            self._copies = [copy.deepcopy(self.module).to(d) for d in self.devices[1:]]
        with torch.no_grad():
            for replica in self._copies:
                for mine, source in zip(_state(replica), _state(self.module), strict=True):
                    mine.copy_(source)
                    mine.requires_grad_(source.requires_grad)
                for mine, source in zip(replica.modules(), self.module.modules(), strict=True):
                    mine.training = source.training
        return [self.module, *self._copies]

    def forward(self, X):
        devices = self.devices[: max(1, len(X))]
        if len(devices) == 1 and devices[0].type != "cpu":
            return self.module(X.to(devices[0]))
        replicas = self.replicate()[: len(devices)]
        params = [p for p in self.module.parameters() if p.requires_grad]
        if torch.is_grad_enabled() and (params or X.requires_grad):
            return _Parallel.apply(replicas, devices, X, *params)
        return _gather(parallel_apply(_call, _scatter(replicas, X, devices), devices))


class _Parallel(torch.autograd.Function):
    """Forward and backward pass of all replicas side by side, as one node of the caller's graph.

    One graph over all replicas would be walked by one CPU thread; here each replica has its own.
    """

    @staticmethod
    def forward(ctx, replicas, devices, X, *params):
        ctx.devices, ctx.device = devices, X.device
        ctx.inputs = _scatter(replicas, X.detach(), devices)
        for _, shard in ctx.inputs:
            shard.requires_grad_(X.requires_grad)
        with torch.enable_grad():
            ctx.outputs = parallel_apply(_call, ctx.inputs, devices)
        return _gather([output.detach() for output in ctx.outputs])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        sizes = [len(output) for output in ctx.outputs]
        jobs = [
            (output, net, shard, piece.to(device))
            for output, (net, shard), piece, device in zip(
                ctx.outputs, ctx.inputs, grad.split(sizes), ctx.devices, strict=True
            )
        ]
        grads = parallel_apply(_gradients, jobs, ctx.devices)
        shard_grads = [shard_grad for shard_grad, _ in grads]
        X_grad = None
        if shard_grads[0] is not None:
            X_grad = torch.cat([g.to(ctx.device) for g in shard_grads])
        sums = [_sum(parts, ctx.devices[0]) for parts in zip(*(g for _, g in grads), strict=True)]
        return None, None, X_grad, *sums


def _call(net, X):
    output = net(X)
    if not isinstance(output, torch.Tensor):
        raise TypeError(f"module: expected it to return one tensor, got {type(output).__name__}.")
    return output


def _gradients(output, net, shard, grad):
    """Return (gradient of the shard or None, gradients of the parameters) of one replica."""
    wanted = [p for p in net.parameters() if p.requires_grad]
    if shard.requires_grad:
        shard_grad, *grads = torch.autograd.grad(output, [shard, *wanted], grad, allow_unused=True)
        return shard_grad, grads
    return None, torch.autograd.grad(output, wanted, grad, allow_unused=True)


def _scatter(replicas, X, devices):
    return [
        (net, shard.to(device))
        for net, shard, device in zip(replicas, X.tensor_split(len(devices)), devices, strict=True)
    ]


def _gather(outputs):
    return torch.cat([output.to(outputs[0].device) for output in outputs])


def _sum(parts, device):
    parts = [part.to(device) for part in parts if part is not None]
    return torch.stack(parts).sum(0) if parts else None


def _state(module):
    return [*module.parameters(), *module.buffers()]


def _outline(module):
    """What tells two structures apart: types of the layers, names, shapes and dtypes of the state."""
    return (
        [type(m) for m in module.modules()],
        [(name, t.shape, t.dtype) for name, t in [*module.named_parameters(), *module.named_buffers()]],
    )
