"""The shortest step of a small pipeline: no schedule is shorter, and some schedule is as short."""

from itertools import product
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from d2lite.labs.chapter_15 import Pass, microbatches_held, one_f_one_b, parse_passes, predict_pipeline, shortest_step
from tests.labs.chapter_15.schedules import random_schedule


def seconds(schedule, forward=1, backward=2):
    return max(event.end_s for event in predict_pipeline(schedule, forward, backward))


def interleavings(stage, m, kinds, most_held):
    """Yield all orders of a rank in which each microbatch goes through `kinds`, and each kind takes them in order."""
    counts = dict.fromkeys(kinds, 0)

    def grow(passes):
        if len(passes) == len(kinds) * m:
            yield passes
        for before, kind in zip((None, *kinds), kinds, strict=False):
            room = counts[before] if before else min(m, counts[kinds[-1]] + most_held)
            if counts[kind] < room:
                counts[kind] += 1
                yield from grow([*passes, Pass(kind, stage, counts[kind] - 1)])
                counts[kind] -= 1

    return list(grow([]))


def shortest_of_all(k, m, most_held, forward, backward, kinds):
    found = []
    for schedule in product(*(interleavings(stage, m, kinds, most_held) for stage in range(k))):
        try:
            found.append(seconds(schedule, forward, backward))
        except ValueError:  # ranks wait for each other
            continue
    return min(found)


@pytest.mark.parametrize(("k", "m"), [(1, 3), (2, 2), (2, 3), (2, 4), (3, 2), (3, 3)])
@pytest.mark.parametrize(("forward", "backward"), [(1, 2), (2, 2), (3, 1)])
def test_it_is_the_shortest_of_all_interleavings(k, m, forward, backward):
    for most_held in range(1, m + 1):
        expected = shortest_of_all(k, m, most_held, forward, backward, "FB")
        assert shortest_step(k, m, most_held, forward, backward) == expected


@pytest.mark.parametrize(("k", "m"), [(1, 2), (2, 2), (2, 3), (3, 2)])
@pytest.mark.parametrize(("forward", "backward"), [(1, 2), (1, 4), (3, 2)])
def test_it_is_the_shortest_of_all_interleavings_of_halves(k, m, forward, backward):
    for most_held in range(1, m + 1):
        expected = shortest_of_all(k, m, most_held, forward, backward, "FIW")
        assert shortest_step(k, m, most_held, forward, backward, split=True) == expected


@given(st.randoms(use_true_random=False), st.integers(1, 3), st.integers(1, 5), st.integers(1, 5), st.booleans())
@settings(max_examples=40)
def test_no_random_schedule_is_shorter(random, k, m, most_held, split):
    shortest = shortest_step(k, m, most_held, split=split)
    for _ in range(20):
        schedule = random_schedule(random, m, [*range(k)], most_held, split=None if split else False)
        assert max(map(microbatches_held, schedule)) <= most_held
        assert seconds(schedule) >= shortest


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_1f1b_is_the_shortest_where_k_microbatches_are_held(k):
    for m in range(1, 7):
        schedule = [one_f_one_b(stage, k, m) for stage in range(k)]
        assert max(map(microbatches_held, schedule)) <= k
        assert shortest_step(k, m, most_held=k) == shortest_step(k, m, most_held=m + k) == seconds(schedule)


def test_halves_make_the_step_shorter_and_a_limit_makes_it_longer():
    assert shortest_step(2, 4, most_held=4) == 15 and shortest_step(2, 4, most_held=1) == 24
    assert shortest_step(2, 4, most_held=4, split=True) == 13  # only the first pass of the last rank is late
    found = [parse_passes(text, i) for i, text in enumerate(2 * ["F0 F1 F2 I0 W0 I1 W1 I2 W2"])]
    found.append(parse_passes("F0 I0 F1 I1 F2 I2 W0 W1 W2", 2))  # three W follow the last I
    assert max(event.end_s for event in predict_pipeline(found)) == 11 == shortest_step(3, 3, most_held=3, split=True)
    for k, m in product((1, 2, 3), (1, 3)):
        steps = {
            (most_held, split): shortest_step(k, m, most_held, split=split)
            for most_held in range(1, m + 1)
            for split in (False, True)
        }
        for (most_held, split), step in steps.items():
            assert step <= steps.get((most_held - 1, split), step) and step <= steps[most_held, False]
            assert step >= 3 * m + k - 1


def test_it_draws_schedules_that_differ():
    drawn = {str(random_schedule(Random(seed), 3, [0, 1])) for seed in range(20)}
    assert len(drawn) == 20


def test_an_odd_backward_pass_has_no_halves():
    with pytest.raises(ValueError, match="backward: expected an even number, which can be split, got 3."):
        shortest_step(2, 2, 2, backward=3, split=True)
    assert shortest_step(1, 2, 2, backward=3) == 8
