"""`check`: run a learner's function on the cases of an exercise, in bounded time, and say what is wrong."""

import functools
import inspect
import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from d2lite.exercises.bounded import run_bounded
from d2lite.exercises.exercise import Question, WrongSpecification
from d2lite.exercises.judge import Score, judge
from d2lite.exercises.specifications import find_exercise
from d2lite.learner_ledger import change
from notebook_ranks.shared.notebook import notebook_shell

__all__ = ["check", "is_stub", "wrong_parameters"]

_tries: Counter[str] = Counter()  # wrong tries of each exercise in this process


def check(exercise: str | Question, answer: Callable[..., Any]) -> Score:
    """Run `answer` on the cases of an exercise, show the score and what is wrong, and return the score.

    The answer runs in a process of its own (in several, for an exercise on ranks), which has ended when this returns:
    it gets 5 seconds, in a few exercises more, and 2 GiB of memory. The first 20 lines that it prints are shown. The
    first wrong try shows what is wrong, the next ones also how to think. A function that only returns None, or that
    only raises NotImplementedError, is "not attempted". The result goes into the ledger, where what was solved once
    stays solved.

    Args:
        exercise: Its name, for example "4.2", or an `Exercise` of your own.
        answer: The learner's function, uncalled; a method, a partial or another object that can be called is as good.

    Raises:
        ValueError: If there is no exercise of this name, or if its specification or the file of its chapter has an
            error.
        FileNotFoundError: If the files of the exercises are not found.
        TypeError: If the answer is no function.
        OSError: On Windows, for an exercise on several ranks.

    Example:
        >>> def divide_by(num_replicas, batch_size):
        ...     return None
        >>> check("3.2", divide_by).solved
        Exercise 3.2: not attempted. Fill in the function, run its cell, then run this one again.
        False
    """
    found = exercise if isinstance(exercise, Question) else find_exercise(exercise)
    if not callable(answer):
        kind = type(answer).__name__
        raise TypeError(f"answer: expected a function, got {kind}. Pass the function itself, uncalled: its name alone.")
    if is_stub(answer):
        score = Score(found.name, 0, 0)
    else:
        score = _score(found.with_drawn_cases(secrets.randbits(32)), answer)
        _tries[found.name] += not score.solved
        _record(score)
    _show(score)
    return score


def _show(score: Score) -> None:
    """Print the score; a notebook shows it as a card, and keeps the same text for pages without HTML."""
    if notebook_shell() is None:
        print(score)
    else:
        from IPython.display import display

        display({"text/html": score._repr_html_(), "text/plain": str(score)}, raw=True)


def _score(exercise: Question, answer: Callable[..., Any]) -> Score:
    cases = exercise.cases()
    if not cases:
        raise WrongSpecification(f"exercise {exercise.name}: expected one case or more, got none.")
    names, required = exercise.parameters()
    for label, args in cases.items():
        num_args = len(args) if exercise.observe is None else None
        solution = getattr(exercise, "solution", None)
        if num_args is not None and solution and wrong_parameters(names, solution, num_args):
            raise WrongSpecification.of(exercise, label, "as many arguments as the solution takes", f"{num_args}")
        if wrong := wrong_parameters(names, answer, required if num_args is None else num_args):
            return Score(exercise.name, 0, len(cases), wrong)
    seen, hung = run_bounded(exercise, answer)
    return judge(exercise, seen, hung, thinks=_tries[exercise.name] > 0)


def _record(score: Score) -> None:
    def changed(before: dict[str, Any]) -> dict[str, Any]:
        num_tries = before.get("tries", 0)
        tries = num_tries + 1 if isinstance(num_tries, int) else 1
        if before.get("solved") is True and not score.solved:
            return {"tries": tries}
        return {"solved": score.solved, "right": score.right, "total": score.total, "tries": tries}

    change("exercises", score.name, changed)


def is_stub(answer: Callable[..., Any]) -> bool:
    """Return whether a function does nothing but return None or raise NotImplementedError, as a stub does."""
    function = _function(answer)
    code = getattr(function, "__code__", None)
    if code is None:
        return False
    if code.co_names == ("NotImplementedError",):
        return code.co_code in [stub.__code__.co_code for stub in _RAISES]
    constants = [value for value in code.co_consts if value != function.__doc__ or value is None]
    return constants == [None] and code.co_code in [stub.__code__.co_code for stub in _RETURNS]


def _empty(): ...  # type: ignore[no-untyped-def]


def _documented():  # type: ignore[no-untyped-def]
    """Do nothing."""


def _raises_class():  # type: ignore[no-untyped-def]
    raise NotImplementedError


def _raises_text():  # type: ignore[no-untyped-def]
    raise NotImplementedError("text")


def _documented_text():  # type: ignore[no-untyped-def]
    """Raise an error with a text."""
    raise NotImplementedError("text")


def _raises_instance():  # type: ignore[no-untyped-def]
    raise NotImplementedError()


def _documented_instance():  # type: ignore[no-untyped-def]
    """Raise an error."""
    raise NotImplementedError()


def _raises_from_none():  # type: ignore[no-untyped-def]
    raise NotImplementedError from None


# compiled by the Python that runs, their bytecode is that of a learner's stub
_RETURNS = (_empty, _documented)
_RAISES = (_raises_class, _raises_instance, _documented_instance, _raises_from_none, _raises_text, _documented_text)


def _function(answer: Any) -> Any:
    """Return the function inside of a method, a partial, a decorated function or an object with __call__."""
    answer = inspect.unwrap(answer.func if isinstance(answer, functools.partial) else answer)
    if not (inspect.isroutine(answer) or inspect.isclass(answer)):
        answer = answer.__call__
    return getattr(answer, "__func__", answer)


def wrong_parameters(names: Sequence[str], answer: Callable[..., Any], num_args: int) -> str:
    """Return in words why `answer` cannot be called with the first `num_args` of the `names`; "" if it can."""
    try:
        given = inspect.signature(answer)
    except ValueError:  # some functions of C code have no signature
        return ""
    try:
        given.bind(*range(num_args))
        return ""
    except TypeError:
        called = f"it is called with {_count(names[:num_args])}"
        by_name = [p.name for p in given.parameters.values() if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
        if by_name:
            star = f"{_count(by_name)} after a *, which can be given by name only"
            return f"it takes {star}, and {called} by position. Remove the *."
        return f"it takes {_count(list(given.parameters))}, and {called}."


def _count(names: Sequence[str]) -> str:
    return f"{len(names)} argument{'' if len(names) == 1 else 's'}" + (f" ({', '.join(names[:10])})" if names else "")
