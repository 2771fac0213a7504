"""Cases, results and mistakes: what is judged, whatever an answer does."""

import dataclasses
import functools

import pytest
import torch

from d2lite.exercises import Exercise, Mistake, Unfit
from d2lite.exercises.judge import judge
from d2lite.exercises.run_cases import run_cases
from d2lite.replica_threads import parallel_apply

DOUBLE = Exercise(
    name="9.1",
    title="Twice a number",
    solution=lambda x: 2 * x,
    cases=lambda: {f"x = {x}": (x,) for x in (1, 2, 5)},
    mistakes=(
        Mistake(lambda x: x * x, "it is the square.", "Try 5."),
        Mistake(lambda x: x + 2, "2 is added.", "Try 5."),
    ),
    think="Add it to itself.",
)


def scored(answer, exercise=DOUBLE):
    return judge(exercise, [(0, result) for result in run_cases(exercise, answer)])


def test_the_result_of_each_case_comes_in_order():
    found = list(run_cases(DOUBLE, lambda x: x + x))
    assert [(o.case, o.right, o.got) for o in found] == [
        ("x = 1", True, "2"),
        ("x = 2", True, "4"),
        ("x = 5", True, "10"),
    ]
    assert scored(lambda x: x + x).solved


def test_a_mistake_fits_if_it_gives_the_same_in_every_case():
    assert scored(lambda x: x**2).wrong == "it is the square."
    assert scored(lambda x: x + 2).wrong == "2 is added."
    mixed = scored(lambda x: x * x if x < 5 else 0)
    assert mixed.wrong == "expected 2, got 1 (case: x = 1)." and mixed.think == DOUBLE.think and mixed.right == 1


def test_mistakes_are_not_made_for_a_right_answer():
    def fail(x):
        raise AssertionError

    assert scored(lambda x: 2 * x, dataclasses.replace(DOUBLE, mistakes=(Mistake(fail, "", ""),))).solved


def test_only_a_part_is_compared_where_a_mistake_says_so():
    pair = dataclasses.replace(
        DOUBLE,
        solution=lambda x: (2 * x, x),
        mistakes=(Mistake(lambda x: (x, None), "the first is not doubled.", "", part=lambda pair: pair[0]),),
    )
    assert scored(lambda x: (x, "anything"), pair).wrong == "the first is not doubled."
    assert scored(lambda x: 7 * x, pair).wrong.startswith("expected (2, 1) (a list), got 7 (a number)")  # has no part


def test_what_an_answer_does_to_its_arguments_does_not_reach_the_next_case():
    change = dataclasses.replace(DOUBLE, solution=sum, cases=lambda: {"[1]": ([1],), "[1, 2]": ([1, 2],)}, mistakes=())

    def clears(numbers):
        total = sum(numbers)
        numbers.clear()
        return total

    assert scored(clears, change).solved


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("no\nluck"), "it raised ValueError: no luck (case: x = 1)."),
        (SystemExit(3), "it raised SystemExit: 3 (case: x = 1)."),
        (GeneratorExit(), "it raised GeneratorExit (case: x = 1)."),
        (MemoryError(), "it needs too much memory (case: x = 1)."),
    ],
)
def test_an_error_is_named_with_its_case(error, said):
    def fails(x):
        raise error

    assert scored(fails).wrong == said


def test_a_mistake_that_raises_fits_an_answer_that_raises_the_same_kind_of_error():
    def divides(x):
        return x / 0

    exercise = dataclasses.replace(DOUBLE, mistakes=(Mistake(divides, "it divides by 0.", ""),))
    assert scored(lambda x: 1 // 0, exercise).wrong == "it divides by 0."


def test_an_interrupt_of_the_notebook_is_no_result():
    def interrupted(x):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(run_cases(DOUBLE, interrupted))


class NotShown:
    """A value whose text cannot be made."""

    def __repr__(self):
        raise RuntimeError


def test_a_result_that_cannot_be_shown_or_is_long():
    assert "something that cannot be shown" in scored(lambda x: NotShown()).wrong
    assert len(scored(lambda x: "long" * 10**6).wrong) < 400


def in_place(answer, n):
    numbers = torch.arange(float(n))
    answer(numbers)
    return numbers


IN_PLACE = dataclasses.replace(
    DOUBLE, solution=lambda t: t.mul_(2), cases=lambda: {str(n): (n,) for n in (1, 3)}, mistakes=(), observe=in_place
)


def test_in_place_needs_no_return():
    def doubles(t):
        t += t.clone()

    assert scored(doubles, IN_PLACE).solved
    assert scored(lambda t: 2 * t, IN_PLACE).wrong == "expected [0, 2, 4], got [0, 1, 2] (case: 3)."


def unpacks(answer, x):
    a, b = answer(x)
    if a == b:
        raise Unfit("both are equal.", "Is one of them smaller?")
    return {"a": a, "b": b}


UNPACKED = dataclasses.replace(DOUBLE, solution=lambda x: (x, -x), mistakes=(), observe=unpacks)


def test_a_result_that_cannot_be_observed_is_shown_and_is_not_an_error_of_the_answer():
    assert scored(lambda x: (x, -x), UNPACKED).solved
    assert scored(lambda x: 10 + x, UNPACKED).wrong.endswith("got 11 (a number) (case: x = 1).")


def test_an_unfit_result_names_what_is_wrong_with_it_also_from_within_a_replica():
    score = scored(lambda x: (x, x), UNPACKED)
    assert (score.wrong, score.think) == ("both are equal. (case: x = 1)", "Is one of them smaller?")

    def in_replica(x):
        def fail():
            raise Unfit("it is unfit.")

        return parallel_apply(fail, ["cpu"])

    assert scored(in_replica).wrong == "it is unfit. (case: x = 1)"


def test_partials_methods_and_objects_are_answers():
    class Times:
        def __init__(self, n):
            self.n = n

        def __call__(self, x):
            return self.n * x

    for answer in (Times(2), Times(2).__call__, functools.partial(lambda n, x: n * x, 2), (2).__mul__):
        assert scored(answer).solved
