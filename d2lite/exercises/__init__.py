"""Exercises that answer: `check` runs a learner's function on odd cases and says what is wrong."""

from d2lite.exercises.check import all_exercises, check
from d2lite.exercises.check_replicas import check_replicas
from d2lite.exercises.check_step import check_step
from d2lite.exercises.exercise import Exercise, Mistake, Unfit
from d2lite.exercises.exhibit import Exhibit
from d2lite.exercises.exhibits import EXHIBITS, UNNAMED, show_changes
from d2lite.exercises.finding import Finding
from d2lite.exercises.judge import Score

__all__ = [
    "EXHIBITS",
    "Exercise",
    "Exhibit",
    "Mistake",
    "Score",
    "UNNAMED",
    "Unfit",
    "Finding",
    "all_exercises",
    "check",
    "check_replicas",
    "check_step",
    "show_changes",
]
