"""What this machine has: GPUs, and the CPU cores that this process may use."""

import functools
import math
import os
from pathlib import Path

import torch

__all__ = ["MAX_RANKS", "num_cores", "num_gpus"]

MAX_RANKS = 64  # on one machine; a larger number is probably a typing error


def num_gpus() -> int:
    """Return the number of CUDA GPUs that torch can use; `CUDA_VISIBLE_DEVICES` limits it."""
    return torch.cuda.device_count()


def num_cores(cgroup: str | os.PathLike[str] = "/sys/fs/cgroup") -> int:
    """Return the number of CPU cores that this process may use: its affinity and the container's quota, at least 1.

    How many threads a rank has is set in `process_group.py`.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, int(min(cores, _quota_in_cores(Path(cgroup)))))


@functools.cache
def _quota_in_cores(cgroup: Path) -> float:
    """Return the cores that cgroup v2 (cpu.max: "quota period") or v1 grants; infinity if there is no limit."""
    try:
        if (cgroup / "cpu.max").exists():
            quota, period = (cgroup / "cpu.max").read_text().split()
        else:
            quota = (cgroup / "cpu/cpu.cfs_quota_us").read_text()
            period = (cgroup / "cpu/cpu.cfs_period_us").read_text()
        return math.ceil(int(quota) / int(period)) if int(quota) > 0 else math.inf
    except (OSError, ValueError):  # no cgroup here, or "max"
        return math.inf
