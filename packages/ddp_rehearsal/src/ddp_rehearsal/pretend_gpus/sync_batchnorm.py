"""`nn.SyncBatchNorm` on pretend GPUs: Python in place of the kernels that PyTorch has for GPUs alone."""

import torch

from ddp_rehearsal.pretend_gpus.devices import replace

__all__ = ["pretend_sync_batchnorm"]


def _wide(X: torch.Tensor) -> torch.Tensor:
    """Statistics are computed in 32 bits at least."""
    return X.float() if X.dtype in (torch.float16, torch.bfloat16) else X


def _all_but_channels(X: torch.Tensor) -> list[int]:
    return [0, *range(2, X.dim())]


def _along(values: torch.Tensor, X: torch.Tensor) -> torch.Tensor:
    """Return one value per channel in a shape that is broadcast along X."""
    return values.reshape(1, -1, *[1] * (X.dim() - 2))


def _batch_norm_stats(X: torch.Tensor, eps: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the mean and 1 / standard deviation of each channel of this rank's examples."""
    variance, mean = torch.var_mean(_wide(X), _all_but_channels(X), correction=0)
    return mean, (variance + eps).rsqrt()


def _batch_norm_gather_stats_with_counts(
    X: torch.Tensor,
    means: torch.Tensor,
    invstds: torch.Tensor,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    momentum: float,
    eps: float,
    counts: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the statistics of all ranks together, from those of each rank; means and invstds: (ranks, channels)."""
    n = counts.sum()
    shares = (counts / n)[:, None]
    mean = (shares * means).sum(0)
    variance = (shares * (invstds.pow(-2) - eps + (means - mean) ** 2)).sum(0)
    if running_mean is not None and running_var is not None:
        running_mean.lerp_(mean.to(running_mean.dtype), momentum)
        running_var.lerp_((variance * n / (n - 1)).to(running_var.dtype), momentum)
    return mean, (variance + eps).rsqrt()


def _batch_norm_elemt(
    X: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    mean: torch.Tensor,
    invstd: torch.Tensor,
    eps: float,
) -> torch.Tensor:
    normalised = (_wide(X) - _along(mean, X)) * _along(invstd, X)
    if weight is not None and bias is not None:
        normalised = normalised * _along(weight, X) + _along(bias, X)
    return normalised.to(X.dtype)


def _batch_norm_backward_reduce(
    grad: torch.Tensor,
    X: torch.Tensor,
    mean: torch.Tensor,
    invstd: torch.Tensor,
    weight: torch.Tensor | None,
    of_X: bool,
    of_weight: bool,
    of_bias: bool,
) -> tuple[torch.Tensor, ...]:
    """Return the two sums that the ranks add up, and the gradients of weight and bias."""
    centred = _wide(X) - _along(mean, X)
    total = _wide(grad).sum(_all_but_channels(X))
    total_centred = (_wide(grad) * centred).sum(_all_but_channels(X))
    dtype = total.dtype if weight is None else weight.dtype
    return total, total_centred, (total_centred * invstd).to(dtype), total.to(dtype)


def _batch_norm_backward_elemt(
    grad: torch.Tensor,
    X: torch.Tensor,
    mean: torch.Tensor,
    invstd: torch.Tensor,
    weight: torch.Tensor | None,
    total: torch.Tensor,
    total_centred: torch.Tensor,
    counts: torch.Tensor,
) -> torch.Tensor:
    n = counts.sum()
    scale = invstd if weight is None else invstd * weight
    centred = _wide(X) - _along(mean, X)
    slope = _along(invstd**2 * total_centred / n, X)
    return ((_wide(grad) - _along(total / n, X) - centred * slope) * _along(scale, X)).to(X.dtype)


def pretend_sync_batchnorm() -> None:
    """Put functions with the same contract in place of the five operators that `nn.SyncBatchNorm` calls."""
    functions = {
        "batch_norm_stats": _batch_norm_stats,
        "batch_norm_gather_stats_with_counts": _batch_norm_gather_stats_with_counts,
        "batch_norm_elemt": _batch_norm_elemt,
        "batch_norm_backward_reduce": _batch_norm_backward_reduce,
        "batch_norm_backward_elemt": _batch_norm_backward_elemt,
    }
    replace(functions, torch)
