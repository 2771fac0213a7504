"""A course for otter-grader 7: for each chapter the tests and the configuration that `otter generate` puts into a zip.

otter makes the zip, starts containers and writes Gradescope's results. It runs no learner's code: `OtterPlugin` is
called with the notebook before otter executes it, runs the answers in the sandbox of `python -m d2lite grade`, each in
its own bounds, and returns a notebook with the scores, which otter executes instead. otter is not imported here.
"""

import json
import shutil
from pathlib import Path
from typing import Any

from d2lite_course.course_folder import CourseFolder
from d2lite_course.grade import grade_notebook
from d2lite_course.score_files import notes_on

__all__ = ["OtterPlugin", "export_otter"]

TEST = """from otter.test_files import test_case

OK_FORMAT = False
name = "{test}"
points = {points}


@test_case(points={points})
def {function}(d2lite_scores):
    share, words = d2lite_scores["{test}"]
    assert share == 1, words
"""


def export_otter(course: CourseFolder) -> Path:
    """Write otter's files into a course that was handed out, and return their folder: `otter` in that of the course.

    Each chapter has a folder, `chapter-02` and the like, which is written anew: `otter_config.json`, a file in `tests`
    for each exercise, with the points of `exercises.json`, and in `course` a copy of what the grader reads.

    Raises:
        FileNotFoundError: If there is no course, or a chapter of it is missing.
    """
    goal = course.path / "otter"
    graded = course.graded()
    for chapter in course.chapters():
        place = goal / f"chapter-{chapter:02}"
        shutil.rmtree(place, ignore_errors=True)
        (place / "tests").mkdir(parents=True)
        for exercise in graded:
            if exercise.chapter == chapter:
                test = _test_of(exercise.name)
                text = TEST.format(test=test, points=exercise.points, function=f"test_{exercise.function}")
                (place / "tests" / f"{test}.py").write_text(text, encoding="utf-8")
        kept = CourseFolder(place / "course")
        shutil.copytree(course.teacher, kept.teacher, ignore=shutil.ignore_patterns("__pycache__", ".*", "runs"))
        shutil.copyfile(course.settings_file, kept.settings_file)
        plugin = f"{OtterPlugin.__module__}.{OtterPlugin.__name__}"
        config = {"plugins": [{plugin: {"chapter": chapter, "sandbox": True}}], "show_hidden": True}
        (place / "otter_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    return goal


def _test_of(name: str) -> str:
    return f"exercise-{name.replace('.', '-')}"


class OtterPlugin:
    """A plugin of otter that grades a submission with the kit's grader; its arguments are those of otter's plugins.

    Args:
        submission_path: The submission, in the folder that otter has made; None while it makes the zip.
        submission_metadata: Is not used.
        plugin_config: `chapter`, and `sandbox`: False runs the answers with all rights of the caller.
    """

    def __init__(self, submission_path: str | None, submission_metadata: object, plugin_config: dict[str, Any]) -> None:
        self.submission_path = submission_path
        self.chapter, self.sandbox = int(plugin_config["chapter"]), bool(plugin_config.get("sandbox", True))
        self.shares: dict[str, float] = {}

    def before_execution(self, submission: Any) -> Any:
        """Grade a submission, and return a notebook that defines `d2lite_scores`, {test: (share, words)}.

        Raises:
            ValueError: If there is no submission, or the course is damaged.
            FileNotFoundError: If there is no course in the zip.
            PermissionError: If there is no sandbox here, and it is wanted.
        """
        if self.submission_path is None:
            raise ValueError("submission_path: expected the path of a submission, got None.")
        # not the copy beside the submission, which a learner's archive could have replaced
        course = Path(self.submission_path).parents[1] / "source" / "files" / "course"
        text = json.dumps(submission)
        score = grade_notebook(text, course, self.chapter, self.sandbox, say=lambda words: None)
        found = {}
        for exercise in score.exercises:
            share = self.shares[_test_of(exercise.name)] = exercise.points_for_now / exercise.of
            found[_test_of(exercise.name)] = share, "\n".join([exercise.said, *notes_on(exercise), *score.wrong])
        node = type(submission)
        cell = node(cell_type="code", id="scores", metadata=node(), outputs=[], execution_count=None)
        cell["source"] = f"d2lite_scores = {found!r}"
        return node(cells=[cell], metadata=node(), nbformat=4, nbformat_minor=5)

    def after_grading(self, results: Any) -> None:
        """Give each test the share of its points: otter's own tests pass or fail."""
        for test, share in self.shares.items():
            if test in results.results:
                results.update_score(test, share * results.get_result(test).possible)
