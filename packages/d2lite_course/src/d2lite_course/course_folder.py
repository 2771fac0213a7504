"""The folder of a course: what is in it, and `exercises.json`, which the teacher edits."""

import ast
import contextlib
import json
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from d2lite.exercises import specifications
from notebook_ranks.shared.checks import instance_of

__all__ = ["CourseFolder", "GradedExercise", "Notebook", "check_calls", "read_notebook"]

FILE = "exercises.json"
DEFAULT_POINTS = 10.0
Notebook = dict[str, Any]


@dataclass(frozen=True)
class GradedExercise:
    """An exercise of a course: its function and the id of the cell with its stub, as the chapter has them."""

    name: str
    points: float
    chapter: int
    function: str
    cell: str


class CourseFolder:
    """The folder that `python -m d2lite course` has written.

    Its folder `students` is handed out. `teacher` is the complete book: what is changed there, in the chapters or in
    the exercises, is handed out by the next `python -m d2lite course`. `seed` draws the cases of the grader.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).expanduser().resolve()
        self.students, self.teacher = self.path / "students", self.path / "teacher"
        self.book, self.exercises = self.teacher / "book", self.teacher / "book" / "exercises"
        self.settings_file, self.seed_file = self.path / FILE, self.teacher / "seed"

    def settings(self) -> dict[str, Any]:
        """Return what `exercises.json` says.

        Raises:
            FileNotFoundError: If there is none.
            ValueError: If it is no such file.
        """
        if not self.settings_file.is_file():
            raise FileNotFoundError(
                f"{self.settings_file}: expected the folder of a course, got none. Write one: python -m d2lite course "
                f"{self.path} --chapters 2,4,5"
            )
        try:
            read = json.loads(self.settings_file.read_text(encoding="utf-8"))
            for name, entry in read["exercises"].items():
                points = entry["points"]
                if isinstance(points, bool) or not isinstance(points, (int, float)) or not 0 <= points < 1e6:
                    raise ValueError(f"the points of {name} are {points!r}, and a number from 0 on is expected")
            [int(chapter) for chapter in read["chapters"]]
            return dict(read)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(
                f"{self.settings_file}: expected what python -m d2lite course wrote, with other points and dates, got "
                f"{type(error).__name__}: {error}. Mend it, or remove it and write the course again."
            ) from error

    def seed(self) -> str:
        """Return the text from which the grader's cases are drawn. Raises FileNotFoundError if there is none."""
        if not self.seed_file.is_file():
            raise FileNotFoundError(
                f"{self.seed_file}: expected a line of any text, got no file. Write one, and keep it."
            )
        return self.seed_file.read_text(encoding="utf-8").strip()

    def chapters(self) -> list[int]:
        """Return the numbers of the chapters of the course."""
        return sorted(map(int, self.settings()["chapters"]))

    def notebook_of(self, chapter: int) -> Path:
        """Return the teacher's notebook of a chapter. Raises FileNotFoundError if there is none."""
        found = sorted(self.book.glob(f"{chapter:02}-*.ipynb"))
        if not found:
            raise FileNotFoundError(f"chapter {chapter}: expected {self.book}/{chapter:02}-....ipynb, got none.")
        return found[0]

    def graded(self) -> list[GradedExercise]:
        """Return the exercises that have points, in order."""
        settings, found = self.settings(), []
        for chapter in self.chapters():
            calls = check_calls(read_notebook(self.notebook_of(chapter)))
            for name, (function, cell) in calls.items():
                entry = settings["exercises"].get(name)
                if entry is not None and entry["points"] > 0:
                    found.append(GradedExercise(name, float(entry["points"]), chapter, function, cell))
        return found

    def needed_chapters(self) -> dict[int, list[int]]:
        """Return {chapter: those that it needs, and that the course does not have}, as the notebooks' metadata say."""
        own, needed = self.chapters(), {}
        for chapter in own:
            facts = read_notebook(self.notebook_of(chapter)).get("metadata", {}).get("d2lite", {})
            missing = [int(number) for number in facts.get("needs", {}).get("chapters", []) if number not in own]
            if missing:
                needed[chapter] = missing
        return needed

    @contextlib.contextmanager
    def exercises_found(self) -> Generator[None, None, None]:
        """Let the exercises be those of the teacher's copy inside the block."""
        before = list(specifications.__path__)
        specifications.search([str(self.exercises)])
        try:
            yield
        finally:
            specifications.search(before)

    def write_settings(self, settings: Mapping[str, Any]) -> None:
        """Write `exercises.json`."""
        text = json.dumps(settings, indent=2, ensure_ascii=False) + "\n"
        self.settings_file.write_text(text, encoding="utf-8")


def read_notebook(path: Path) -> Notebook:
    """Return a notebook of the book, as its JSON. Raises ValueError if it is none."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    instance_of("cells", notebook.get("cells"), list, hint=f"{path} is no notebook.")
    return dict(notebook)


def check_calls(notebook: Notebook) -> dict[str, tuple[str, str]]:
    """Return {exercise: (name of the function, id of the cell with its stub)} of the check cells of a chapter."""
    found = {}
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] != "code" or "check(" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "check" and len(node.args) == 2:
                name, function = node.args
                if isinstance(name, ast.Constant) and isinstance(function, ast.Name):
                    found[str(name.value)] = function.id, str(cell["id"]).removesuffix("-check")
    return found
