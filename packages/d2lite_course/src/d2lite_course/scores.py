"""The scores of a submission, as they are kept and shown."""

from dataclasses import dataclass

__all__ = ["ExerciseScore", "SubmissionScore"]


@dataclass(frozen=True, kw_only=True)
class ExerciseScore:
    """The score of one exercise.

    `said` is what `check` says of the answer, its hints included. `notes` are for the teacher. `code` is the answer,
    and `printed` what it printed. `unsure` says why the grader cannot know: then the exercise does not count until
    somebody has looked. `mistake` is what is wrong. All of these hold text of the learner's.
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
    unsure: str = ""
    mistake: str = ""

    @property
    def points_for_now(self) -> float:
        """The points for programs that need a number: all of them if the grader cannot know."""
        return self.of if self.unsure else self.points


@dataclass(frozen=True)
class SubmissionScore:
    """The scores of one submission, and in words what could not be read of it."""

    name: str
    wrong: list[str]
    exercises: list[ExerciseScore]

    @property
    def points(self) -> float:
        """The sum of the points, without those of exercises of which the grader cannot know."""
        return round(sum(exercise.points for exercise in self.exercises if not exercise.unsure), 2)

    @property
    def points_for_now(self) -> float:
        """The sum for programs that need a number: all points of exercises of which the grader cannot know."""
        return round(sum(exercise.points_for_now for exercise in self.exercises), 2)

    @property
    def of(self) -> float:
        """The most points that there are, without those of exercises of which the grader cannot know."""
        return round(sum(exercise.of for exercise in self.exercises if not exercise.unsure), 2)
