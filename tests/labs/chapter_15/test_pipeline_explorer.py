"""The explorer of pipeline schedules: it draws every one of them, and runs ranks only when it is asked to."""

import math

import pytest
import torch.distributed.pipelining.schedules

from d2lite.labs.chapter_15 import (
    TORCH_SCHEDULES,
    PipelineExplorer,
    bubble_formula,
    bubble_of,
    one_f_one_b,
    predict_pipeline,
)
from d2lite.trace import Event


def bars(figure):
    return sum(len(bar.x) for bar in figure.data)


def title(figure):
    return figure.layout.title.text.replace("<br>", " ")  # of two lines


def measured(*names):
    """Return `measure` that gives events of two ranks, and the list of its calls."""
    calls = []

    def measure(schedule, microbatches):
        calls.append((schedule, microbatches))
        return [
            Event(rank=0, kind="forward", name=names[0] if names else "F0", start_s=0.010, end_s=0.011),
            Event(rank=1, kind="wait", name="wait", start_s=0.010, end_s=0.011),
            Event(rank=1, kind="backward", name="B0", start_s=0.011, end_s=0.014),
        ]

    return measure, calls


def test_it_begins_with_1f1b_predicted():
    shown = PipelineExplorer()
    expected = predict_pipeline([one_f_one_b(stage, 4, 8) for stage in range(4)], 1e-3, 2e-3)
    assert shown.events == expected and bars(shown.figure) == len(expected)
    assert shown.bubble == pytest.approx(bubble_formula(4, 8))
    assert title(shown.figure) == "1F1B, 4 ranks: one step, predicted"
    assert shown.summary.value == (
        "<b>33 ms per step, bubble 27%</b>, predicted. "
        "Microbatches that a rank holds at most, rank by rank: 4 · 3 · 2 · 1."
    )
    assert repr(shown).startswith("PipelineExplorer") and "bubble 27%" in repr(shown)


@pytest.mark.parametrize("name", TORCH_SCHEDULES)
def test_every_schedule_is_drawn(name):
    shown = PipelineExplorer()
    shown.schedule.value = name
    assert len({event.rank for event in shown.events}) == 4 and bars(shown.figure) == len(shown.events)
    assert title(shown.figure) == f"{name}, 4 ranks: one step, predicted"
    assert "predicted" in shown.summary.value and f"bubble {bubble_of(shown.events):.0%}" in shown.summary.value
    busy_s = sum(event.end_s - event.start_s for event in shown.events)
    assert busy_s == pytest.approx(4 * 8 * 3e-3)  # a rank with two stages has half of the cost in each
    shown.forward_ms.value, shown.backward_ms.value = 2, 1
    assert sum(e.end_s - e.start_s for e in shown.events if e.kind == "forward") == pytest.approx(4 * 8 * 2e-3)
    assert sum(e.end_s - e.start_s for e in shown.events if e.kind != "forward") == pytest.approx(4 * 8 * 1e-3)


def test_two_stages_per_rank_hold_half_microbatches():
    shown = PipelineExplorer()
    shown.schedule.value, shown.ranks.value, shown.microbatches.value = "LoopedBFS", 2, 3
    assert "rank by rank: 3 · 3." in shown.summary.value
    shown.schedule.value = "Interleaved1F1B"
    shown.microbatches.value = 4
    held = shown.summary.value.partition("rank by rank: ")[2].rstrip(".").split(" · ")
    assert [2 * float(one) for one in held] == [5, 3]


def test_what_pytorch_has_no_schedule_for_is_said():
    shown = PipelineExplorer()
    shown.schedule.value, shown.microbatches.value = "DualPipeV", 3
    assert shown.summary.value.startswith("<b>Not drawn</b>: ") and "microbatches" in shown.summary.value
    assert shown.events == [] and math.isnan(shown.bubble) and bars(shown.figure) == 0
    assert title(shown.figure) == "no schedule for these numbers"
    shown.microbatches.value = 8
    assert bars(shown.figure) > 0 and shown.summary.value.startswith("<b>")
    assert "Not drawn" not in shown.summary.value


def test_a_pytorch_without_schedules_is_said(monkeypatch):
    shown = PipelineExplorer()
    monkeypatch.delattr(torch.distributed.pipelining.schedules, "get_schedule_class")
    shown.schedule.value = "ZBVZeroBubble"
    assert "does not show its pipeline schedules here" in shown.summary.value and shown.events == []
    shown.schedule.value = "GPipe"  # ours
    assert shown.events


def test_without_ranks_there_is_nothing_to_measure():
    shown = PipelineExplorer()
    assert shown.source.options == ("predicted",) and shown.source not in shown.view.children


def test_ranks_run_when_measured_is_chosen_and_not_before():
    measure, calls = measured()
    shown = PipelineExplorer(measure, num_ranks=2)
    shown.ranks.value, shown.microbatches.value, shown.schedule.value = 2, 4, "GPipe"
    assert calls == [] and shown.source in shown.view.children
    shown.source.value = "measured"
    assert calls == [("GPipe", 4)]
    assert [event.name for event in shown.events] == ["F0", "B0"]  # waiting is not drawn
    assert shown.bubble == pytest.approx(1 - 4 / 8)
    assert shown.summary.value == (
        "<b>4 ms per step, bubble 50%</b>, measured. "
        "The costs of a pass are those of the real stages, not the sliders'."
    )
    assert title(shown.figure) == "GPipe, 2 ranks: one step, measured"
    shown.microbatches.value = 5
    assert calls == [("GPipe", 4), ("GPipe", 5)]
    shown.source.value = "predicted"
    shown.microbatches.value = 6
    assert len(calls) == 2 and "predicted" in shown.summary.value


def test_what_the_ranks_cannot_run_is_refused_without_a_run():
    measure, calls = measured()
    shown = PipelineExplorer(measure, num_ranks=3, measurable=["GPipe", "DualPipeV"])
    words = "measured are GPipe and DualPipeV on 3 ranks; everything else is predicted."
    shown.schedule.value, shown.source.value = "GPipe", "measured"
    assert words in shown.summary.value and calls == []
    shown.ranks.value = 3
    assert calls == [("GPipe", 8)]
    shown.schedule.value = "1F1B"
    assert words in shown.summary.value and len(calls) == 1
    shown.schedule.value = "DualPipeV"
    assert calls[1:] == [("DualPipeV", 8)]


def test_what_stands_in_the_way_of_a_measurement_is_said():
    def measure(schedule, microbatches):
        raise ValueError("rank 1 is <b>busy</b>")

    shown = PipelineExplorer(measure, num_ranks=4)
    shown.source.value = "measured"
    assert shown.summary.value == "<b>Not drawn</b>: rank 1 is &lt;b&gt;busy&lt;/b&gt;"


def test_a_label_is_shown_as_it_is_written():
    measure, _ = measured("<b>F0</b>")
    shown = PipelineExplorer(measure, num_ranks=4)
    shown.source.value = "measured"
    assert [text for bar in shown.figure.data for text in bar.text] == ["&lt;b&gt;F0&lt;/b&gt;", "B0"]
    assert "<b>F0" not in shown._draw_static()
