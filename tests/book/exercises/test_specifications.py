"""Every exercise of the book, from its specification: solution, stub and mistakes; each mistake draws its own hint."""

import ast
import os
import re
from pathlib import Path

import nbformat
import pytest

from d2lite.exercises import Exercise, Mistake, all_exercises, check
from d2lite.exercises.check import is_stub
from d2lite.exercises.judge import judge
from d2lite.exercises.run_cases import run_cases

BOOK = Path(__file__).parents[3] / "book"
CHAPTERS = sorted(BOOK.glob("[0-9]*.ipynb"))
CHECK = re.compile(r'^check\("(?P<name>[0-9.]+)", (?P<function>\w+)\)$', re.M)
RANKS = [pytest.mark.slow, pytest.mark.skipif(os.name == "nt", reason="Workers needs Linux or macOS")]


def each(values_of):
    """Parameters (name, value) for all exercises; those on ranks are slow."""
    return [
        pytest.param(name, value, id=f"{name}-{i}" if i else name, marks=RANKS if exercise.world_size > 1 else ())
        for name, exercise in all_exercises().items()
        for i, value in enumerate(values_of(exercise), 1)
    ]


@pytest.mark.parametrize(("name", "solution"), each(lambda exercise: [exercise.solution]))
def test_the_solution_is_right(score, name, solution):
    assert score(name, solution).solved, score(name, solution)


MISTAKES = each(lambda exercise: [mistake for mistake in exercise.mistakes if mistake.answer])


@pytest.mark.parametrize(("name", "mistake"), MISTAKES)
def test_a_mistake_draws_its_own_hint_and_no_other(score, name, mistake):
    got = score(name, mistake.answer)
    assert got.right < got.total
    assert (got.wrong, got.think) == (mistake.wrong, mistake.think)
    fits = set.intersection(*(set(result.fitting_mistakes) for result in score.results))
    assert [all_exercises()[name].mistakes[i].wrong for i in fits] == [mistake.wrong]


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
def test_what_a_chapter_leaves_to_the_learner_is_a_stub_and_not_attempted(path, capsys):
    cells = sources(path)
    for name, function in checked(path).items():
        names = {}
        stub = cells[f"exercise-{name.split('.')[1]}"]
        (found,) = [
            node for node in ast.parse(stub).body if isinstance(node, ast.FunctionDef) and node.name == function
        ]
        exec(ast.unparse(found), names)
        assert is_stub(names[function]), name
        assert check(name, names[function]).total == 0 and "not attempted" in capsys.readouterr().out


def test_every_exercise_has_words_and_cases():
    for name, exercise in all_exercises().items():
        assert exercise.title and exercise.think and 0 < exercise.limit_s <= 60, name
        assert len(exercise.cases()) >= 3 and list(exercise.cases()) == list(exercise.cases()), name
        assert all(mistake.wrong and mistake.think for mistake in exercise.mistakes), name


def test_the_example_in_contributing_is_an_exercise():
    text = (BOOK.parent / "CONTRIBUTING.md").read_text()
    (example,) = re.findall(r"```python\n(SHARE = .*?)```", text, flags=re.S)
    names = {"Exercise": Exercise, "Mistake": Mistake}
    exec(example, names)
    share = names["SHARE"]
    for answer, wrong in [(share.solution, ""), *((mistake.answer, mistake.wrong) for mistake in share.mistakes)]:
        assert judge(share, [(0, result) for result in run_cases(share, answer)]).wrong == wrong
