"""Wrong and right answers to exercises, as learners write them, the pool of ranks on which they are judged, and the
tests of every chapter's answers.
"""

import contextlib

import pytest

from d2lite.exercises.exercise import outcomes
from d2lite.exercises.judge import judge
from d2lite.exercises.lockstep import WORLD_SIZE
from d2lite.workers.time_limit import quiet_pool
from tests.by_value import by_value

__all__ = ["AnswerTests", "Answers", "scoring"]


class Answers:
    """What the decorators `wrong` and `right` collect, for `pytest.mark.parametrize`."""

    def __init__(self):
        self.all_wrong, self.all_right = [], []

    def wrong(self, name, hint):
        """Collect a wrong answer to exercise `name`, and a part of the hint that it must draw."""
        return lambda fn: self._note(self.all_wrong, fn, name, by_value(fn), hint)

    def right(self, name):
        """Collect a right answer to exercise `name`."""
        return lambda fn: self._note(self.all_right, fn, name, by_value(fn))

    def _note(self, collected, fn, name, *more):
        collected.append(pytest.param((name, *more), id=f"{name}-{fn.__name__}"))
        return fn

    def num_wrong(self, name):
        """Return how many wrong answers to an exercise there are."""
        return sum(case.values[0][0] == name for case in self.all_wrong)


@contextlib.contextmanager
def scoring(exercises):
    """Yield score(name, answer), which judges on one pool of ranks; it starts when the first exercise needs it."""
    workers = quiet_pool(WORLD_SIZE, timeout_s=20)

    def score(name, answer):
        exercise = exercises[name]
        if exercise.world_size == 1:
            return judge(exercise, [(0, outcome) for outcome in outcomes(exercise, answer)])
        return judge(exercise, workers.stream(outcomes, exercise, answer))

    with workers:
        yield score


class AnswerTests:
    """Tests of a chapter's `exercises` and `answers`, which a subclass names; `conftest.py` gives them one by one."""

    def test_a_wrong_answer_draws_its_hint(self, score, wrong_answer):
        name, answer, hint = wrong_answer
        got = score(name, answer)
        assert got.right < got.total and hint in got.wrong
        assert got.think

    def test_a_right_answer_is_right(self, score, right_answer):
        name, answer = right_answer
        assert score(name, answer).solved, score(name, answer)

    def test_the_solution_is_right_and_there_are_five_wrong_answers(self, score, exercise):
        assert score(exercise, self.exercises[exercise].solution).solved
        assert self.answers.num_wrong(exercise) >= 5
