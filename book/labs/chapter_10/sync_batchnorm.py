"""Synchronised BatchNorm on three all-reduces: every rank normalises by the statistics of the whole minibatch.

It runs wherever torch.distributed has an all-reduce, so on CPUs with gloo as well as on GPUs with NCCL.
torch.nn.SyncBatchNorm uses kernels that only GPUs have.
"""

from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import is_lazy

from d2lite.replica_threads import in_replica

__all__ = [
    "SyncBatchNorm",
    "convert_sync_batchnorm",
    "gradient_over_ranks",
    "moments_over_ranks",
    "sum_over_ranks",
]


def sum_over_ranks(sums: torch.Tensor, group: "dist.ProcessGroup | None" = None) -> torch.Tensor:
    """Add up `sums` over the ranks of a process group, in place, and return it; without a process group do nothing."""
    if dist.is_available() and dist.is_initialized():
        dist.all_reduce(sums, group=group)
    return sums


def moments_over_ranks(
    X: torch.Tensor, group: "dist.ProcessGroup | None" = None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return (n, mean, variance) of each channel over the shards of all ranks, in two all-reduces.

    The first one adds up the counts and the sums, 1 + c numbers: they give the mean. The second one adds up the squared
    distances from this mean, c numbers. One all-reduce could add up the squares themselves, but their mean minus the
    square of the mean loses as many digits as the two have in common.

    Args:
        X: this rank's shard, [b, c, ...]; b may differ between ranks, and may be 0.
        group: the process group; by default all ranks.

    Returns:
        float64 tensors: the number of values per channel [1], the mean [c] and the biased variance [c].
    """
    x, over = X.double(), [d for d in range(X.dim()) if d != 1]  # all dimensions but that of the channels
    count = x.new_tensor([X.numel() / X.shape[1]])
    n, total = sum_over_ranks(torch.cat([count, x.sum(over)]), group).tensor_split([1])
    mean = total / n
    squares = sum_over_ranks((x - per_channel(mean, x)).square().sum(over), group)
    return n, mean, squares / n


def gradient_over_ranks(
    grad: torch.Tensor, X_hat: torch.Tensor, n: torch.Tensor, group: "dist.ProcessGroup | None" = None
) -> torch.Tensor:
    """Return the gradient with respect to X, times the standard deviation, in one all-reduce.

    A value of X changes its own normalised value, and through the mean and the variance those of all examples on all
    ranks. The two sums that come from there are sent, 2c numbers (Ioffe and Szegedy 2015, arXiv:1502.03167, section 3).

    Args:
        grad: the gradient with respect to X_hat, [b, c, ...], of this rank's shard.
        X_hat: the normalised values of the shard.
        n: the number of values per channel on all ranks, [1].
        group: the process group; by default all ranks.
    """
    g, x_hat = grad.double(), X_hat.double()
    over = [d for d in range(grad.dim()) if d != 1]
    sums = sum_over_ranks(torch.stack([g.sum(over), (g * x_hat).sum(over)]), group)
    mean_g, mean_gx = (per_channel(s / n, grad) for s in sums)
    return g - mean_g - x_hat * mean_gx


def per_channel(values: torch.Tensor, X: torch.Tensor) -> torch.Tensor:
    """Return values [c] in the shape [1, c, 1, ...] in which they fit X [b, c, ...]."""
    return values.view(1, -1, *[1] * (X.dim() - 2))


class Normalise(torch.autograd.Function):
    """(X - mean) / deviation, whose gradient reaches X through the mean and the deviation as well."""

    @staticmethod
    def forward(
        ctx: Any, X: torch.Tensor, moments: Any, eps: float, group: "dist.ProcessGroup | None" = None
    ) -> torch.Tensor:
        n, mean, var = moments
        mean, deviation = per_channel(mean, X), per_channel((var + eps).sqrt(), X)
        ctx.save_for_backward(X, mean, deviation, n)
        ctx.group = group
        return ((X.double() - mean) / deviation).to(X.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        X, mean, deviation, n = ctx.saved_tensors
        X_hat = (X.double() - mean) / deviation
        return (gradient_over_ranks(grad, X_hat, n, ctx.group) / deviation).to(grad.dtype), None, None, None


class SyncBatchNorm(_BatchNorm):
    """BatchNorm over the shards of all ranks, as if one device had the whole minibatch; also on CPUs.

    In training all ranks of the group call it together, forward and backward. Shards may be uneven, or empty on some
    ranks. X gets the gradient of the *sum* of the ranks' losses. Weight and bias get those of this rank's shard;
    DistributedDataParallel averages them like all others. The running statistics are the same on all ranks of the
    group. In evaluation, and without a process group, it is torch's BatchNorm.

    A step has three all-reduces per layer, two of them in the forward pass: 1 + 4c numbers of 64 bits. PyTorch has
    two collectives per layer.

    Args:
        num_features: c, the number of channels of X [b, c, ...].
        eps, momentum, affine, track_running_stats: as for torch.nn.BatchNorm2d.
        process_group: the ranks that share statistics; by default all.

    Raises:
        TypeError: In a forward pass, if X does not hold real floating-point numbers.
        ValueError: In a forward pass, if X is not [b, c, ...] with c = num_features; in training, if all ranks
            together have fewer than two values per channel.
        RuntimeError: In training, inside a replica of DataParallel: replicas take turns where there are more of them
            than cores, so none can wait for the others.

    Example:
        >>> net, same = SyncBatchNorm(3), nn.BatchNorm1d(3)  # one process has the whole minibatch
        >>> X = torch.rand(8, 3)
        >>> torch.allclose(net(X), same(X), atol=1e-6)
        True
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: "dist.ProcessGroup | None" = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device=device, dtype=dtype)
        self.process_group = process_group

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        self._check_input_dim(X)
        if not self.training:
            batch_statistics = self.running_mean is None
            return F.batch_norm(
                X, self.running_mean, self.running_var, self.weight, self.bias, batch_statistics, 0.0, self.eps
            )
        if in_replica() or getattr(self, "_is_replica", False):  # torch's name for a replica of nn.DataParallel
            raise RuntimeError(
                "SyncBatchNorm: expected one process per device, got a replica of DataParallel. Wrap the network in "
                "DistributedDataParallel on ranks, or use it unwrapped on one device."
            )
        moments = moments_over_ranks(X.detach(), self.process_group)
        self._track(*moments)
        X_hat = Normalise.apply(X, moments, self.eps, self.process_group)
        if self.weight is not None:
            X_hat = X_hat * per_channel(self.weight, X)
        if self.bias is not None:  # BatchNorm2d(c, bias=False) of a newer PyTorch has a scale only
            X_hat = X_hat + per_channel(self.bias, X)
        return X_hat.to(X.dtype)

    @torch.no_grad()
    def _track(self, n: torch.Tensor, mean: torch.Tensor, var: torch.Tensor) -> None:
        """Move the running statistics towards those of the minibatch; the variance that is kept is the unbiased one."""
        if n.item() < 2:
            raise ValueError(f"X: expected two or more values per channel on all ranks together, got {int(n.item())}.")
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        self.num_batches_tracked.add_(1)
        factor = 1 / self.num_batches_tracked.item() if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), factor)
        self.running_var.lerp_((var * n / (n - 1)).to(self.running_var.dtype), factor)

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2 or input.shape[1] != self.num_features:
            raise ValueError(f"X: expected [b, {self.num_features}, ...], got {list(input.shape)}.")
        if not input.is_floating_point():
            raise TypeError(f"X: expected floating-point numbers, got {input.dtype}. Convert them: X.float().")


