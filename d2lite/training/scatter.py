"""Scatter: slices of the minibatch, one for each device; and gather, which joins them again."""

from collections.abc import Sequence
from typing import Any

import torch

from d2lite.devices import check_devices

__all__ = ["check_batch", "gather", "scatter", "split_batch"]


def scatter(tensor: torch.Tensor, devices: Sequence[torch.device]) -> list[torch.Tensor]:
    """Return one slice of `tensor` [b, ...] per device of `devices`, on that device.

    The slices keep the order of the first dimension. Their sizes differ by at most one, and may be 0.

    Example:
        >>> from d2lite import try_gpus
        >>> [shard.tolist() for shard in scatter(torch.arange(5), try_gpus(2))]
        [[0, 1, 2], [3, 4]]
    """
    check_devices(devices)
    return [shard.to(device) for shard, device in zip(tensor.tensor_split(len(devices)), devices, strict=True)]


def gather(shards: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the shards [b_i, ...] as one tensor [sum of b_i, ...] on the device of the first: `scatter` undone."""
    return torch.cat([shard.to(shards[0].device) for shard in shards])


def split_batch(
    X: torch.Tensor, y: torch.Tensor, devices: Sequence[torch.device]
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return X_shards, y_shards: one slice of the minibatch per device of `devices`, cut at the same places.

    `X` [b, ...] and `y` [b] may be on any device. Raises ValueError if b differs, or there are more devices than
    examples.

    Example:
        >>> from d2lite import try_gpus
        >>> X_shards, y_shards = split_batch(torch.zeros(5, 1, 28, 28), torch.arange(5), try_gpus(2))
        >>> [tuple(shard.shape) for shard in X_shards], [shard.tolist() for shard in y_shards]
        ([(3, 1, 28, 28), (2, 1, 28, 28)], [[0, 1, 2], [3, 4]])
    """
    check_batch(X, y, devices)
    return scatter(X, devices), scatter(y, devices)


def check_batch(X: Any, y: Any, devices: Any) -> None:
    """Raise ValueError unless X and y are equally long and hold an example for each device."""
    check_devices(devices)
    if len(X) != len(y):
        raise ValueError(f"X and y: expected as many labels as examples, got {len(X)} examples and {len(y)} labels.")
    if len(X) < len(devices):
        raise ValueError(
            f"minibatch: expected at least one example for each of {len(devices)} devices, got {len(X)}. "
            "Use fewer devices or a larger batch_size."
        )
