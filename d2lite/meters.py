"""Accumulator for sums, and a Timer that waits for devices."""

import itertools
import time
from collections.abc import Iterable

import torch

from d2lite.devices import synchronize
from notebook_ranks.shared.checks import positive_int

__all__ = ["Accumulator", "Timer"]


class Accumulator:
    """Keep `n` running sums: `add(a, b, ...)` adds to each, `[i]` reads one, `reset()` sets all to zero.

    Example:
        >>> total = Accumulator(2)  # correct answers, examples
        >>> total.add(200, 256)
        >>> total.add(210, 256)
        >>> total[0], total[1]
        (410.0, 512.0)
    """

    def __init__(self, n: int) -> None:
        self.data = [0.0] * positive_int("n", n)

    def add(self, *args: float | torch.Tensor) -> None:
        """Add one number to each sum, in order; raises ValueError if there are not as many numbers as sums."""
        if len(args) != len(self.data):
            raise ValueError(f"add: expected {len(self.data)} numbers, got {len(args)}.")
        self.data = [a + float(b) for a, b in zip(self.data, args, strict=True)]

    def reset(self) -> None:
        """Set all sums to zero."""
        self.data = [0.0] * len(self.data)

    def __getitem__(self, index: int) -> float:
        return self.data[index]


class Timer:
    """Measure seconds with a stopwatch that waits for `devices` before it reads the clock, and keeps its times.

    A call that starts work on a GPU returns before the GPU has computed. A clock that is read without waiting measures
    only the call. The stopwatch starts when it is made.

    Example:
        >>> from d2lite import try_gpus
        >>> timer = Timer(try_gpus(2))
        >>> for _ in range(3):
        ...     timer.start()
        ...     seconds = timer.stop()
        >>> len(timer.times), timer.sum() >= timer.avg() > 0
        (3, True)
    """

    def __init__(self, devices: Iterable[torch.device | str] | None = None) -> None:
        self.devices = list(devices or [])
        self.times: list[float] = []
        self.start()

    def start(self) -> None:
        """Start the stopwatch."""
        synchronize(self.devices)
        self._tik = time.perf_counter()

    def stop(self) -> float:
        """Stop the stopwatch, keep the time in `times` and return it, in seconds."""
        synchronize(self.devices)
        self.times.append(time.perf_counter() - self._tik)
        return self.times[-1]

    def avg(self) -> float:
        """Return the mean of the times in seconds; raises ValueError before the first stop."""
        if not self.times:
            raise ValueError("avg: expected at least one stop() before it, got none.")
        return sum(self.times) / len(self.times)

    def sum(self) -> float:
        """Return the sum of the times in seconds."""
        return sum(self.times)

    def cumsum(self) -> list[float]:
        """Return the running sums of the times in seconds."""
        return list(itertools.accumulate(self.times))
