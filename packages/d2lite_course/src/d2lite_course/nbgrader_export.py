"""A course for nbgrader 0.9: its notebooks with nbgrader's metadata, and a configuration that has our grader in it.

nbgrader releases, collects, keeps the marks and writes feedback. It runs no learner's code: its preprocessor `Execute`,
which runs a notebook in a kernel, is replaced by `graded`. That runs the answers in the sandbox of `python -m d2lite
grade`, each in its own bounds, and writes points and words as outputs of the check cells. nbgrader is not imported
here.
"""

import json
import shutil
from pathlib import Path
from typing import Any

from d2lite_course.course_folder import CourseFolder, Notebook, check_calls, read_notebook
from d2lite_course.grade import grade_notebook
from d2lite_course.hand_out import mend_links, write_notebook
from d2lite_course.score_files import notes_on

__all__ = ["export_nbgrader", "graded"]

CONFIG = '''"""nbgrader's configuration of this course, written by `python -m d2lite course OUT --format nbgrader`."""

from functools import partial

from d2lite_course.nbgrader_export import graded

c = get_config()
c.CourseDirectory.course_id = "d2lite"
# the notebooks have no answers that would have to be cleared, and the stubs stay
c.ClearSolutions.enabled = False
# nbgrader's own list with our grader in place of "Execute": no learner's code runs outside of the sandbox
# (sandbox=False runs it with all your rights, where no sandbox works)
c.Autograde.autograde_preprocessors = [
    partial(graded, course={course!r}, sandbox=True),
    "nbconvert.preprocessors.ClearMetadataPreprocessor",
    "nbgrader.preprocessors.LimitOutput",
    "nbgrader.preprocessors.SaveAutoGrades",
    "nbgrader.preprocessors.AssignLatePenalties",
    "nbgrader.preprocessors.CheckCellMetadata",
]
'''
MISSING = "# This cell was not in the submission."


def export_nbgrader(course: CourseFolder) -> Path:
    """Write nbgrader's course folder into a course that was handed out, and return it: `nbgrader` in its folder.

    Each chapter is an assignment, `source/chapter-02` and the like, made anew from the students' book. The cell of a
    stub is nbgrader's solution cell, that of its check a grade cell with the points of `exercises.json`. The
    configuration is written once, so that what the teacher adds there stays; gradebook and submissions are not touched.

    Raises:
        FileNotFoundError: If there is no course, or a chapter of it is missing.
    """
    goal = course.path / "nbgrader"
    for chapter in course.chapters():
        name = course.notebook_of(chapter).name
        place = goal / "source" / f"chapter-{chapter:02}"
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(course.students / "book", place, ignore=shutil.ignore_patterns("*.ipynb", "appendix"))
        points = {g.name: g.points for g in course.graded() if g.chapter == chapter}
        write_notebook(place / name, _with_metadata(read_notebook(course.students / "book" / name), points))
        for page in (*place.rglob("*.ipynb"), *place.rglob("*.md")):
            mend_links(page)
    config = goal / "nbgrader_config.py"
    if not config.exists():
        config.write_text(CONFIG.format(course=str(course.path)), encoding="utf-8")
    return goal


def _with_metadata(notebook: Notebook, points: dict[str, float]) -> Notebook:
    """Return a students' notebook with nbgrader's metadata in the cells of the exercises that have points."""
    stubs, checks = {}, {}
    for name, (_, stub) in check_calls(notebook).items():
        if name in points:
            stubs[stub], checks[f"{stub}-check"] = name, name
    cells = []
    for cell in notebook["cells"]:
        found: dict[str, Any] = {}
        if cell["id"] in stubs:
            found = _metadata(f"answer-{_dashed(stubs[cell['id']])}", solution=True)
        elif cell["id"] in checks:
            name = checks[cell["id"]]
            found = _metadata(_grade_id(name), grade=True, locked=True, points=points[name])
        cells.append({**cell, "metadata": {**cell["metadata"], **found}})
    return {**notebook, "cells": cells}


def _metadata(grade_id: str, **given: Any) -> dict[str, Any]:
    """Return the metadata of a cell in version 3 of nbgrader's schema."""
    plain = {"schema_version": 3, "grade": False, "solution": False, "locked": False, "task": False}
    return {"nbgrader": {**plain, "grade_id": grade_id, **given}}


def _dashed(name: str) -> str:
    return name.replace(".", "-")  # a grade_id has no dot


def _grade_id(name: str) -> str:
    return f"check-{_dashed(name)}"


def graded(notebook: Any, resources: Any, course: str | Path, sandbox: bool = True) -> tuple[Any, Any]:
    """Write points and words into the check cells of a submission: a preprocessor of nbgrader, in place of `Execute`.

    Args:
        notebook: The submission, as a NotebookNode; it is changed.
        resources: nbgrader's; the name of its assignment is that of the chapter.
        course: The folder of the course.
        sandbox: False runs the answers with all rights of the caller.

    Raises:
        ValueError: If the assignment is none of the export, or has no exercise with points in the course.
    """
    assignment = str(resources["nbgrader"]["assignment"])
    number = assignment.removeprefix("chapter-")
    if not number.isdecimal():
        raise ValueError(f"assignment: expected one of the export, such as chapter-02, got {assignment!r}.")
    score = grade_notebook(json.dumps(notebook), course, int(number), sandbox, say=lambda words: None)
    node = type(notebook)
    marks = [cell["metadata"].get("nbgrader", {}) for cell in notebook["cells"]]
    found = {
        mark.get("grade_id"): cell for mark, cell in zip(marks, notebook["cells"], strict=True) if mark.get("grade")
    }
    for exercise in score.exercises:
        name = _grade_id(exercise.name)
        if name not in found:  # a learner has deleted it
            metadata = node(nbgrader=node(_metadata(name, grade=True, locked=True, points=exercise.of)["nbgrader"]))
            found[name] = node(cell_type="code", id=name, metadata=metadata, source=MISSING, execution_count=None)
            notebook["cells"].append(found[name])
        points = exercise.points_for_now / exercise.of * found[name]["metadata"]["nbgrader"]["points"]
        words = "\n".join([exercise.said, *notes_on(exercise), *score.wrong]) + "\n"
        words = words.encode(errors="replace").decode()  # half a character would end the writing of the notebook
        found[name]["outputs"] = [
            node(output_type="stream", name="stdout", text=words),
            node(
                output_type="execute_result",
                execution_count=None,
                metadata=node(),
                data=node({"text/plain": f"{round(points, 2)}"}),
            ),
        ]
    return notebook, resources
