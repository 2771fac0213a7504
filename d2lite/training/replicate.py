"""Replicate: copies of the parameters, one for each device."""

from collections.abc import Iterable, Sequence

import torch

from d2lite.devices import check_devices

__all__ = ["replicate"]


def replicate(params: Iterable[torch.Tensor], devices: Sequence[torch.device]) -> list[list[torch.Tensor]]:
    """Return one list of parameters per device of `devices`: fresh copies of `params` that require gradients.

    Copies share no storage, not even two on one device, where `p.to(device)` would return the same tensor.

    Example:
        >>> from d2lite import try_gpus
        >>> two = replicate([torch.tensor([1.0, 2.0])], try_gpus(2))
        >>> two[0][0].data[0] = 100.0
        >>> two[1][0].tolist()
        [1.0, 2.0]
    """
    check_devices(devices)
    params = list(params)  # net.parameters() can be read only once
    return [[p.detach().to(device, copy=True).requires_grad_() for p in params] for device in devices]
