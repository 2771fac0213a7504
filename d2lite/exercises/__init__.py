"""Exercises that answer: `check` runs a learner's function on odd cases and says what is wrong.

The exercises themselves, their cases, solutions and hints, are the files `chapter_N.py` that `specifications` finds.
"""

from typing import Any

from d2lite.exercises.check import check
from d2lite.exercises.exercise import Exercise, Mistake
from d2lite.exercises.handed_out import HandedOut
from d2lite.exercises.judge import Score
from d2lite.exercises.lockstep import NEVER_ENDS, WORLD_SIZE, Lockstep
from d2lite.exercises.observed import Unfit, errors_named
from d2lite.exercises.pretend_devices import COPIES, PretendDevices, PretendTensor, without_device
from d2lite.exercises.specifications import all_exercises, load

_MUSEUM = {"EXHIBITS", "UNNAMED", "show_changes"}  # of the book's bug_museum.py: loaded at first use

__all__ = [
    "COPIES",
    "EXHIBITS",
    "Exercise",
    "HandedOut",
    "Lockstep",
    "Mistake",
    "NEVER_ENDS",
    "PretendDevices",
    "PretendTensor",
    "Score",
    "UNNAMED",
    "Unfit",
    "WORLD_SIZE",
    "all_exercises",
    "check",
    "errors_named",
    "show_changes",
    "without_device",
]


def __getattr__(name: str) -> Any:
    if name in _MUSEUM:
        return getattr(load("bug_museum"), name)
    raise AttributeError(f"module 'd2lite.exercises' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_MUSEUM})
