"""How many CPU cores other programs use while something is measured, on Linux."""

import math
import os
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from d2lite.devices import describe, num_cores
from d2lite.training.run_record import disturbance

__all__ = ["OtherPrograms"]

_PROC = Path("/proc")


class OtherPrograms:
    """Measure how many CPU cores other programs have used, on average, since this object was made.

    This process and those that it has started do not count; the page that shows a notebook does. `cores()` is NaN
    without Linux's /proc, and where this process may use only some of the cores, as in most containers.
    """

    def __init__(self) -> None:
        self._start_s = time.monotonic()
        self._start = _others_s() if num_cores() == os.cpu_count() else math.nan

    def cores(self) -> float:
        """Return the cores that other programs have used on average until now, NaN if that is unknown."""
        elapsed, used_s = time.monotonic() - self._start_s, _others_s() - self._start
        return max(0.0, used_s) / elapsed if elapsed > 0 and not math.isnan(used_s) else math.nan

    def disturbance(self, devices: Sequence[torch.device]) -> str:
        """Return what to say if they have used cores that these devices needed until now, as a panel says it, or ""."""
        return disturbance(self.cores(), len(devices)) if "CPU" in describe(devices) else ""


def _others_s() -> float:
    """Return the seconds that all cores were busy with other programs since the machine was started, or NaN."""
    try:
        return _busy_s() - _family_s()
    except (OSError, ValueError, IndexError):  # no /proc, or a restricted one
        return math.nan


def _busy_s() -> float:
    """Return the seconds that all cores together were busy (user, nice, system, interrupts) since the start."""
    user, nice, system, _, _, irq, soft = (int(word) for word in (_PROC / "stat").read_text().split()[1:8])
    return (user + nice + system + irq + soft) / os.sysconf("SC_CLK_TCK")


def _family_s() -> float:
    """Return the CPU seconds of this process and of all that it has started, those that have ended included."""
    parent, seconds = {}, {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "stat").read_text().rpartition(")")[2].split()  # a name may hold anything
            except (FileNotFoundError, ProcessLookupError):  # it has ended in the meantime
                continue
            pid = int(entry.name)
            parent[pid] = int(words[1])
            seconds[pid] = sum(int(word) for word in words[11:15])  # own and of children that were waited for
    family: set[int] = set()
    children = {os.getpid()}
    while children:
        family |= children
        children = {pid for pid, of in parent.items() if of in family} - family
    return sum(seconds.get(pid, 0) for pid in family) / os.sysconf("SC_CLK_TCK")
