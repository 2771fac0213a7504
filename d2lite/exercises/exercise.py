"""An exercise: its cases, its solution, and which mistake an answer shows; teachers write their own the same way."""

import functools
import inspect
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from d2lite.exercises.observed import Raised, Unfit, Unusable, alike, observed
from notebook_ranks.shared.checks import instance_of

__all__ = ["Exercise", "Mistake", "Near", "Question", "WrongSpecification"]

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
    """What `check` needs of an exercise: an `Exercise` computes the expected results, a `HandedOut` one has them."""

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


@dataclass(frozen=True, kw_only=True)
class Exercise(Question):
    """A question with everything that is needed to judge an answer.

    Args:
        name: "chapter.number", for example "4.2".
        title: A few words.
        solution: A right answer; on each case it gives what is expected.
        cases: Returns {label: arguments} afresh, because an answer may change its arguments; odd cases included. The
            label is shown: it says what the case is.
        draw: Returns more cases in the same form, from the `random.Random` that it gets. `check` draws new ones each
            time, so that a table of the results that it has shown is no answer.
        mistakes: The typical ones; the first that fits is shown.
        think: How to think, for a wrong answer that none of the mistakes fits.
        observe: Calls an answer with the arguments of a case, and returns what counts: by default what the answer
            returns; where an answer works in place, its arguments afterwards. It may raise `Unfit`.
        world_size: Number of ranks on which cases run; each rank then has to give what the solution gives there.
        limit_s: Seconds for all cases together; by default 5, or 20 for an exercise on several ranks.
        near: near(expected, got) returns True for a number that counts as right, too, such as a rounded one.
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
        """Return what `observe` returns for the solution on this rank; an error is a WrongSpecification."""
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


class WrongSpecification(ValueError):
    """Raised for an exercise that no answer can solve: the specification is wrong, and not the answer."""

    @classmethod
    def of(cls, exercise: Question, case: str, expected: str, got: str) -> "WrongSpecification":
        """Return the error that says what was expected in a case, and what came."""
        return cls(
            f"exercise {exercise.name}, case {case}: expected {expected}, got {got}. The specification is wrong, not "
            "the answer."
        )
