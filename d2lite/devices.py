"""The devices of this machine: its GPUs, or its CPU cores in place of them."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import torch

from notebook_ranks.machine import MAX_RANKS, num_cores, num_gpus
from notebook_ranks.shared.checks import positive_int, whole_number

__all__ = [
    "MAX_REPLICAS", "check_devices", "describe", "num_cores", "num_gpus", "synchronize", "try_all_gpus", "try_gpu",
    "try_gpus",
]  # fmt: skip

MAX_REPLICAS = MAX_RANKS  # replicas on one machine


def try_gpu(i: int = 0) -> torch.device:
    """Return GPU `i` if the machine has it, else the CPU; raises TypeError or ValueError unless i is 0, 1, ..."""
    i = whole_number("i", i, expected="the index of a GPU (0, 1, ...)")
    return torch.device("cuda", i) if i < num_gpus() else torch.device("cpu")


def try_all_gpus() -> list[torch.device]:
    """Return all GPUs of the machine, or [cpu] if it has none."""
    return [torch.device("cuda", i) for i in range(num_gpus())] or [torch.device("cpu")]


def try_gpus(num_gpus: int) -> list[torch.device]:
    """Return exactly `num_gpus` devices, one per replica: 1 to MAX_REPLICAS (64).

    These are distinct GPUs if the machine has enough. With fewer GPUs the list begins again at the first, so that
    several replicas share a GPU. Without a GPU it holds the CPU `num_gpus` times.

    Example:
        >>> len(try_gpus(3))
        3
    """
    k = positive_int("num_gpus", num_gpus, MAX_REPLICAS, "Each replica is a copy of the model on a GPU or a CPU core.")
    available = try_all_gpus()
    return [available[i % len(available)] for i in range(k)]


def describe(devices: Iterable[torch.device | str]) -> str:
    """Return the label of every curve and time, from one device per replica: "2 replicas on 2 CPU cores".

    It says "share" in place of "on" where replicas outnumber GPUs or CPU cores. `devices` must not be empty.

    Example:
        >>> describe(["cpu"])
        '1 replica on 1 CPU core'
    """
    used = [torch.device(device) for device in devices]
    if not used:
        raise ValueError("devices: expected at least one device, got none. Try try_gpus(1).")
    k = len(used)
    replicas = _counted(k, "replica")
    if all(device.type == "cpu" for device in used):
        cores = num_cores()
        return f"{replicas} {'on' if k <= cores else 'share'} {_counted(min(k, cores), 'CPU core')}"
    names = Counter(_name(device) for device in dict.fromkeys(used))
    hardware = " + ".join(f"{n} {name}" for name, n in names.items())
    return f"{replicas} {'on' if k == len(set(used)) else 'share'} {hardware}"


def _counted(n: int, noun: str) -> str:
    return f"{n} {noun}" + ("s" if n > 1 else "")


def _name(device: torch.device) -> str:
    if device.type == "cuda" and torch.cuda.is_available():
        return torch.cuda.get_device_name(device)
    return "CPU" if device.type == "cpu" else device.type


def synchronize(devices: Iterable[torch.device | str]) -> None:
    """Wait until all work queued on `devices` is done; on the CPU there is nothing to wait for."""
    for device in dict.fromkeys(torch.device(device) for device in devices):
        if device.type == "cuda":
            torch.cuda.synchronize(device)


def check_devices(devices: Any) -> None:
    """Raise ValueError if `devices` is empty, TypeError if it is a single device or holds something else."""
    if isinstance(devices, (str, torch.device, int)):
        raise TypeError(f"devices: expected a list of devices, got {devices!r}. Try try_gpus(2).")
    if len(devices) == 0:
        raise ValueError("devices: expected at least one device, got none. Try try_gpus(1).")
    for device in devices:
        if not isinstance(device, (str, torch.device, int)):
            kind = type(device).__name__
            raise TypeError(f"devices: expected a list of devices, got one that holds a {kind}. Try try_gpus(2).")
