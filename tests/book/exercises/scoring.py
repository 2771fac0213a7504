"""Right and wrong answers to exercises, as learners write them, and the pool of ranks on which they are judged."""

import contextlib

import pytest

from d2lite.exercises import WORLD_SIZE
from d2lite.exercises.judge import judge
from d2lite.exercises.learner_pool import quiet_pool
from d2lite.exercises.run_cases import run_cases
from d2lite.exercises.specifications import find_exercise
from tests.by_value import by_value

__all__ = ["Answers", "RightAnswers", "WrongAnswers", "scoring"]


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


@contextlib.contextmanager
def scoring():
    """Yield score(name, answer), which judges on one pool of ranks; it starts when the first exercise needs it.

    `score.results` are those of all cases of the last answer.
    """
    workers = quiet_pool(WORLD_SIZE, timeout_s=20)

    def score(name, answer):
        exercise = find_exercise(name).with_drawn_cases(seed=0)
        if exercise.world_size == 1:
            seen = [(0, result) for result in run_cases(exercise, answer)]
        else:
            seen = list(workers.stream(run_cases, exercise, answer))
        score.results = list({(rank, result.case): result for rank, result in seen}.values())
        return judge(exercise, seen)

    with workers:
        yield score


class RightAnswers:
    """Tests of a chapter's `answers`, which a subclass names; `conftest.py` gives the right ones one by one."""

    def test_a_right_answer_is_right(self, score, right_answer):
        name, answer = right_answer
        assert score(name, answer).solved, score(name, answer)


class WrongAnswers:
    """The same for the wrong ones."""

    def test_a_wrong_answer_draws_its_hint(self, score, wrong_answer):
        name, answer, hint = wrong_answer
        got = score(name, answer)
        assert got.right < got.total and hint in got.wrong
        assert got.think
