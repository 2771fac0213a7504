"""Sums and times."""

import time

from d2lite._checks import positive_int
from d2lite.devices import synchronize

__all__ = ["Accumulator", "Timer"]


class Accumulator:
    """`n` running sums: `add(a, b, ...)` adds to each, `[i]` reads one, `reset()` clears all."""

    def __init__(self, n):
        self.data = [0.0] * positive_int("n", n)

    def add(self, *args):
        """Add one number to each sum, in order; raises ValueError if their count differs."""
        if len(args) != len(self.data):
            raise ValueError(f"add: expected {len(self.data)} numbers, got {len(args)}.")
        self.data = [a + float(b) for a, b in zip(self.data, args, strict=True)]

    def reset(self):
        """Set all sums to zero."""
        self.data = [0.0] * len(self.data)

    def __getitem__(self, index):
        return self.data[index]


class Timer:
    """A stopwatch in seconds that keeps its times and waits for `devices` before it reads the clock.

    A GPU computes after the call that asked for it has returned, so a clock read without waiting
    measures the asking. The watch starts when it is made.
    """

    def __init__(self, devices=None):
        self.devices = list(devices or [])
        self.times = []
        self.start()

    def start(self):
        """Start the watch."""
        synchronize(self.devices)
        self._tik = time.perf_counter()

    def stop(self):
        """Stop the watch, keep the time and return it."""
        synchronize(self.devices)
        self.times.append(time.perf_counter() - self._tik)
        return self.times[-1]

    def avg(self):
        """Return the mean of the times; raises ValueError before the first stop."""
        if not self.times:
            raise ValueError("avg: expected at least one stop() before it, got none.")
        return sum(self.times) / len(self.times)

    def sum(self):
        """Return the sum of the times."""
        return sum(self.times)

    def cumsum(self):
        """Return the list of running sums of the times."""
        total, sums = 0.0, []
        for t in self.times:
            total += t
            sums.append(total)
        return sums