def convert_sync_batchnorm(net: nn.Module, process_group: "dist.ProcessGroup | None" = None) -> nn.Module:
    """Replace each BatchNorm layer of `net`, in place, by a SyncBatchNorm with the same parameters; return the network.

    Parameters and buffers are the same tensors, so an optimizer may exist already. A layer with several names stays
    one layer. Hooks of the replaced layers are lost, as in torch's function of this name. A `net` that is itself a
    BatchNorm is not changed: use what is returned.

    Args:
        net: any module; torch's SyncBatchNorm is replaced as well.
        process_group: the ranks that share statistics; by default all.

    Raises:
        TypeError: if `net` is not an nn.Module.
        ValueError: if a BatchNorm is lazy: call the network once, before it is converted.
    """
    if not isinstance(net, nn.Module):
        raise TypeError(f"net: expected an nn.Module, got {type(net).__name__}.")
    made: dict[nn.Module, SyncBatchNorm] = {}
    for name, layer in list(net.named_modules(remove_duplicate=False)):
        if isinstance(layer, _BatchNorm) and not isinstance(layer, SyncBatchNorm):
            if layer not in made:
                made[layer] = _synchronised(layer, name, process_group)
            if name:
                net.set_submodule(name, made[layer])
    return made.get(net, net)


def _synchronised(layer: _BatchNorm, name: str, process_group: "dist.ProcessGroup | None") -> SyncBatchNorm:
    tensors = {**layer._parameters, **layer._buffers}
    if any(is_lazy(tensor) for tensor in tensors.values() if tensor is not None):
        raise ValueError(f"net: expected initialised layers, got {name or 'a lazy one'}. Call the network once, first.")
    new = SyncBatchNorm(
        layer.num_features, layer.eps, layer.momentum, layer.affine, layer.track_running_stats, process_group
    )
    for key, tensor in tensors.items():
        setattr(new, key, tensor)
    return new.train(layer.training)
