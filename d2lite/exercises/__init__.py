"""Exercises that answer: `check` runs a learner's function on odd cases and says what is wrong."""

from typing import Any

from d2lite.exercises.check import check
from d2lite.exercises.check_replicas import check_replicas
from d2lite.exercises.check_step import check_step
from d2lite.exercises.exercise import Exercise, Mistake, Unfit
from d2lite.exercises.exhibit import DRIFT, LATER, LONG, NOTHING, SHORT, SIZES, Exhibit, Step
from d2lite.exercises.finding import Finding
from d2lite.exercises.judge import Score
from d2lite.exercises.lockstep import NEVER_ENDS, WORLD_SIZE, Lockstep
from d2lite.exercises.pretend_devices import COPIES, PretendDevices, PretendTensor, without_device
from d2lite.exercises.specifications import all_exercises, load

_MUSEUM = {"EXHIBITS", "UNNAMED", "show_changes"}  # of the book's bug_museum.py: loaded at first use

__all__ = [
    "COPIES",
    "DRIFT",
    "EXHIBITS",
    "Exercise",
    "Exhibit",
    "Finding",
    "LATER",
    "LONG",
    "Lockstep",
    "Mistake",
    "NEVER_ENDS",
    "NOTHING",
    "PretendDevices",
    "PretendTensor",
    "SHORT",
    "SIZES",
    "Score",
    "Step",
    "UNNAMED",
    "Unfit",
    "WORLD_SIZE",
    "all_exercises",
    "check",
    "check_replicas",
    "check_step",
    "show_changes",
    "without_device",
]


def __getattr__(name: str) -> Any:
    if name in _MUSEUM:
        return getattr(load("bug_museum"), name)
    raise AttributeError(f"module 'd2lite.exercises' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_MUSEUM})
