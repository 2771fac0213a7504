"""The honest timer: where the time of a step went, from what was recorded; pure but for the Recorder's clock."""

import statistics
import time
from dataclasses import dataclass, replace

import torch

from d2lite.devices import synchronize
from d2lite.profiling.critical_path import cut_waits
from d2lite.trace import Event

__all__ = ["PARTS", "Recorder", "StepTimes", "merged_step", "step_parts", "step_times"]

# what is done -> the part of the step that it counts for; where two things go on at once, the first part has the time
PARTS = ("compute", "data", "communication", "wait")
_PART = {"forward": "compute", "backward": "compute", "update": "compute", "data": "data"}
_PART |= {"all_reduce": "communication", "wait": "wait"}


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


@dataclass(frozen=True)
class StepTimes:
    """Where the time of one rank's steps went: `seconds` is the median of a whole step.

    `parts` holds seconds of PARTS and of "other" (what no lap noted), each the mean over the middle half of the steps,
    by their whole time: like a median it does not heed outliers, and unlike medians the parts add up, to `middle_s`.
    """

    rank: int
    seconds: float
    middle_s: float
    parts: dict
    num_steps: int

    def __str__(self):
        shares = ", ".join(f"{name} {1e3 * s:.1f}" for name, s in self.parts.items() if name != "other")
        noted = 1 - self.parts["other"] / self.middle_s
        return f"rank {self.rank}: {1e3 * self.seconds:.1f} ms a step = {shares} ms ({noted:.0%} of it noted)"


def merged_step(recorded, i=-1):
    """Return the Events of the i-th step of all ranks, since its first start, and with waiting apart from sending.

    `recorded` holds each rank's `steps`, as Workers.run returns them.
    """
    events = cut_waits([event for steps in recorded for event in steps[i]])
    start_s = min(event.start_s for event in events)
    return [replace(e, start_s=e.start_s - start_s, end_s=e.end_s - start_s) for e in events]


def step_parts(events, rank):
    """Return {part: seconds} of one rank: each moment counts once, for the first of PARTS that goes on then."""
    mine = [event for event in events if event.rank == rank]
    edges = sorted({moment for event in mine for moment in (event.start_s, event.end_s)})
    seconds = dict.fromkeys(PARTS, 0.0)
    for start_s, end_s in zip(edges, edges[1:], strict=False):
        here = {_PART[e.kind] for e in mine if e.kind in _PART and e.start_s <= start_s and end_s <= e.end_s}
        for part in PARTS:
            if part in here:
                seconds[part] += end_s - start_s
                break
    return seconds


def step_times(recorded, warm_up=3):
    """Return the StepTimes of each rank, the first `warm_up` steps left out.

    A step lasts until the next one begins (the last: until its last event has ended). Raises ValueError for fewer than
    three steps after the warm-up.
    """
    if min(map(len, recorded)) < warm_up + 3:
        raise ValueError(f"recorded: expected {warm_up} + 3 steps or more of each rank, got {min(map(len, recorded))}.")
    num_steps = len(recorded[0])
    merged = [cut_waits([event for steps in recorded for event in steps[i]]) for i in range(warm_up, num_steps)]
    return [_times_of(rank, merged) for rank in sorted({event.rank for event in merged[0]})]


def _times_of(rank, merged):
    starts = [min(e.start_s for e in events if e.rank == rank) for events in merged]
    ends = [*starts[1:], max(e.end_s for e in merged[-1] if e.rank == rank)]
    steps = []
    for events, start_s, end_s in zip(merged, starts, ends, strict=True):
        parts = step_parts(events, rank)
        steps.append((end_s - start_s, parts | {"other": end_s - start_s - sum(parts.values())}))
    steps.sort(key=lambda step: step[0])
    n = len(steps)
    middle = steps[n // 4 : n - n // 4]
    means = {part: statistics.fmean(parts[part] for _, parts in middle) for part in (*PARTS, "other")}
    return StepTimes(rank, statistics.median(s for s, _ in steps), statistics.fmean(s for s, _ in middle), means, n)
