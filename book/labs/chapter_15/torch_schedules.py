"""The pipeline schedules of PyTorch as lists of passes, without any rank.

PyTorch shows its schedules only through functions that are private (`torch.distributed.pipelining`, names with an
underscore). They are used in this file and nowhere else. A test compares what they say with what PyTorch runs.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from notebook_ranks.shared.checks import one_of, positive_int

from .pipeline_schedule import PASS_KINDS, Pass

__all__ = ["TORCH_SCHEDULES", "torch_schedule"]

# name in torch.distributed.pipelining: stages per rank
TORCH_SCHEDULES = {
    "GPipe": 1,
    "1F1B": 1,
    "Interleaved1F1B": 2,
    "LoopedBFS": 2,
    "InterleavedZeroBubble": 2,
    "ZBVZeroBubble": 2,
    "DualPipeV": 2,
}
_OUR_KINDS = {"FORWARD": "F", "FULL_BACKWARD": "B", "BACKWARD_INPUT": "I", "BACKWARD_WEIGHT": "W"}  # PyTorch's: ours
_MISSING = "PyTorch {version} does not show its pipeline schedules here ({error}). PyTorch 2.15 does."


def torch_schedule(name: str, num_ranks: int, num_microbatches: int) -> list[list[Pass]]:
    """Return the passes of each rank in a schedule of PyTorch, one of TORCH_SCHEDULES.

    Passes that DualPipeV computes at the same time stand one after the other here.

    Raises:
        ValueError: if the schedule is unknown, or PyTorch has none for these numbers.
        TypeError: if a number is no whole number.
        NotImplementedError: if this PyTorch does not show its schedules.
    """
    schedule = _built(name, num_ranks, num_microbatches).pipeline_order
    passes = [list(_passes(schedule[rank])) for rank in range(num_ranks)]
    # The last rank's forward passes of 1F1B are numbered from 1 on in PyTorch 2.15, and run from 0 on.
    return [_renumbered(mine) for mine in passes] if name == "1F1B" else passes


def _built(name: str, num_ranks: int, num_microbatches: int) -> Any:
    """Return PyTorch's schedule object, which stages without layers make possible."""
    one_of("name", name, TORCH_SCHEDULES)
    positive_int("num_ranks", num_ranks)
    positive_int("num_microbatches", num_microbatches)
    try:
        from unittest import mock

        from torch.distributed.pipelining import PipelineStage
        from torch.distributed.pipelining.schedules import get_schedule_class

        stage = mock.create_autospec(PipelineStage, instance=True)
        stage.group_rank, stage.group_size, stage.submod = 0, num_ranks, None
        stage.num_stages = num_ranks * TORCH_SCHEDULES[name]
        stages = stage if TORCH_SCHEDULES[name] == 1 else [stage] * TORCH_SCHEDULES[name]
        return get_schedule_class(name)(stages, num_microbatches)
    except (ImportError, AttributeError, TypeError) as error:
        raise NotImplementedError(_MISSING.format(version=torch.__version__, error=error)) from None


def _passes(actions: Sequence[Any]) -> Iterator[Pass]:
    """Yield our passes of PyTorch's actions: without pauses and sends, and without what belongs to no microbatch."""
    for action in filter(None, actions):
        if action.sub_actions is not None:
            yield from _passes(action.sub_actions)
        elif kind := _OUR_KINDS.get(action.computation_type.name):
            yield Pass(kind, action.stage_index, action.microbatch_index)


def _renumbered(passes: Sequence[Pass]) -> list[Pass]:
    """Return the passes with their microbatches numbered in the order of each kind."""
    counts = dict.fromkeys(PASS_KINDS, 0)
    numbered = []
    for one in passes:
        numbered.append(one._replace(microbatch=counts[one.kind]))
        counts[one.kind] += 1
    return numbered
