"""`check`: run a learner's function on the cases of an exercise, in bounded time, and say what is wrong."""

import importlib
import importlib.util
from collections import Counter
from collections.abc import Callable
from typing import Any

from d2lite._checks import instance_of
from d2lite.exercises.answer import is_stub, wrong_parameters
from d2lite.exercises.bounded import run_bounded
from d2lite.exercises.exercise import Exercise
from d2lite.exercises.judge import Score, judge
from d2lite.ledger import read_ledger, record

__all__ = ["CHAPTERS", "Score", "all_exercises", "check", "find_exercise", "judge"]

CHAPTERS = range(1, 13)
_tries: Counter[str] = Counter()  # wrong tries of each exercise in this process


def check(exercise: str | Exercise, answer: Callable[..., Any]) -> Score:
    """Run `answer` on the cases of an exercise, print the score and what is wrong, and return the score.

    The answer runs in a process of its own (in several, for an exercise on ranks), which has ended when this returns:
    it gets 5 seconds (a few exercises more) and 2 GiB of memory, and some lines of what it prints are shown. The first
    wrong try shows what is wrong, the next ones also how to think. A function that only returns None, or that only
    raises NotImplementedError, is "not attempted". The result goes into the ledger, where what was solved once stays
    solved.

    Args:
        exercise: Its name, for example "4.2", or an `Exercise` of your own.
        answer: The learner's function, uncalled; a method, a partial or another object that can be called is as good.

    Raises:
        ValueError: If there is no exercise of this name.
        TypeError: If the answer is no function.
        OSError: On Windows, for an exercise on several ranks.

    Example:
        >>> def divide_by(num_replicas, batch_size):
        ...     return None
        >>> check("3.2", divide_by).solved
        Exercise 3.2: not attempted. Fill in the function, run its cell, then run this one again.
        False
    """
    found = exercise if isinstance(exercise, Exercise) else find_exercise(exercise)
    if not callable(answer):
        kind = type(answer).__name__
        raise TypeError(f"answer: expected a function, got {kind}. Pass the function itself, uncalled: its name alone.")
    if is_stub(answer):
        score = Score(found.name, 0, 0)
    else:
        score = _score(found, answer)
        _tries[found.name] += not score.solved
        _record(score)
    print(score)
    return score


def _score(exercise: Exercise, answer: Callable[..., Any]) -> Score:
    cases = exercise.cases()
    num_args = len(next(iter(cases.values()))) if exercise.observe is None else None
    if wrong := wrong_parameters(exercise.solution, answer, num_args):
        return Score(exercise.name, 0, len(cases), wrong)
    seen, hung = run_bounded(exercise, answer)
    return judge(exercise, seen, hung, thinks=_tries[exercise.name] > 0)


def _record(score: Score) -> None:
    try:
        before = read_ledger()["exercises"].get(score.name, {})
    except (OSError, ValueError):  # `record` says so
        before = {}
    num_tries = before.get("tries", 0)
    tries = num_tries + 1 if isinstance(num_tries, int) else 1
    if before.get("solved") is True and not score.solved:
        record("exercises", score.name, tries=tries)
    else:
        record("exercises", score.name, solved=score.solved, right=score.right, total=score.total, tries=tries)


def find_exercise(name: str) -> Exercise:
    """Return the book's exercise of this name. Raises ValueError if there is none, TypeError if it is no text."""
    instance_of("exercise", name, str, hint='Write the name as a text, for example "4.2".')
    chapter = name.split(".")[0]
    found = _exercises_of(int(chapter)).get(name) if chapter in map(str, CHAPTERS) else None
    if found is None:
        raise ValueError(f"exercise: expected one of {', '.join(all_exercises())}, got {name!r}.")
    return found


def all_exercises() -> dict[str, Exercise]:
    """Return {name: exercise} of the whole book, in its order."""
    return {name: exercise for chapter in CHAPTERS for name, exercise in _exercises_of(chapter).items()}


def _exercises_of(chapter: int) -> dict[str, Exercise]:
    module = f"d2lite.exercises.chapter_{chapter}"
    if importlib.util.find_spec(module) is None:
        return {}
    found: dict[str, Exercise] = importlib.import_module(module).EXERCISES
    return found
