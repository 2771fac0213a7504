"""An exercise without the code of its answers: its cases, what is expected in them, and hints, all of it as data.

`d2lite_course` makes it from an `Exercise`, by running the solution and the mistakes once. It keeps what a mistake gave
in each case: an answer with the same results gets the same hint. The file `chapter_5.json` holds it; the functions that
call an answer and read its results (`observe`) are ordinary code, in `observe_5.py` beside it.
"""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from d2lite.costs import Link
from d2lite.exercises.as_data import as_data, from_data
from d2lite.exercises.exercise import Near, Question
from d2lite.exercises.observed import alike

__all__ = ["HandedOut", "Hint", "chapter_as_json", "chapter_from_json"]

FORMAT = "d2lite exercises 1"
_SAME = ("name", "title", "think", "required", "world_size", "limit_s")  # fields with one name here and in the file
OPENED: dict[str, type] = {"Link": Link}  # classes of arguments
Recorded = dict[str, Any]  # of a case: "label", "args", and for each rank "expected" and "mistakes"


@dataclass(frozen=True)
class Hint:
    """The hint of a typical mistake, without the mistake."""

    wrong: str
    think: str
    never_ends: bool = False


@dataclass(frozen=True, kw_only=True)
class HandedOut(Question):
    """An exercise whose expected results are data; it has no solution.

    `recorded` are the cases with their results, `draws` lists of more cases, of which `with_drawn_cases` takes one.
    `names` are the parameters of an answer, of which `required` must be given; `parts` has for some mistakes the
    compared part of a result.
    """

    name: str
    title: str
    think: str
    mistakes: Sequence[Hint]
    recorded: Sequence[Recorded]
    draws: Sequence[Sequence[Recorded]]
    names: Sequence[str]
    required: int
    world_size: int
    limit_s: float
    observe: Callable[..., Any] | None = None
    near: Near | None = None
    parts: Mapping[int, Callable[[Any], Any]] | None = None

    def cases(self) -> dict[str, list[Any]]:
        """Return {label: arguments} afresh."""
        return {case["label"]: [from_data(arg, OPENED) for arg in case["args"]] for case in self.recorded}

    def parameters(self) -> tuple[list[str], int]:
        """Return the names of the parameters of an answer, and how many of them are required."""
        return list(self.names), self.required

    def expected(self, label: str, rank: int = 0) -> Any:
        """Return what is expected in a case on a rank."""
        return from_data(self._case(label)["expected"][rank])

    def mistakes_in(self, label: str, rank: int, got: Any) -> tuple[int, ...]:
        """Return the numbers of the mistakes that gave the same in a case on a rank."""
        rivals, parts = self._case(label)["mistakes"][rank], self.parts or {}
        return tuple(
            i
            for i, (rival, hint) in enumerate(zip(rivals, self.mistakes, strict=True))
            if not hint.never_ends and alike(from_data(rival), got, parts.get(i))
        )

    def with_drawn_cases(self, seed: int) -> "HandedOut":
        """Return the exercise with one of the lists of drawn cases among its `cases`, last."""
        if not self.draws:
            return self
        return replace(self, recorded=[*self.recorded, *random.Random(seed).choice(self.draws)], draws=[])

    def in_form(self, got: Any) -> Any:
        """Return what an answer gave as it comes back from data."""
        return from_data(as_data(got))

    def _case(self, label: str) -> Recorded:
        return next(case for case in self.recorded if case["label"] == label)


def chapter_as_json(chapter: int, exercises: Sequence[HandedOut]) -> str:
    """Return the text of a `chapter_N.json`."""
    entries = [
        {
            **{name: getattr(e, name) for name in _SAME},
            "parameters": list(e.names),
            "mistakes": [vars(hint) for hint in e.mistakes],
            "cases": list(e.recorded),
            "draws": [list(draw) for draw in e.draws],
        }
        for e in exercises
    ]
    return json.dumps({"format": FORMAT, "chapter": chapter, "exercises": entries}, ensure_ascii=False) + "\n"


def chapter_from_json(text: str, observers: ModuleType) -> list[HandedOut]:
    """Return the exercises of a `chapter_N.json`, or raise ValueError; `observers` is the module `observe_N.py`."""
    try:
        read = json.loads(text)
        if read["format"] != FORMAT:
            raise ValueError(f"format {read['format']!r}")
        return [_exercise(entry, observers) for entry in read["exercises"]]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"expected exercises in the format {FORMAT!r}, got {type(error).__name__}: {error}") from error


def _exercise(entry: dict[str, Any], observers: ModuleType) -> HandedOut:
    name = entry["name"]
    return HandedOut(
        **{same: entry[same] for same in _SAME},
        names=entry["parameters"],
        mistakes=tuple(Hint(**hint) for hint in entry["mistakes"]),
        recorded=entry["cases"],
        draws=entry["draws"],
        observe=observers.OBSERVE_OF.get(name),
        near=observers.NEAR_OF.get(name),
        parts=observers.PART_OF.get(name),
    )
