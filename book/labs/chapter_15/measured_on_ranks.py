"""What is measured of a pipeline: its steps, a step of one device, and how long the passes of a rank last."""

from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
import torch.nn.functional as F

from d2lite.profiling import Recorder
from d2lite.trace import Event
from d2lite.transformer import Transformer

from .pipeline import my_stage, run_passes
from .pipeline_schedule import Pass

__all__ = ["mean_pass", "one_device", "record_on_rank", "seconds_of_step"]


def record_on_rank(
    schedule: Callable[[int, int, int], list[Pass]],
    num_microbatches: int,
    batch_size: int,
    sizes: Sequence[int] | None = None,
    num_steps: int = 5,
    width: int = 128,
) -> list[list[Event]]:
    """Return the events of each step of this rank, its waits and its passes; the first step is a warm-up.

    Args:
        schedule: schedule(stage, num_stages, num_microbatches) returns the passes of a stage.
        num_microbatches: into how many the minibatch is cut.
        batch_size: pieces of 64 characters in the minibatch.
        sizes: how many blocks each stage has; None shares them evenly.
        num_steps: how many steps are taken.
        width: of the `Transformer`.
    """
    stage, recorder = my_stage(Transformer(width), sizes=sizes), Recorder(dist.get_rank())
    X, y = torch.randint(0, 96, (2, batch_size, 64))
    passes = schedule(dist.get_rank(), dist.get_world_size(), num_microbatches)
    for _ in range(num_steps):
        dist.barrier()
        recorder.begin()
        run_passes(stage, passes, X, y, num_microbatches, None, recorder)
        recorder.end()
    return recorder.steps


def seconds_of_step(events: Sequence[Event]) -> float:
    """Return how long a step lasts, from the beginning of its first event to the end of its last one."""
    return max(event.end_s for event in events) - min(event.start_s for event in events)


def one_device(batch_size: int, num_steps: int = 5) -> float | None:
    """Return the seconds of the fastest forward and backward pass of one device; the other ranks have nothing to do."""
    if dist.get_rank() > 0:
        return None
    net, recorder, (X, y) = Transformer(), Recorder(), torch.randint(0, 96, (2, batch_size, 64))
    for _ in range(num_steps):
        recorder.begin()
        F.cross_entropy(net(X).flatten(0, 1), y.flatten()).backward()
        recorder.lap("forward and backward")
        recorder.end()
    return min(seconds_of_step(step) for step in recorder.steps[1:])


def mean_pass(events: Sequence[Event], rank: int, kind: str) -> float:
    """Return the mean seconds of a rank's passes of one kind, "forward" or "backward"."""
    seconds = [event.end_s - event.start_s for event in events if (event.rank, event.kind) == (rank, kind)]
    return sum(seconds) / len(seconds)
