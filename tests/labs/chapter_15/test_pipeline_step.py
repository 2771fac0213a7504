"""The predicted step of a pipeline: each pass begins as early as it can, and no earlier; the bubble is the formula."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from d2lite.labs.chapter_15 import (
    Pass,
    bubble_formula,
    bubble_of,
    gpipe,
    microbatches_held,
    needs,
    one_f_one_b,
    parse_passes,
    predict_pipeline,
)
from d2lite.trace import Event
from tests.labs.chapter_15.schedules import random_schedule

seconds = st.floats(1e-3, 1e3)
randoms = st.randoms(use_true_random=False)


@given(st.integers(1, 8), st.integers(1, 16), seconds, seconds)
@settings(max_examples=100)
def test_the_bubble_is_the_formula(k, m, forward_s, backward_s):
    for schedule in (gpipe, one_f_one_b):
        events = predict_pipeline([schedule(stage, k, m) for stage in range(k)], forward_s, backward_s)
        assert math.isclose(bubble_of(events), bubble_formula(k, m), abs_tol=1e-9)
        assert math.isclose(max(event.end_s for event in events), (m + k - 1) * (forward_s + backward_s))


@given(randoms, st.integers(1, 4), st.integers(1, 2), st.integers(1, 4), st.sampled_from([0, 0.5, 7.0]))
@settings(max_examples=100)
def test_a_pass_begins_when_its_rank_is_free_and_what_it_needs_has_arrived(random, k, per_rank, m, send_s):
    num_stages = k * per_rank
    schedule = random_schedule(random, m, random.sample([*range(k)] * per_rank, num_stages))
    forward_s = [random.choice((0.5, 1, 2, 3)) for _ in range(num_stages)]
    backward_s = [random.choice((0.5, 1, 2, 3)) for _ in range(num_stages)]
    events = predict_pipeline(schedule, forward_s, backward_s, send_s)
    at = {event.name: event for event in events}
    assert len(at) == len(events) == sum(map(len, schedule))
    for rank, passes in enumerate(schedule):
        free_s = 0.0
        for one in passes:
            event, ready_s = at[str(one)], [free_s]
            for other in needs(one, num_stages):
                before = at[str(other)] if str(other) in at else at[str(other._replace(kind="I"))]
                ready_s.append(before.end_s + (send_s if before.rank != rank else 0))
            assert event.rank == rank and event.start_s == max(ready_s)
            lasts_s = forward_s[one.stage] if one.kind == "F" else backward_s[one.stage] / {"B": 1}.get(one.kind, 2)
            assert event.end_s == event.start_s + lasts_s
            free_s = event.end_s


def test_the_events_say_what_was_computed():
    events = predict_pipeline([parse_passes("0F0 0I0 0W0 0F1 0B1")], 1, 3, 5)
    assert [(event.rank, event.kind, event.name, event.start_s, event.end_s) for event in events] == [
        (0, "forward", "0F0", 0, 1),
        (0, "backward, input", "0I0", 1, 2.5),
        (0, "backward, weights", "0W0", 2.5, 4),
        (0, "forward", "0F1", 4, 5),
        (0, "backward", "0B1", 5, 8),
    ]
    assert predict_pipeline([]) == []


def test_a_slow_stage_makes_the_others_wait():
    """Three microbatches through a fast stage and one of three times its cost, on paper."""
    schedule = [one_f_one_b(stage, 2, 3) for stage in range(2)]
    events = predict_pipeline(schedule, forward_s=[1, 3], backward_s=[2, 6], send_s=0.5)
    assert [(event.name, event.start_s) for event in events if event.rank == 1] == [
        ("1F0", 1.5), ("1B0", 4.5), ("1F1", 10.5), ("1B1", 13.5), ("1F2", 19.5), ("1B2", 22.5)
    ]  # fmt: skip
    assert [(event.name, event.start_s) for event in events if event.rank == 0] == [
        ("0F0", 0), ("0F1", 1), ("0B0", 11), ("0F2", 13), ("0B1", 20), ("0B2", 29)
    ]  # fmt: skip
    assert math.isclose(bubble_of(events), 1 - (9 + 27) / (2 * 31))


def test_waiting_and_sending_are_not_computing():
    computing = [
        Event(rank=0, kind="forward", name="0F0", start_s=5, end_s=6),
        Event(rank=1, kind="backward", name="1B0", start_s=7, end_s=8),
    ]
    others = [
        Event(rank=0, kind="wait", name="wait", start_s=0, end_s=5),
        Event(rank=2, kind="all_reduce", name="all", start_s=0, end_s=100),
    ]
    assert bubble_of(computing) == bubble_of([*others, *computing]) == pytest.approx(1 - 2 / 6)
    assert bubble_of(computing[:1]) == 0
    for none in ([], others):
        with pytest.raises(ValueError, match="events: expected at least one forward or backward pass, got none."):
            bubble_of(none)


@given(randoms, st.integers(1, 3), st.integers(1, 5))
def test_microbatches_are_held_from_the_forward_pass_to_the_end_of_the_backward_pass(random, k, m):
    for passes in random_schedule(random, m, [*range(k)]):
        ends = {(one.stage, one.microbatch): at for at, one in enumerate(passes) if one.kind in "BW"}
        spans = [(at, ends[one.stage, one.microbatch]) for at, one in enumerate(passes) if one.kind == "F"]
        held = max(sum(first <= at < end for first, end in spans) for at in range(len(passes)))
        assert microbatches_held(passes) == held


def test_gpipe_holds_all_and_1f1b_as_many_as_there_are_stages_from_here_on():
    for k in range(1, 7):
        for m in range(1, 13):
            for stage in range(k):
                assert microbatches_held(gpipe(stage, k, m)) == m
                assert microbatches_held(one_f_one_b(stage, k, m)) == min(k - stage, m)
    assert microbatches_held([]) == 0


ONE = [[Pass("F", 0, 0), Pass("B", 0, 0)]]
WRONG = [
    (lambda: predict_pipeline(ONE, forward_s=0), ValueError, "forward_s: expected a finite number above 0, got 0."),
    (lambda: predict_pipeline(ONE, backward_s=math.nan), ValueError, "backward_s: expected a finite number above 0"),
    (lambda: predict_pipeline(ONE, backward_s=None), TypeError, "backward_s: expected a finite number above 0"),
    (lambda: predict_pipeline(ONE, send_s=-1), ValueError, "send_s: expected a finite number from 0 on, got -1."),
    (
        lambda: predict_pipeline(ONE, backward_s=[1, 2]),
        ValueError,
        r"backward_s: expected one number, or 1 \(one per stage\), got 2\.",
    ),
    (lambda: predict_pipeline(ONE, forward_s=[-1]), ValueError, r"forward_s\[0\]: expected a finite number above 0"),
    (
        lambda: predict_pipeline([parse_passes("0F0 0B0 0F1 0B1"), parse_passes("1F0 1F1 1B0 1B1")]),
        ValueError,
        "No rank can go on",
    ),
    (lambda: bubble_formula(0, 1), ValueError, "num_stages: expected a positive whole number, got 0."),
    (lambda: bubble_formula(1, 2.5), TypeError, "num_microbatches: expected a positive whole number, got 2.5"),
]


@pytest.mark.parametrize(("call", "error", "words"), WRONG)
def test_wrong_input_is_explained(call, error, words):
    with pytest.raises(error, match=words):
        call()
