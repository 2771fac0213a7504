"""Where the time of a step went, computed from the Events of a Recorder; pure."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from d2lite.profiling.critical_path import cut_waits
from d2lite.trace import Event

__all__ = ["STEP_PARTS", "merged_step", "step_parts", "step_times"]

STEP_PARTS = ("compute", "data", "communication", "wait")  # where two overlap, the time counts for the first of them
_PART = {"forward": "compute", "backward": "compute", "update": "compute", "data": "data"}  # kind of Event -> part
_PART |= {"all_reduce": "communication", "wait": "wait"}

_Steps = Sequence[Sequence[Sequence[Event]]]  # [rank][step][i], as Workers.run(record_ddp, ...) returns them


@dataclass(frozen=True)
class StepTimes:
    """Where the time of one rank's steps went: `seconds` is the median time of a step.

    `parts` holds the seconds of STEP_PARTS and of "other", the time that no lap recorded. Each is a mean over the
    middle half of the steps, sorted by their time. Like a median this ignores outliers; unlike medians, the parts add
    up to the mean time of these steps, `middle_s`.
    """

    rank: int
    seconds: float
    middle_s: float
    parts: dict[str, float]
    num_steps: int

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {1e3 * s:.1f}" for name, s in self.parts.items() if name != "other")
        recorded = 1 - self.parts["other"] / self.middle_s
        return f"rank {self.rank}: {1e3 * self.seconds:.1f} ms per step = {parts} ms ({recorded:.0%} of it recorded)"


def merged_step(recorded: _Steps, i: int = -1) -> list[Event]:
    """Return the Events of step i of all ranks, in seconds since its first start, with waiting cut from sending.

    `recorded` holds each rank's `steps`, as Workers.run returns them.
    """
    events = _waits_cut(recorded, i)
    start_s = min(event.start_s for event in events)
    return [replace(e, start_s=e.start_s - start_s, end_s=e.end_s - start_s) for e in events]


def _waits_cut(recorded: _Steps, i: int) -> list[Event]:
    """Return the events of step i of all ranks; waiting is split off as events of its own."""
    return cut_waits([event for steps in recorded for event in steps[i]])


def step_parts(events: Sequence[Event], rank: int) -> dict[str, float]:
    """Return {part: seconds} of one rank; where parts overlap, the time counts for the first of STEP_PARTS."""
    mine = [event for event in events if event.rank == rank]
    edges = sorted({moment for event in mine for moment in (event.start_s, event.end_s)})
    seconds = dict.fromkeys(STEP_PARTS, 0.0)
    for start_s, end_s in zip(edges, edges[1:], strict=False):
        here = {_PART[e.kind] for e in mine if e.kind in _PART and e.start_s <= start_s and end_s <= e.end_s}
        for part in STEP_PARTS:
            if part in here:
                seconds[part] += end_s - start_s
                break
    return seconds


def step_times(recorded: _Steps, warm_up: int = 3) -> list[StepTimes]:
    """Return the StepTimes of each rank, without the first `warm_up` steps; three or more must follow.

    A step lasts until the next one begins, the last step until its last event has ended.
    """
    if min(map(len, recorded)) < warm_up + 3:
        raise ValueError(f"recorded: expected {warm_up} + 3 steps or more of each rank, got {min(map(len, recorded))}.")
    steps = [_waits_cut(recorded, i) for i in range(warm_up, len(recorded[0]))]
    return [_times_of(rank, steps) for rank in sorted({event.rank for event in steps[0]})]


def _times_of(rank: int, steps: list[list[Event]]) -> StepTimes:
    starts = [min(e.start_s for e in events if e.rank == rank) for events in steps]
    ends = [*starts[1:], max(e.end_s for e in steps[-1] if e.rank == rank)]
    timed = []
    for events, start_s, end_s in zip(steps, starts, ends, strict=True):
        parts = step_parts(events, rank)
        timed.append((end_s - start_s, parts | {"other": end_s - start_s - sum(parts.values())}))
    timed.sort(key=lambda step: step[0])
    n = len(timed)
    middle = timed[n // 4 : n - n // 4]
    means = {part: statistics.fmean(parts[part] for _, parts in middle) for part in (*STEP_PARTS, "other")}
    return StepTimes(rank, statistics.median(s for s, _ in timed), statistics.fmean(s for s, _ in middle), means, n)
