"""Tensor parallelism as the appendix of chapter 1 writes it: each device has a part of the outputs of every layer."""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

__all__ = ["forward_in_parts", "network_of", "send"]


def send(tensor: torch.Tensor, device: torch.device | str, ledger: list[int]) -> torch.Tensor:
    """Return a copy of a tensor on a device, and note its bytes."""
    ledger.append(tensor.numel() * tensor.element_size())
    return tensor.to(device, copy=True)


def has_weights(layer: nn.Module) -> bool:
    """Return whether a layer is divided: it is a convolution or a linear layer."""
    return isinstance(layer, (nn.Conv2d, nn.Linear))


def piece(layer: Any, i: int, k: int) -> Any:
    """Return part i of k of a layer: some of its outputs, and all of its inputs."""
    if not has_weights(layer):
        return layer
    part = copy.deepcopy(layer)
    part.weight.data = layer.weight.data.tensor_split(k)[i].clone()
    part.bias.data = layer.bias.data.tensor_split(k)[i].clone()
    return part


def gather_channels(
    parts: Sequence[torch.Tensor], devices: Sequence[torch.device | str], ledger: list[int]
) -> list[torch.Tensor]:
    """Return all parts [b, c_i, ...], joined along their channels, on each device: an all-gather."""
    joined = []
    for device, own in zip(devices, parts, strict=True):
        here = [part if part is own else send(part, device, ledger) for part in parts]
        joined.append(torch.cat(here, dim=1))
    return joined


def network_of(net: nn.Sequential, i: int, k: int) -> nn.Sequential:
    """Return the network of device i of k: a part of each layer."""
    return nn.Sequential(*[piece(layer, i, k) for layer in net])


def forward_in_parts(
    nets: Sequence[nn.Sequential], X: torch.Tensor, devices: Sequence[torch.device | str], ledger: list[int]
) -> list[torch.Tensor]:
    """Return the logits of the minibatch X on each device; `ledger` gets the bytes of each message."""
    parts = [X.to(device, copy=True) for device in devices]
    for number in range(len(nets[0])):  # the number of the layer
        if number > 0 and has_weights(nets[0][number]):
            parts = gather_channels(parts, devices, ledger)
        parts = [net[number](part) for net, part in zip(nets, parts, strict=True)]
    return gather_channels(parts, devices, ledger)
