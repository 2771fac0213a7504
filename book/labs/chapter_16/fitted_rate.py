"""The rate of a GPU that a published run does not name: the one with which the prediction is what was reported."""

from collections.abc import Callable
from dataclasses import replace

from d2lite.costs.alpha_beta import Device
from d2lite.costs.hardware import find_device

from .mesh_step import MeshStep

__all__ = ["fitted_device"]

LOWEST, PEAK = 1e14, 989e12  # the second one is the peak of an H100 for dense products in bfloat16


def fitted_device(predict: Callable[[Device], MeshStep], reported: float) -> Device:
    """Return the H100 with which `predict` comes to the reported rate of each GPU, in 10^12 operations per second.

    Args:
        predict: predict(device) returns the step with this device.
        reported: the operations that a step needs in theory, by its time and by the number of GPUs.
    """
    low, high = LOWEST, PEAK
    device = find_device("H100, bfloat16, GPT 1.3B")
    for _ in range(60):
        middle = (low + high) / 2
        device = replace(device, flops_per_s=middle)
        low, high = (middle, high) if predict(device).tflops_per_gpu < reported else (low, middle)
    return device
