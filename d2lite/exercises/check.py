"""`check`: run a learner's function on the cases of an exercise, in bounded time, and say what is wrong."""

import functools
import inspect
import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from types import CodeType
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
    it gets 5 seconds, in a few exercises more, on a busy machine up to five times as long, and 2 GiB of memory. The
    first 20 lines that it prints are shown. The first wrong try shows what is wrong, the next ones also how to think. A
    function that only returns None, or only raises NotImplementedError, is "not attempted". The result goes into the
    ledger; what was solved once stays solved.

    Args:
        exercise: Its name, for example "4.2", or an `Exercise` of your own.
        answer: The learner's function, uncalled; a method, a partial or another object that can be called is as good.

    Raises TypeError if the answer is no function, ValueError for an unknown exercise and for one whose specification is
    wrong.

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
    seen, why_missing = run_bounded(exercise, answer)
    return judge(exercise, seen, why_missing, thinks=_tries[exercise.name] > 0)


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
        return code.co_code in _RAISES
    constants = [value for value in code.co_consts if value != function.__doc__ or value is None]
    return constants == [None] and code.co_code in _RETURNS


def _bytecode(*lines: str) -> bytes:
    """Return the bytecode of a function with these lines, as this Python compiles it."""
    module = compile("\n    ".join(["def stub():", *lines]), "stub", "exec")
    return next(code.co_code for code in module.co_consts if isinstance(code, CodeType))


_ENDINGS = ("", "()", '("text")', " from None")  # what may follow the name of the error
_RETURNS = [_bytecode("..."), _bytecode('"""Text."""')]
_RAISES = [_bytecode(*text, "raise NotImplementedError" + end) for text in ([], ['"""Text."""']) for end in _ENDINGS]


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
        called = f"it is called with {_arguments(names[:num_args])}"
        by_name = [p.name for p in given.parameters.values() if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
        if by_name:
            star = f"{_arguments(by_name)} after a *, which can be given by name only"
            return f"it takes {star}, and {called} by position. Remove the *."
        return f"it takes {_arguments(list(given.parameters))}, and {called}."


def _arguments(names: Sequence[str]) -> str:
    return f"{len(names)} argument{'' if len(names) == 1 else 's'}" + (f" ({', '.join(names[:10])})" if names else "")
