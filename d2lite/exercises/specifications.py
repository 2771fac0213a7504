"""Find the specifications of exercises: `chapter_4.py` and the like, Python files of the book, imported when needed.

A course that was handed out has `chapter_4.json` instead, without the code of the answers, and `observe_4.py`.

The Python files are modules of this one (`d2lite.exercises.specifications.chapter_4`): Python searches the folders in
`__path__` for them, as it does for the modules of a package. So ranks import them by the same name.
"""

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from d2lite.book import book_root
from d2lite.exercises.exercise import Exercise, Question
from d2lite.exercises.handed_out import chapter_from_json
from notebook_ranks.shared.checks import instance_of

__all__ = ["all_exercises", "chapters", "find_exercise", "folders", "load", "search"]

FOLDER = "exercises"


def folders() -> list[str]:
    """Return the folders that are searched for a file, in this order: `exercises` in the working directory, the book's.

    So a teacher's file beside the notebook replaces the book's file of the same name, and the other files remain. A
    course that was handed out is searched alone.
    """
    found = [Path.cwd() / FOLDER]
    if any(found[0].glob("chapter_*.json")):
        return [str(found[0].resolve())]
    try:
        found.append(book_root() / "book" / FOLDER)
    except FileNotFoundError:  # `load` says so
        pass
    return list(dict.fromkeys(str(folder.resolve()) for folder in found if folder.is_dir()))


__path__ = folders()  # once: all files of a notebook, and of its ranks, come from the same folders


def search(found: list[str]) -> None:
    """Search these folders from now on, and forget what was loaded from others."""
    if found != __path__:
        __path__[:] = found
        for name in [name for name in sys.modules if name.startswith(f"{__name__}.")]:
            del sys.modules[name]
        importlib.invalidate_caches()


def load(name: str) -> ModuleType:
    """Return the module of the file `name`.py, which is run once; a ValueError says which error it raised."""
    module = f"{__name__}.{name}"
    spec = importlib.util.find_spec(module)
    if spec is None:
        raise FileNotFoundError(
            f"{name}.py: expected it in a folder {FOLDER} of the working directory or of the book, got none in "
            f"{', '.join(__path__) or 'any of them'}. Copy the book again with python -m d2lite book FOLDER, and "
            "restart the kernel."
        )
    try:
        return importlib.import_module(module)
    except Exception as error:
        raise ValueError(
            f"{spec.origin}: expected a Python file that runs, got {type(error).__name__}: {error}. "
            "Correct the file, and restart the kernel."
        ) from error


def chapters() -> list[int]:
    """Return the numbers of the chapters that have exercises, in order."""
    files = [
        file for folder in __path__ for suffix in ("py", "json") for file in Path(folder).glob(f"chapter_*.{suffix}")
    ]
    numbers = {file.stem.removeprefix("chapter_") for file in files}
    return sorted(int(number) for number in numbers if number.isdecimal())


def exercises_of(chapter: int) -> dict[str, Question]:
    """Return {name: exercise} of a chapter, by number: every Exercise at the top level of its file; names must fit."""
    path, found = _found_in_file(chapter)
    names = [exercise.name for exercise in found]
    of_chapter = all(name.startswith(f"{chapter}.") and name.partition(".")[2].isdecimal() for name in names)
    if not names or not of_chapter or len(set(names)) < len(names):
        raise ValueError(
            f"{path}: expected exercises with the names {chapter}.1, {chapter}.2 and so on, each once, got "
            f"{', '.join(names) or 'none'}. Change the names, or the name of the file, and restart the kernel."
        )
    return {exercise.name: exercise for exercise in sorted(found, key=lambda e: int(e.name.partition(".")[2]))}


def _found_in_file(chapter: int) -> tuple[str, list[Question]]:
    """Return the path of a chapter's file, and its exercises in their order there."""
    for folder in map(Path, __path__):
        path = folder / f"chapter_{chapter}.json"
        if path.is_file() and not path.with_suffix(".py").is_file():
            try:
                return str(path), list(chapter_from_json(path.read_text(encoding="utf-8"), load(f"observe_{chapter}")))
            except ValueError as error:
                raise ValueError(f"{path}: {error}. Copy the course again, and restart the kernel.") from error
    module = load(f"chapter_{chapter}")
    return str(module.__file__), [value for value in vars(module).values() if isinstance(value, Exercise)]


def find_exercise(name: str) -> Question:
    """Return the exercise of this name. Raises ValueError if there is none, TypeError if the name is no text."""
    instance_of("exercise", name, str, hint='Write the name as a text, for example "4.2".')
    chapter = name.partition(".")[0]
    found = exercises_of(int(chapter)).get(name) if chapter in map(str, chapters()) else None
    if found is None:
        raise ValueError(f"exercise: expected one of {', '.join(all_exercises())}, got {name!r}.")
    return found


def all_exercises() -> dict[str, Any]:
    """Return {name: exercise} of all chapters, in their order."""
    return {name: exercise for chapter in chapters() for name, exercise in exercises_of(chapter).items()}
