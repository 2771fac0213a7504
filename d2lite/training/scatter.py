"""Scatter: slices of the minibatch, one for each device; and gather, which joins them again."""

from collections.abc import Sequence
from typing import Any

import torch

from d2lite.devices import check_devices

__all__ = ["check_batch", "gather", "scatter", "split_batch"]


def scatter(tensor: torch.Tensor, devices: Sequence[torch.device]) -> list[torch.Tensor]:
    """Return one slice of `tensor` per device, on that device.

    Args:
        tensor: [b, ...], on any device.
        devices: one device per slice.

    Returns:
        Slices along the first dimension, in its order. Their sizes differ by at most one, and some are empty if b is
        less than the number of devices.

    Raises:
        ValueError: if there are no devices.
        TypeError: if `devices` is a single device.

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
    """Return X_shards, y_shards: one slice of the minibatch per device, cut at the same places.

    Args:
        X: examples [b, ...], on any device.
        y: labels [b], on any device.
        devices: one device per shard.

    Returns:
        Two lists of slices, each in the order of the minibatch, whose sizes differ by at most one.

    Raises:
        ValueError: if X and y differ in length, there are fewer examples than devices, or there are no devices.
        TypeError: if `devices` is a single device.

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
