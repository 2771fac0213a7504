"""The result of an answer in one case, or in its place: that it raised an error, or returned what cannot be used.

Results are compared in three ways, each of which uses the one before. `same` compares values. `equal` also compares
what stands for a result: a Raised, an Unfit, an Unusable. `alike` compares an answer with a mistake: if the mistake has
a `part`, only that part of both.
"""

import contextlib
import functools
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

from d2lite.exercises.compare import same
from d2lite.run_events import Stopped

__all__ = ["Raised", "Unfit", "Unusable", "alike", "equal", "errors_named", "observed"]


@dataclass(frozen=True)
class Raised:
    """What stands for the result of an answer that has raised an error."""

    kind: str
    message: str
    in_observe: bool = False  # `observe` raised it, before it called the answer

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}" if self.message else self.kind


@dataclass(frozen=True)
class Unusable:
    """What stands for a result that `observe` cannot read; `value` is the result, `why` the error of `observe`."""

    value: Any
    why: str = ""


class Unfit(Exception):
    """Raised by `observe` for a result that is wrong in a way that it can name: `wrong` is shown, `think` later."""

    def __init__(self, wrong: str, think: str = "") -> None:
        super().__init__(wrong)
        self.wrong, self.think = wrong, think


@contextlib.contextmanager
def errors_named(place: str) -> Generator[None, None, None]:
    """Turn an error of a function that the answer has made into Unfit, which says where it was raised."""
    try:
        yield
    except Unfit:
        raise
    except Exception as error:
        text = str(error).rstrip(".")
        raise Unfit(f"{place} raised {type(error).__name__}: {text}.") from error


def _result_of(answer: Callable[..., Any], *args: Any) -> Any:
    return answer(*args)


def observed(observe: Callable[..., Any] | None, answer: Callable[..., Any], args: Sequence[Any]) -> Any:
    """Return what `observe` returns, or what stands for it: a Raised, an Unfit, or an Unusable result."""
    failed: list[BaseException] = []
    results: list[Any] = []

    @functools.wraps(answer, updated=())
    def watched(*given: Any, **named: Any) -> Any:
        try:
            results.append(answer(*given, **named))
        except BaseException as error:
            failed.append(error)
            raise
        return results[-1]

    try:
        return (observe or _result_of)(watched, *args)
    except (KeyboardInterrupt, Stopped):
        raise
    except BaseException as error:  # sys.exit() included
        if unfit := _unfit_in(error):
            return unfit
        if failed or not results:
            cause = failed[0] if failed else error
            return Raised(type(cause).__name__, str(cause), in_observe=not failed)
        return Unusable(results[-1], str(Raised(type(error).__name__, str(error))))


def _unfit_in(error: BaseException | None) -> Unfit | None:
    """Return the Unfit that an error is, or that caused it in a replica of parallel_apply."""
    for _ in range(10):
        if error is None or isinstance(error, Unfit):
            return error
        error = error.__cause__
    return None


def alike(rival: Any, got: Any, part: Callable[[Any], Any] | None) -> bool:
    """Return whether a mistake and an answer gave the same, or the same `part`."""
    if part is None or _is_mark(got) or _is_mark(rival):
        return equal(rival, got)
    try:
        return same(part(rival), part(got))
    except Exception:  # it has no such part
        return False


def equal(expected: Any, got: Any) -> bool:
    """Return whether two observed results are equal; errors are if they are of one kind."""
    if not (_is_mark(expected) or _is_mark(got)):
        return same(expected, got)
    if type(expected) is not type(got):
        return False
    if isinstance(expected, Raised):
        return bool(expected.kind == got.kind)
    return bool(expected.wrong == got.wrong) if isinstance(expected, Unfit) else same(expected.value, got.value)


def _is_mark(result: Any) -> bool:
    return isinstance(result, (Raised, Unfit, Unusable))
