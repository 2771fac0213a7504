"""Run an answer on the cases of an exercise, one after the other."""

import functools
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import Any

from d2lite.exercises.compare import is_near, ratio_of, shown, shown_apart
from d2lite.exercises.exercise import Near, Question
from d2lite.exercises.observed import Raised, Unfit, Unusable, equal, observed

__all__ = ["CaseResult", "case_result", "run_cases"]


@dataclass(frozen=True, kw_only=True)
class CaseResult:
    """The result of one case: whether it was right, and what was expected and given.

    `fitting_mistakes` are the numbers of the mistakes that give the same. `unfit` and `think` are those of an Unfit
    result. `nothing` is whether the answer returned None where something was expected, and `ratio` what it gave over
    what was expected, if both are numbers.
    """

    case: str
    right: bool
    expected: str
    fitting_mistakes: tuple[int, ...]
    got: str = ""
    raised: bool = False
    unfit: str = ""
    think: str = ""
    nothing: bool = False
    ratio: float | None = None


def run_cases(exercise: Question, answer: Callable[..., Any], rank: int = 0) -> Generator[CaseResult, None, None]:
    """Yield the result of each case, in order. On several ranks every rank calls this, with its number.

    On a single rank the mistakes are run afterwards, and only if a case is wrong: then all results come once more,
    with the mistakes that fit. On several ranks all must do the same, so that their collectives match.
    """
    late = exercise.world_size == 1
    results: dict[str, Any] = {}
    is_right = True
    for label in exercise.cases():
        got = exercise.in_form(observed(exercise.observe, answer, exercise.cases()[label]))
        expected = exercise.expected(label, rank)
        fitting = () if late else exercise.mistakes_in(label, rank, got)
        result = case_result(label, expected, got, fitting, exercise.near)
        is_right = is_right and result.right
        yield result
        if late:
            results[label] = (result, got)
    if late and not is_right:
        for label, (result, got) in results.items():
            yield replace(result, fitting_mistakes=exercise.mistakes_in(label, rank, got))


def case_result(
    label: str, expected: Any, got: Any, fitting_mistakes: tuple[int, ...], near: Near | None = None
) -> CaseResult:
    """Return the result of a case from what was expected and given."""
    result = functools.partial(CaseResult, case=label, fitting_mistakes=fitting_mistakes)
    if isinstance(got, Unfit):
        return result(right=False, expected=shown(expected), unfit=got.wrong, think=got.think)
    if isinstance(got, Raised):
        return result(right=False, expected=shown(expected), got=shown(got), raised=True)
    right, given = equal(expected, got), got.value if isinstance(got, Unusable) else got
    if right or (near is not None and given is got and is_near(expected, got, near)):
        return result(right=True, expected=shown(expected), got=shown(given))
    wanted, found = shown_apart(expected, given)
    nothing = given is None and expected is not None
    return result(right=False, expected=wanted, got=found, nothing=nothing, ratio=ratio_of(expected, given))
