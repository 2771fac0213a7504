"""What `check` says in a notebook is what the grader gives: one exercise, solved in many styles of a notebook."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from d2lite.exercises import specifications
from d2lite_course.course_folder import GradedExercise
from d2lite_course.grade import _Graded, _scored
from d2lite_course.recording import handed_out_exercises
from d2lite_course.submitted_files import Submission
from packages.d2lite_course.tests.notebooks import notebook
from packages.d2lite_course.tests.sandboxes import BOX, needs_sandbox
from packages.d2lite_course.tests.styles import IMPORT, STYLES, WRONG

pytestmark = [pytest.mark.slow, needs_sandbox]
CASES = STYLES | WRONG
NAMES = {name: f"2.{100 + i}" for i, name in enumerate(CASES)}
# what IPython runs, cell by cell, with the real `check`, in one process; an error in a cell does not end the notebook
CHECKED = """
import json, os, sys, tempfile
from IPython.core.interactiveshell import InteractiveShell
from d2lite.exercises import check
from d2lite.exercises.run_cases import run_cases
found, scores = {}, []
here = sys.modules["d2lite.exercises.check"]
here._record, here.run_bounded = scores.append, lambda *given: ([(0, result) for result in run_cases(*given)], "")
os.chdir(tempfile.mkdtemp())
shell = InteractiveShell.instance()
sys.stdout = sys.stderr
for name, cells in json.load(sys.stdin).items():
    shell.reset(new_session=True)
    sys.path[0] = os.getcwd()
    scores.clear()
    for cell in cells:
        shell.run_cell(cell)
    found[name] = bool(scores) and scores[-1].solved
print(json.dumps(found), file=sys.__stdout__)
"""


@pytest.fixture(scope="module")
def checked(tmp_path_factory):
    """{style: whether `check` says that it is right}."""
    done = subprocess.run(
        [sys.executable, "-c", CHECKED],
        input=json.dumps({name: [IMPORT, *cells] for name, cells in CASES.items()}),
        capture_output=True,
        text=True,
        timeout=1200,
        env=os.environ | {"IPYTHONDIR": str(tmp_path_factory.mktemp("ipython")), "D2LITE_LEDGER": "off"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def graded():
    """{style: what the grader gives}: all notebooks are one submission, each with an exercise of its own."""
    exercise = specifications.find_exercise("2.3").with_drawn_cases(7)
    (key,) = handed_out_exercises([exercise])
    exercises, submission = [], Submission("ann")
    for style, cells in CASES.items():
        name, made = NAMES[style], [IMPORT, *cells]
        place = GradedExercise(name, 10.0, 2, "settings_for", "exercise-3")
        exercises.append(_Graded(place, replace(key, name=name), "", f"{name}.ipynb"))
        text = notebook([(f"c{i}", cell.replace('"2.3"', f'"{name}"')) for i, cell in enumerate(made)])
        submission.add(f"{name}.ipynb", text.encode())
    found = _scored(submission, BOX, exercises)
    assert not found.wrong
    by_name = {entry.name: entry for entry in found.exercises}
    return {style: by_name[name] for style, name in NAMES.items()}


def test_check_calls_these_right_and_those_wrong(checked):
    assert [name for name in STYLES if not checked[name]] == []
    assert [name for name in WRONG if checked[name]] == []


@pytest.mark.parametrize("style", CASES)
def test_the_grader_gives_what_check_said(checked, graded, style):
    entry = graded[style]
    assert not entry.unsure, entry
    assert (entry.points == 10.0) == checked[style], entry
