"""PyTorch's schedules as our passes: they can run, hold what PyTorch says, and are those that PyTorch runs."""

import functools

import pytest
import torch
import torch.distributed.pipelining.schedules

from d2lite.labs.chapter_15 import (
    TORCH_SCHEDULES,
    check_schedule,
    gpipe,
    microbatches_held,
    one_f_one_b,
    torch_schedule,
    torch_schedules,
)
from tests.labs.chapter_15.schedules import can_run

SIZES = [(k, m) for k in range(1, 9) for m in (1, 4, 6, 16)]
TWO_STAGES = [name for name, per_rank in TORCH_SCHEDULES.items() if per_rank == 2]
SHOWS_HELD = pytest.mark.skipif(
    not hasattr(torch.distributed.pipelining.schedules, "analyze_pipeline_activation_liveness"),
    reason="this PyTorch does not tell what its schedules hold",
)


@functools.cache
def built(name):
    """Return a list of (k, m, schedule) for the sizes for which PyTorch has this schedule."""
    found = []
    for k, m in SIZES:
        try:
            found.append((k, m, torch_schedule(name, k, m)))
        except ValueError:
            continue
    return found


@pytest.mark.parametrize("name", TORCH_SCHEDULES)
def test_all_of_pytorchs_schedules_can_run(name):
    sizes = set()
    for k, m, schedule in built(name):
        check_schedule(schedule, k * TORCH_SCHEDULES[name], m)
        assert can_run(schedule, k * TORCH_SCHEDULES[name], m)
        assert len(schedule) == k
        assert all(len({one.stage for one in passes}) == TORCH_SCHEDULES[name] for passes in schedule)
        sizes.add((k, m))
    assert {k for k, _ in sizes} == set(range(1, 9)) and len(sizes) >= 13


def test_pytorchs_gpipe_and_1f1b_are_ours():
    for name, ours in {"GPipe": gpipe, "1F1B": one_f_one_b}.items():
        for k, m, schedule in built(name):
            assert schedule == [ours(stage, k, m) for stage in range(k)], (name, k, m)


def held_by_pytorch(name, k, m, passes):
    """The most microbatches that each rank holds at a time, of each of its two stages, by PyTorch's own analysis."""
    from torch.distributed.pipelining.schedules import analyze_pipeline_activation_liveness

    schedule, held = torch_schedules._built(name, k, m), []
    for rank in range(k):
        stages = sorted({one.stage for one in passes[rank]})
        plan = analyze_pipeline_activation_liveness(
            schedule, pp_rank=rank, stage_indices=stages, granularity="stage_microbatch"
        )
        held.append(len(set(plan.slot_by_stage_and_microbatch.values())))
    return held


@SHOWS_HELD
@pytest.mark.parametrize("name", TWO_STAGES)
def test_pytorch_holds_as_many_microbatches(name):
    for k, m, schedule in built(name):
        assert [microbatches_held(passes) for passes in schedule] == held_by_pytorch(name, k, m, schedule), (k, m)


def test_which_numbers_pytorch_has_no_schedule_for():
    with pytest.raises(ValueError, match="microbatches"):
        torch_schedule("1F1B", 4, 3)
    with pytest.raises(ValueError, match="name: expected one of GPipe, 1F1B, .*, got 'Chimera'"):
        torch_schedule("Chimera", 2, 4)


def test_a_pytorch_that_does_not_show_its_schedules(monkeypatch):
    monkeypatch.delattr(torch.distributed.pipelining.schedules, "get_schedule_class")
    with pytest.raises(NotImplementedError) as caught:
        torch_schedule("DualPipeV", 2, 4)
    words = str(caught.value)
    assert words.startswith(f"PyTorch {torch.__version__} does not show its pipeline schedules here (")
    assert "get_schedule_class" in words
    assert words.endswith("PyTorch 2.15 does.")
