"""Copies of the parameters, slices of the minibatch, and one thread a core."""

from d2lite.parallel import check_devices

__all__ = ["check_batch", "replicate", "split_batch"]


def replicate(params, devices):
    """Return one list of parameters a device, each a fresh copy that wants a gradient.

    Copies share no storage, not even two on one device: `p.to(device)` alone returns the same tensor
    when `p` is there already.
    """
    check_devices(devices)
    return [[p.detach().to(device, copy=True).requires_grad_() for p in params] for device in devices]


def split_batch(X, y, devices):
    """Return X_shards, y_shards: one slice of the minibatch a device, sizes differing by at most one, order kept.

    X is [b, ...], y is [b], on any device. Raises ValueError for lengths that differ or b < len(devices).
    """
    check_batch(X, y, devices)
    k = len(devices)
    X_shards = [shard.to(device) for shard, device in zip(X.tensor_split(k), devices, strict=True)]
    y_shards = [shard.to(device) for shard, device in zip(y.tensor_split(k), devices, strict=True)]
    return X_shards, y_shards


def check_batch(X, y, devices):
    """Raise ValueError unless X and y are equally long and hold an example for each device."""
    check_devices(devices)
    if len(X) != len(y):
        raise ValueError(f"X and y: expected as many labels as examples, got {len(X)} examples and {len(y)} labels.")
    if len(X) < len(devices):
        raise ValueError(
            f"minibatch: expected at least one example for each of {len(devices)} devices, got {len(X)}. "
            "Use fewer devices or a larger batch_size."
        )
