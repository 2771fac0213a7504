"""Pretend GPUs: a machine without GPUs behaves as if it had k of them; values are real, speed and memory are not.

Tensors stay in the CPU's memory, and their storages carry the device that they would be on. What a real GPU refuses is
refused with PyTorch's own error. Where PyTorch's C++ would ask for a driver, a function of Python takes its place.
"""

from ddp_rehearsal.pretend_gpus.switch import pretend_gpus, pretend_gpus_environment, pretend_visible_gpus

__all__ = ["pretend_gpus", "pretend_gpus_environment", "pretend_visible_gpus"]
