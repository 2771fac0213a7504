"""An exercise: its cases, its solution, and the mistakes that answers show; teachers write their own the same way."""

import contextlib
import functools
import inspect
import random
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from d2lite._checks import instance_of
from d2lite.exercises.compare import is_near, ratio_of, same, shown, shown_apart
from d2lite.run_events import Stopped

__all__ = [
    "CaseResult",
    "Exercise",
    "Mistake",
    "Question",
    "Raised",
    "Unfit",
    "Unusable",
    "WrongSpecification",
    "alike",
    "case_result",
    "errors_named",
    "observed",
    "run_cases",
]

Near = Callable[[Any, Any], bool]


@dataclass(frozen=True)
class Mistake:
    """A typical mistake: a wrong `answer`, and the hint for a learner whose answer gives the same results in all cases.

    `wrong` says what is wrong. `think` says how to think about it, without the answer; it is shown from the second try
    on. An `answer` of None stands for a function that never ends: an endless loop, or a rank that waits in vain.
    With `part`, only part(result) is compared: an answer may be wrong in the first of two numbers that it returns.
    """

    answer: Callable[..., Any] | None
    wrong: str
    think: str
    part: Callable[[Any], Any] | None = None

    @property
    def never_ends(self) -> bool:
        """Whether it stands for a function that never ends."""
        return self.answer is None


class Question:
    """What `check` needs of an exercise: an `Exercise` computes the expected results, a `HandedOut` one has them.

    `near(expected, got)` is whether a number that is not the expected one is as good.
    """

    name: str
    title: str
    think: str
    observe: Callable[..., Any] | None
    near: Near | None
    world_size: int
    limit_s: float
    mistakes: Sequence[Any]  # with .wrong, .think and .never_ends
    cases: Callable[[], Mapping[str, Sequence[Any]]]

    def parameters(self) -> tuple[list[str], int]:
        """Return the names of the parameters that an answer is called with, and how many of them are required."""
        raise NotImplementedError

    def expected(self, label: str, rank: int) -> Any:
        """Return what `observe` gives for a right answer in a case on a rank."""
        raise NotImplementedError

    def mistakes_in(self, label: str, rank: int, got: Any) -> tuple[int, ...]:
        """Return the numbers of the mistakes that give the same as `got` in a case on a rank."""
        raise NotImplementedError

    def with_drawn_cases(self, seed: int) -> "Question":
        """Return the exercise with the drawn cases among its `cases`, last; the same seed draws the same ones."""
        raise NotImplementedError

    def in_form(self, got: Any) -> Any:
        """Return what an answer gave in the form of what is expected."""
        return got


@dataclass(frozen=True)
class Exercise(Question):
    """A question with everything that is needed to judge an answer.

    Args:
        name: "chapter.number", for example "4.2".
        title: A few words.
        solution: A right answer; on each case it gives what is expected.
        cases: Returns {label: arguments} afresh, because an answer may change its arguments; odd cases included. The
            label is shown: it says what the case is.
        draw: Returns more cases in the same form, from the `random.Random` that it gets. `check` draws them anew each
            time, so that a table of the results that it has shown is no answer.
        mistakes: The typical ones; the first that fits is shown.
        think: How to think, for a wrong answer that none of the mistakes fits.
        observe: Calls an answer with the arguments of a case, and returns what counts: by default what the answer
            returns; where an answer works in place, its arguments afterwards. It may raise `Unfit`.
        world_size: Number of ranks on which cases run; each rank then has to give what the solution gives there.
        limit_s: Seconds that all cases may take together. The default is 5 seconds, or 20 for an exercise on several
            ranks.
        near: near(expected, got) is whether a number that is not the expected one counts as right all the same, such as
            a rounded one.
    """

    name: str
    title: str
    solution: Callable[..., Any]
    cases: Callable[[], Mapping[str, Sequence[Any]]]
    mistakes: Sequence[Mistake]
    think: str
    observe: Callable[..., Any] | None = None
    world_size: int = 1
    limit_s: float = 0.0
    draw: Callable[[random.Random], Mapping[str, Sequence[Any]]] | None = None
    near: Near | None = None

    def __post_init__(self) -> None:
        instance_of("name", self.name, str, hint='Write it as a text, for example "4.2".')
        for name in ("solution", "cases"):
            if not callable(getattr(self, name)):
                kind = type(getattr(self, name)).__name__
                raise TypeError(
                    f"{name} of exercise {self.name}: expected a function, got {kind}. Write a lambda or a def."
                )
        if not isinstance(self.mistakes, Sequence) or not all(isinstance(m, Mistake) for m in self.mistakes):
            raise TypeError(
                f"mistakes of exercise {self.name}: expected a tuple of Mistake, got {type(self.mistakes).__name__}. A "
                "tuple of one has a comma at its end: (Mistake(...),)."
            )
        if not self.limit_s:
            object.__setattr__(self, "limit_s", 5.0 if self.world_size == 1 else 20.0)

    def parameters(self) -> tuple[list[str], int]:
        """Return the names of the solution's parameters, and how many of them are required."""
        wanted = [p for p in inspect.signature(self.solution).parameters.values() if p.kind in _POSITIONAL]
        return [p.name for p in wanted], sum(p.default is p.empty for p in wanted)

    def expected(self, label: str, rank: int = 0) -> Any:
        """Return what `observe` returns for the solution, on the rank that calls this.

        Raises:
            WrongSpecification: If it is an error.
        """
        found = observed(self.observe, self.solution, self.cases()[label])
        if isinstance(found, Raised) and not found.in_observe:
            raise WrongSpecification.of(self, label, "a solution that returns", f"{found}")
        if isinstance(found, (Unusable, Unfit, Raised)):
            why = found.why if isinstance(found, Unusable) else f"{found}"
            raise WrongSpecification.of(self, label, "an `observe` that accepts the solution", why)
        return found

    def mistakes_in(self, label: str, rank: int, got: Any) -> tuple[int, ...]:
        """Return the numbers of the mistakes that give the same in a case, on the rank that calls this."""
        found = []
        for i, mistake in enumerate(self.mistakes):
            if mistake.answer is not None:
                rival = observed(self.observe, mistake.answer, self.cases()[label])
                if alike(rival, got, mistake.part):
                    found.append(i)
        return tuple(found)

    def with_drawn_cases(self, seed: int) -> "Exercise":
        """Return the exercise with the drawn cases among its `cases`, last; the same seed draws the same ones."""
        if self.draw is None:
            return self
        return replace(self, cases=functools.partial(_all_cases, self.cases, self.draw, seed), draw=None)


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _all_cases(
    cases: Callable[[], Mapping[str, Sequence[Any]]],
    draw: Callable[[random.Random], Mapping[str, Sequence[Any]]],
    seed: int,
) -> dict[str, Sequence[Any]]:
    return {**cases(), **draw(random.Random(seed))}


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


