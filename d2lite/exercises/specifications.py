"""The specifications of exercises: `chapter_4.py` and the like, Python files of the book, imported when first needed.

They are modules of this one (`d2lite.exercises.specifications.chapter_4`): Python searches the folders in `__path__`
for them, as it does for the modules of a package. So ranks import them by the same name.
"""

import importlib
import importlib.util
from pathlib import Path
from types import ModuleType

from d2lite._checks import instance_of
from d2lite.book import book_root
from d2lite.exercises.exercise import Exercise

__all__ = ["all_exercises", "chapters", "find_exercise", "folders", "load"]

FOLDER = "exercises"


def folders() -> list[str]:
    """Return the folders that are searched for a file, in this order: `exercises` in the working directory, the book's.

    So a teacher's file beside the notebook replaces the book's file of the same name, and the other files remain.
    """
    found = [Path.cwd() / FOLDER]
    try:
        found.append(book_root() / "book" / FOLDER)
    except FileNotFoundError:  # `load` says so
        pass
    return list(dict.fromkeys(str(folder.resolve()) for folder in found if folder.is_dir()))


__path__ = folders()  # once: all files of a notebook, and of its ranks, come from the same folders


def load(name: str) -> ModuleType:
    """Return the module of the file `name`.py, which is run once.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file raises an error.
    """
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
    files = [file for folder in __path__ for file in Path(folder).glob("chapter_*.py")]
    numbers = {file.stem.removeprefix("chapter_") for file in files}
    return sorted(int(number) for number in numbers if number.isdecimal())


def exercises_of(chapter: int) -> dict[str, Exercise]:
    """Return {name: exercise} of a chapter, by number: every Exercise that its file defines at the top level.

    Raises:
        FileNotFoundError: If the chapter has no file.
        ValueError: If the file raises an error, has no exercise, or has two of one name or one of a different chapter.
    """
    module = load(f"chapter_{chapter}")
    found = [value for value in vars(module).values() if isinstance(value, Exercise)]
    names = [exercise.name for exercise in found]
    of_chapter = all(name.startswith(f"{chapter}.") and name.partition(".")[2].isdecimal() for name in names)
    if not names or not of_chapter or len(set(names)) < len(names):
        raise ValueError(
            f"{module.__file__}: expected exercises with the names {chapter}.1, {chapter}.2 and so on, each once, got "
            f"{', '.join(names) or 'none'}. Change the names, or the name of the file, and restart the kernel."
        )
    return {exercise.name: exercise for exercise in sorted(found, key=lambda e: int(e.name.partition(".")[2]))}


def find_exercise(name: str) -> Exercise:
    """Return the exercise of this name. Raises ValueError if there is none, TypeError if the name is no text."""
    instance_of("exercise", name, str, hint='Write the name as a text, for example "4.2".')
    chapter = name.partition(".")[0]
    found = exercises_of(int(chapter)).get(name) if chapter in map(str, chapters()) else None
    if found is None:
        raise ValueError(f"exercise: expected one of {', '.join(all_exercises())}, got {name!r}.")
    return found


def all_exercises() -> dict[str, Exercise]:
    """Return {name: exercise} of all chapters, in their order."""
    return {name: exercise for chapter in chapters() for name, exercise in exercises_of(chapter).items()}
