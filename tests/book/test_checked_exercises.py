"""The chapters, the answers and the specifications of exercises belong together."""

import ast
import re
from pathlib import Path

import nbformat
import pytest

from d2lite.exercises import all_exercises
from d2lite.exercises.answer import is_stub

BOOK = Path(__file__).parents[2] / "book"
CHAPTERS = sorted(BOOK.glob("[0-9]*.ipynb"))
CHECK = re.compile(r'^check\("(?P<name>[0-9.]+)", (?P<function>\w+)\)$', re.M)


def sources(path):
    """{id: source} of the code cells of a notebook."""
    return {cell.id: cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"}


def checked(path):
    """{name of the exercise: name of the function} of all checks of a notebook."""
    return {m["name"]: m["function"] for source in sources(path).values() for m in CHECK.finditer(source)}


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_every_exercise_is_checked_in_its_chapter_and_in_the_answers(path):
    names = [name for name in all_exercises() if name.startswith(f"{int(path.name[:2])}.")]
    assert len(names) >= 2 and list(checked(path)) == names
    assert checked(BOOK / "solutions" / path.name) == checked(path)


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_what_a_chapter_leaves_to_the_learner_is_a_stub(path):
    cells = sources(path)
    for name, function in checked(path).items():
        names = {}
        stub = cells[f"exercise-{name.split('.')[1]}"]
        (found,) = [
            node for node in ast.parse(stub).body if isinstance(node, ast.FunctionDef) and node.name == function
        ]
        exec(ast.unparse(found), names)
        assert is_stub(names[function]), name