class WrongSpecification(ValueError):
    """Raised for an exercise that no answer can solve: the specification is wrong, and not the answer."""

    @classmethod
    def of(cls, exercise: Question, case: str, expected: str, got: str) -> "WrongSpecification":
        """Return the error that says what was expected in a case, and what came."""
        return cls(
            f"exercise {exercise.name}, case {case}: expected {expected}, got {got}. The specification is wrong, not "
            "the answer."
        )


@dataclass(frozen=True)
class Raised:
    """What stands for the result of an answer that has raised an error."""

    kind: str
    message: str
    in_observe: bool = False  # `observe` raised it, before it called the answer

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}" if self.message else self.kind


@dataclass(frozen=True)
class CaseResult:
    """The result of one case: whether it was right, what was expected and given, and which mistakes give the same.

    `unfit` and `think` are those of an Unfit result. `nothing` is whether the answer returned None where something was
    expected, and `ratio` what it gave over what was expected, if both are numbers.
    """

    case: str
    right: bool
    expected: str
    got: str
    raised: bool
    alike: tuple[int, ...]
    unfit: str = ""
    think: str = ""
    nothing: bool = False
    ratio: float | None = None


@dataclass(frozen=True)
class Unusable:
    """What stands for a result that `observe` cannot read; `value` is the result, `why` the error of `observe`."""

    value: Any
    why: str = ""


def _call(answer: Callable[..., Any], *args: Any) -> Any:
    return answer(*args)


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
        found = () if late else exercise.mistakes_in(label, rank, got)
        result = case_result(label, expected, got, found, exercise.near)
        is_right = is_right and result.right
        yield result
        if late:
            results[label] = (result, got)
    if late and not is_right:
        for label, (result, got) in results.items():
            yield replace(result, alike=exercise.mistakes_in(label, rank, got))


def case_result(label: str, expected: Any, got: Any, alike: tuple[int, ...], near: Near | None = None) -> CaseResult:
    """Return the result of a case from what was expected and given."""
    if isinstance(got, Unfit):
        return CaseResult(label, False, shown(expected), "", False, alike, got.wrong, got.think)
    if isinstance(got, Raised):
        return CaseResult(label, False, shown(expected), shown(got), True, alike)
    right, given = _equal(expected, got), got.value if isinstance(got, Unusable) else got
    if right or (near is not None and given is got and is_near(expected, got, near)):
        return CaseResult(label, True, shown(expected), shown(given), False, alike)
    nothing = given is None and expected is not None
    texts = shown_apart(expected, given)
    return CaseResult(label, False, *texts, False, alike, nothing=nothing, ratio=ratio_of(expected, given))


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
        return (observe or _call)(watched, *args)
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
        return _equal(rival, got)
    try:
        return same(part(rival), part(got))
    except Exception:  # it has no such part
        return False


def _equal(expected: Any, got: Any) -> bool:
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
