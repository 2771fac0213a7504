"""Exercises that answer: `check` runs a learner's function on odd cases and says what is wrong."""

from d2lite.exercises.check import all_exercises, check
from d2lite.exercises.exercise import Exercise, Mistake, Unfit
from d2lite.exercises.exhibits import EXHIBITS, UNNAMED, show_changes
from d2lite.exercises.judge import Score

__all__ = [
    "EXHIBITS",
    "Exercise",
    "Mistake",
    "Score",
    "UNNAMED",
    "Unfit",
    "all_exercises",
    "check",
    "show_changes",
]
