"""The devices of this machine: its GPUs, or its CPU cores standing in for them."""

import math
import os
from collections import Counter
from pathlib import Path

import torch

from d2lite._checks import positive_int

__all__ = [
    "MAX_REPLICAS",
    "describe",
    "num_cores",
    "num_gpus",
    "synchronize",
    "try_all_gpus",
    "try_gpu",
    "try_gpus",
]

MAX_REPLICAS = 64  # replicas on one machine; more is taken for a slip of the hand


def num_gpus():
    """Return the number of CUDA GPUs that torch can see (`CUDA_VISIBLE_DEVICES` counts)."""
    return torch.cuda.device_count()


def num_cores(cgroup="/sys/fs/cgroup"):
    """Return the number of CPU cores this process may use: affinity and the container's quota, at least 1."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    return max(1, min(cores, _quota_in_cores(Path(cgroup))))


def _quota_in_cores(cgroup):
    """Cores granted by cgroup v2 (cpu.max: "quota period") or v1; infinity where there is no limit."""
    try:
        if (cgroup / "cpu.max").exists():
            quota, period = (cgroup / "cpu.max").read_text().split()
        else:
            quota = (cgroup / "cpu/cpu.cfs_quota_us").read_text()
            period = (cgroup / "cpu/cpu.cfs_period_us").read_text()
        return math.ceil(int(quota) / int(period)) if int(quota) > 0 else math.inf
    except (OSError, ValueError):  # no cgroup here, or "max"
        return math.inf


def try_gpu(i=0):
    """Return GPU `i` if the machine has it, else the CPU."""
    if isinstance(i, bool) or not isinstance(i, int):
        raise TypeError(f"i: expected the index of a GPU (0, 1, ...), got {i!r}.")
    if i < 0:
        raise ValueError(f"i: expected the index of a GPU (0, 1, ...), got {i}.")
    return torch.device("cuda", i) if i < num_gpus() else torch.device("cpu")


def try_all_gpus():
    """Return all GPUs of the machine, or [cpu] where there is none."""
    return [torch.device("cuda", i) for i in range(num_gpus())] or [torch.device("cpu")]


def try_gpus(num_gpus):
    """Return exactly `num_gpus` devices, one a replica.

    Distinct GPUs if there are enough; else the GPUs shared in turn; else the CPU, `num_gpus` times.
    Raises TypeError for what is not an int and ValueError outside 1..MAX_REPLICAS.
    """
    k = positive_int("num_gpus", num_gpus, MAX_REPLICAS, "Each replica is a copy of the model on a GPU or a CPU core.")
    available = try_all_gpus()
    return [available[i % len(available)] for i in range(k)]


def describe(devices):
    """Return the label that goes with every curve and time: "2 replicas on 2 CPU cores"."""
    devices = [torch.device(d) for d in devices]
    if not devices:
        raise ValueError("devices: expected at least one device, got none. Try try_gpus(1).")
    k = len(devices)
    replicas = f"{k} replica" + ("s" if k > 1 else "")
    if all(d.type == "cpu" for d in devices):
        cores = num_cores()
        verb = "on" if k <= cores else ("share" if k > 1 else "shares")
        return f"{replicas} {verb} {_count(min(k, cores), 'CPU core')}"
    names = Counter(_name(d) for d in dict.fromkeys(devices))
    places = " + ".join(f"{n} {name}" for name, n in names.items())
    return f"{replicas} {'on' if k == len(set(devices)) else 'share'} {places}"


def _count(n, noun):
    return f"{n} {noun}" + ("s" if n > 1 else "")


def _name(device):
    if device.type == "cuda" and torch.cuda.is_available():
        return torch.cuda.get_device_name(device)
    return "CPU" if device.type == "cpu" else device.type


def synchronize(devices):
    """Wait until all work queued on `devices` is done; on the CPU there is nothing to wait for."""
    for device in dict.fromkeys(torch.device(d) for d in devices):
        if device.type == "cuda":
            torch.cuda.synchronize(device)
