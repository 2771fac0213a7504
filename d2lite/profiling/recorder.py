"""Recorder: a clock for the parts of a step, on CPUs and on GPUs."""

import time
from collections.abc import Callable, Iterable

import torch

from d2lite.devices import synchronize
from d2lite.trace import Event

__all__ = ["Moment", "Recorder"]

Moment = float | tuple[int, torch.cuda.Event]  # seconds, or (index of the device, CUDA event)


class Recorder:
    """Record what is done in each step as Events: `begin()`, then `lap(kind)` after each part, then `end()`.

    A lap lasts from the lap before it to now, the first one from `begin`. `steps` holds one list of Events per step.
    Times are seconds on time.perf_counter, which is the same clock in all processes of a machine (Python's
    documentation). On a GPU a moment is a CUDA event on the current stream, and the program waits for the GPU only in
    `begin` and `end`.

    There is a lane per device of `devices`: one in the process of a rank, several where threads compute. Lane i is
    shown as `rank` + i. `clock` returns seconds.

    Example:
        >>> recorder = Recorder()
        >>> start = recorder.begin()
        >>> total = sum(range(1000))
        >>> end_of_forward = recorder.lap("forward")
        >>> recorder.end()
        >>> [(event.rank, event.kind, event.end_s >= event.start_s) for event in recorder.steps[0]]
        [(0, 'forward', True)]
    """

    def __init__(
        self,
        rank: int = 0,
        devices: Iterable[torch.device | str] = ("cpu",),
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.rank, self.devices, self.clock = rank, [torch.device(device) for device in devices], clock
        self.steps: list[list[Event]] = []

    def begin(self) -> list[Moment]:
        """Begin a step when the devices have completed all queued work; return this moment on each device."""
        synchronize(self.devices)
        self._origin_s = self.clock()
        self._spans: list[tuple[int, str, str, Moment, Moment, int]] = []
        self._origins = [self.mark(i) for i in range(len(self.devices))]
        self._last = self._origins[0]
        return self._origins

    def mark(self, i: int = 0) -> Moment:
        """Return this moment on the i-th device: seconds, or on a GPU (i, a CUDA event)."""
        if self.devices[i].type != "cuda":
            return self.clock()
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self.devices[i]))
        return i, event

    def lap(self, kind: str, name: str | None = None) -> Moment:
        """Record that `kind` was done since the last lap; return this moment."""
        start, self._last = self._last, self.mark()
        self.add(kind, name or kind, start, self._last)
        return self._last

    def skip(self, moment: Moment) -> None:
        """Let the next lap start at `moment`, so that the time between the last lap and `moment` is in no lap."""
        self._last = moment

    def add(self, kind: str, name: str, start: Moment, end: Moment, n_bytes: int = 0, lane: int = 0) -> None:
        """Record a span between two moments, from any thread; `lane` is the index of the device among several."""
        self._spans.append((self.rank + lane, kind, name, start, end, n_bytes))

    def end(self) -> None:
        """End the step when the devices have completed all of it, and append its Events to `steps`."""
        synchronize(self.devices)
        events = []
        for rank, kind, name, start, end, n_bytes in self._spans:
            times = {"start_s": self._seconds(start), "end_s": self._seconds(end)}
            events.append(Event(rank=rank, kind=kind, name=name, n_bytes=n_bytes, **times))
        self.steps.append(events)

    def _seconds(self, moment: Moment) -> float:
        if not isinstance(moment, tuple):
            return moment
        i, event = moment
        origin = self._origins[i]
        assert isinstance(origin, tuple)  # both are of the i-th device, a GPU
        return self._origin_s + origin[1].elapsed_time(event) / 1e3
