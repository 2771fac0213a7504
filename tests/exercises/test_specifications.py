"""Where the files of exercises are found, what is said about a broken one, and that ranks run the same file."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from d2lite import exercises
from d2lite.exercises import check, specifications
from d2lite.exercises.specifications import all_exercises, chapters, exercises_of, find_exercise, folders, load

BOOK = Path(__file__).parents[2] / "book"
TWICE = """
from d2lite.exercises import Exercise, Mistake
from helpers import two

TWICE = Exercise(
    name="90.1",
    title="Twice a number",
    solution=lambda x: two() * x,
    cases=lambda: {"x = 1": (1,), "x = 5": (5,)},
    mistakes=[Mistake(lambda x: x * x, "it is the square.", "Try 5.")],
    think="Add it to itself.",
)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of exercises before the book's."""
    monkeypatch.setattr(specifications, "__path__", [str(tmp_path), *specifications.__path__])
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("d2lite.exercises.specifications.chapter_9")]:
        if not name.endswith("chapter_9"):
            del sys.modules[name]


def test_the_folder_beside_the_notebook_comes_before_the_book(tmp_path, monkeypatch):
    monkeypatch.chdir(BOOK)
    assert folders() == [str(BOOK / "exercises")]
    monkeypatch.chdir(tmp_path)
    assert folders() == [str(BOOK / "exercises")]
    (tmp_path / "exercises").mkdir()
    assert folders() == [str(tmp_path.resolve() / "exercises"), str(BOOK / "exercises")]


def test_each_chapter_has_exercises_in_order():
    found = all_exercises()
    assert list(found) == sorted(found, key=lambda name: [int(part) for part in name.split(".")])
    assert chapters() == list(range(1, 18)) and {"1.2", "2.3", "3.3", "3.4", "4.3"} <= set(found)
    assert all(exercise.name == name for name, exercise in found.items())


def test_a_file_is_run_once_and_its_exercises_have_its_number(folder):
    (folder / "chapter_90.py").write_text(TWICE.replace("from helpers import two", "def two():\n    return 2\n"))
    assert find_exercise("90.1").title == "Twice a number" and chapters()[-1] == 90
    assert load("chapter_90") is load("chapter_90")
    assert check("90.1", lambda x: None).total == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def f(:", "expected a Python file that runs, got SyntaxError"),
        ("1 / 0", "expected a Python file that runs, got ZeroDivisionError: division by zero. Correct the file"),
        ("EXERCISES = {}", "expected exercises with the names 91.1, 91.2 and so on, each once, got none"),
        (TWICE.replace("from helpers import two", ""), "each once, got 90.1. Change the names, or the name of the"),
        (TWICE.replace("from helpers import two", "").replace("90.1", "91.1") + "\nAGAIN = type(TWICE)(**vars(TWICE))",
         "each once, got 91.1, 91.1"),
    ],
)  # fmt: skip
def test_a_broken_file_is_named(folder, text, said):
    (folder / "chapter_91.py").write_text(text)
    with pytest.raises(ValueError) as error:
        exercises_of(91)
    assert str(folder / "chapter_91.py") in str(error.value) and said in str(error.value)


def test_a_missing_file_is_named(monkeypatch):
    with pytest.raises(FileNotFoundError, match=r"chapter_92.py: expected it in a folder exercises .*book.exercises"):
        load("chapter_92")
    monkeypatch.setattr(specifications, "__path__", [])
    with pytest.raises(FileNotFoundError, match="got none in any of them. Copy the book again"):
        load("chapter_92")


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Workers needs Linux or macOS")
def test_ranks_run_the_file_beside_the_notebook_and_a_copy_of_the_package_has_the_book(tmp_path):
    """As on Colab: the package with its book is installed, and the working directory is any folder."""
    site, here = tmp_path / "site", tmp_path / "here"
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(specifications.__file__).parents[1], site / "d2lite", ignore=ignore)
    for part in ("book/exercises", "book/labs", "tools/cluster", "tools/slurm", "tools/jupyterlab", "benchmarks"):
        shutil.copytree(BOOK.parent / part, site / "d2lite/_book" / part, ignore=ignore)
    (here / "exercises").mkdir(parents=True)
    (here / "helpers.py").write_text("def two():\n    return 2\n")
    (here / "exercises" / "chapter_90.py").write_text(TWICE)
    code = (
        "import os\n"
        "from d2lite.exercises import EXHIBITS, check, specifications\n"
        "print(specifications.__path__)\n"
        "os.chdir('/')\n"
        "assert check('90.1', lambda x: x + x).solved\n"
        "assert check('90.1', lambda x: x ** 2).wrong == 'it is the square.'\n"
        "assert check('5.2', specifications.load('chapter_5').DDP.solution).solved\n"
        "assert len(EXHIBITS) == 15\n"
    )
    environment = {**os.environ, "PYTHONPATH": f"{site}{os.pathsep}{here}", "D2LITE_LEDGER": "off"}
    out = subprocess.run([sys.executable, "-c", code], cwd=here, env=environment, capture_output=True, text=True)
    assert out.returncode == 0, out.stderr
    assert out.stdout.splitlines()[0] == str(
        [str(here.resolve() / "exercises"), str(site / "d2lite/_book/book/exercises")]
    )


def test_the_museum_is_a_file_of_the_book():
    # looked up now: a course that was searched before this test has had all files loaded anew
    assert exercises.EXHIBITS is load("bug_museum").EXHIBITS and Path(load("bug_museum").__file__).is_relative_to(BOOK)
