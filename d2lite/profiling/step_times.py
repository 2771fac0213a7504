"""Where the time of a step went, from what a Recorder noted; pure."""

import statistics
from dataclasses import dataclass, replace

from d2lite.profiling.critical_path import cut_waits

__all__ = ["PARTS", "StepTimes", "merged_step", "step_parts", "step_times"]

# what is done -> the part of the step that it counts for; where two things go on at once, the first part has the time
PARTS = ("compute", "data", "communication", "wait")
_PART = {"forward": "compute", "backward": "compute", "update": "compute", "data": "data"}
_PART |= {"all_reduce": "communication", "wait": "wait"}


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
