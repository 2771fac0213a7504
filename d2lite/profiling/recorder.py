"""Recorder: a clock for the parts of a step, on CPUs and on GPUs."""

import time

import torch

from d2lite.devices import synchronize
from d2lite.trace import Event

__all__ = ["Recorder"]


class Recorder:
    """Notes what is done in each step, as Events on the clock of this machine, which all its processes share.

    `begin()` a step, then after each thing done `lap(kind)`: it lasted since the lap before. On a GPU, moments are CUDA
    events of its current stream: the GPU waits for them only in `begin` and `end`. `steps` holds a list of Events for
    each step. In a process of its own a recorder is for one rank and one device; with several devices (threads), for
    lane 0, 1, ...
    """

    def __init__(self, rank=0, devices=("cpu",), clock=time.perf_counter):
        self.rank, self.devices, self.clock = rank, [torch.device(device) for device in devices], clock
        self.steps = []

    def begin(self):
        """Begin a step, when the devices have done all that was asked of them; return this moment on each."""
        synchronize(self.devices)
        self._origin_s, self._spans = self.clock(), []
        self._origins = [self.mark(i) for i in range(len(self.devices))]
        self._last = self._origins[0]
        return self._origins

    def mark(self, i=0):
        """Return this moment on the i-th device: seconds, or on a GPU (its number, a CUDA event)."""
        if self.devices[i].type != "cuda":
            return self.clock()
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self.devices[i]))
        return i, event

    def lap(self, kind, name=None):
        """Note that since the last lap `kind` was done; return this moment."""
        start, self._last = self._last, self.mark()
        self.add(kind, name or kind, start, self._last)
        return self._last

    def skip(self, moment):
        """Begin the next lap at `moment`: what was done between it and the last one is noted elsewhere, or nothing."""
        self._last = moment

    def add(self, kind, name, start, end, n_bytes=0, lane=0):
        """Note a span between two moments, from any thread; `lane` is the device's number where there are several."""
        self._spans.append((self.rank + lane, kind, name, start, end, n_bytes))

    def end(self):
        """End the step, when the devices have done all of it."""
        synchronize(self.devices)
        self.steps.append(
            [
                Event(rank, kind, name, self._seconds(start), self._seconds(end), n_bytes)
                for rank, kind, name, start, end, n_bytes in self._spans
            ]
        )

    def _seconds(self, moment):
        if not isinstance(moment, tuple):
            return moment
        i, event = moment
        return self._origin_s + self._origins[i][1].elapsed_time(event) / 1e3
