"""The scores of a submission, as they are kept and shown."""

from dataclasses import dataclass

__all__ = ["ExerciseScore", "SubmissionScore"]


@dataclass(frozen=True, kw_only=True)
class ExerciseScore:
    """The score of one exercise.

    `said` is what `check` says of the answer, its hints included. `notes` are for the teacher. `code` is the answer,
    and `printed` what it printed. All of these hold text of the learner's.
    """

    name: str
    title: str
    points: float
    of: float
    said: str
    notes: list[str]
    code: str
    printed: str
    file: str


@dataclass(frozen=True)
class SubmissionScore:
    """The scores of one submission, and in words what could not be read of it."""

    name: str
    wrong: list[str]
    exercises: list[ExerciseScore]

    @property
    def points(self) -> float:
        """The sum of the points."""
        return round(sum(exercise.points for exercise in self.exercises), 2)

    @property
    def of(self) -> float:
        """The most points that there are."""
        return round(sum(exercise.of for exercise in self.exercises), 2)
