"""Model parallelism: each device holds some of the layers, and the complete minibatch goes through all of them."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from d2lite.devices import check_devices

__all__ = ["ModelParallel", "check_stages"]


def check_stages(stages: Any, devices: Any) -> None:
    """Raise ValueError or TypeError unless `stages` are one or more modules and `devices` one device for each."""
    check_devices(devices)
    if len(stages) == 0:
        raise ValueError("stages: expected at least one module, got none. One device has one stage: [net].")
    for stage in stages:
        if not isinstance(stage, nn.Module):
            raise TypeError(
                f"stages: expected modules, got {type(stage).__name__}. A function of tensors needs a module around it."
            )
    if len(stages) != len(devices):
        raise ValueError(f"devices: expected {len(stages)} (one per stage), got {len(devices)}.")


class ModelParallel(nn.Module):
    """Run `stages` one after the other, each on a device of its own: naive model parallelism, a pipeline of one batch.

    Each stage gets a copy of the activations of the stage before it. Autograd sends their gradient back the same way,
    so a training loop needs no other change than labels on the last device. Only one device computes at a time.

    Args:
        stages: modules, each of which takes the output of the one before it; each is moved to its device.
        devices: one device per stage. They may be the same device.

    Raises:
        ValueError: if there are no stages, or not as many devices as stages.
        TypeError: if `devices` is a single device, or a stage is not an nn.Module.

    Example:
        >>> stages = [nn.Linear(3, 4), nn.Linear(4, 2)]
        >>> net = ModelParallel(stages, try_gpus(2))
        >>> net(torch.zeros(5, 3)).shape
        torch.Size([5, 2])
    """

    def __init__(self, stages: Sequence[nn.Module], devices: Sequence[torch.device]) -> None:
        super().__init__()
        check_stages(stages, devices)
        self.devices = devices
        self.stages = nn.ModuleList(stage.to(device) for stage, device in zip(stages, devices, strict=True))

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        for stage, device in zip(self.stages, self.devices, strict=True):
            X = stage(X.to(device, copy=True))
        return X
