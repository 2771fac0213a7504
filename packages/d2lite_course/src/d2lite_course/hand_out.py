"""Write a course: the students' book without answers, and the teacher's copy with everything."""

import json
import os
import re
import secrets
import shutil
from pathlib import Path
from typing import Any

from d2lite.book import PARTS, book_root, copy_book
from d2lite.exercises import specifications
from d2lite.exercises.exercise import Exercise
from d2lite.exercises.handed_out import chapter_as_json
from d2lite_course.course_folder import DEFAULT_POINTS, CourseFolder, Notebook, check_calls, read_notebook
from d2lite_course.observers import observers_of
from d2lite_course.recording import handed_out_exercises

__all__ = ["hand_out", "mend_links", "write_notebook"]

NUM_DRAWS = 12  # lists of drawn cases, of which a student's check takes one each time
ANSWERS_LINK = re.compile(r"\[answers\]\([^)]*\) · ")
ANSWERS_SENTENCE = re.compile(r" ?[A-Z][^.\n(]*answers? (?:is|are) in (?:`[^`]*`|\[[^\]]*\]\([^)]*\))\.")
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s#:]+\.(?:ipynb|md|py|json))(#[^)]*)?\)")
MUSEUM = re.compile(r"\b(EXHIBITS|UNNAMED|show_changes|[Mm]useum\w*)\b")
INDEX = """# {title}

| chapter | exercises | points | due |
| --- | --- | --- | --- |
{rows}

Fill in the functions, and run the check below each of them. It runs your function on the cases of this book; the marks
are computed with further cases. So what counts is the function, and not what a check cell shows.

**Hand in** the notebooks, in the form that your teacher names, with their outputs. What you give to `check` is graded,
with the statements of your notebook that it depends on. They run without a network, and without other files of yours.

[glossary](glossary.md) · [error messages](messages.md)
"""


def hand_out(folder: str | Path, chapters: list[int] | None = None) -> tuple[CourseFolder, dict[str, str]]:
    """Write a course into a folder, or write the students' part of it again.

    The teacher's copy is written once. Where there is one, the students' book is made from it, so that what the teacher
    has changed there is handed out; points and dates of `exercises.json` stay.

    Args:
        folder: A new or empty folder, or that of a course.
        chapters: Numbers of chapters; by default those that the course has.

    Returns:
        The course, and {name: why} of the exercises that have no check in the students' book.

    Raises:
        ValueError: If the folder has other files in it, or there is no such chapter.
        FileNotFoundError: If the book is not found.
    """
    course = CourseFolder(folder)
    is_new = not course.settings_file.exists()
    if not is_new:
        chapters = chapters or course.chapters()
    if not chapters:
        raise ValueError("chapters: expected numbers of chapters for a new course, got none. Add --chapters 2,4,5.")
    if is_new:
        if course.path.exists() and any(course.path.iterdir()):
            raise ValueError(
                f"folder: expected a new or an empty one, or a course, got {folder}, which has other files."
            )
        _there_are(chapters)
        copy_book(course.teacher)
        with os.fdopen(os.open(course.seed_file, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write(f"{secrets.randbits(64)}\n")
    chapters = sorted(set(chapters))
    notebooks = {chapter: course.notebook_of(chapter) for chapter in chapters}
    before = {} if is_new else course.settings()
    observers = _observers(course, chapters)
    refused = {name: why for _, cannot in observers.values() for name, why in cannot.items()}
    settings = _settings(before, notebooks, refused)
    course.write_settings(settings)
    _write_students(course, notebooks, settings, observers, refused)
    return course, refused


def _there_are(chapters: list[int]) -> None:
    book = book_root() / "book"
    if missing := [chapter for chapter in chapters if not [*book.glob(f"{chapter:02}-*.ipynb")]]:
        raise ValueError(f"chapters: expected chapters of the book, got {', '.join(map(str, missing))}.")


def _observers(course: CourseFolder, chapters: list[int]) -> dict[int, tuple[str, dict[str, str]]]:
    """Return {chapter: (text of its observe_N.py, exercises that cannot be handed out)}, for those with exercises."""
    files = {chapter: course.exercises / f"chapter_{chapter}.py" for chapter in chapters}
    return {chapter: observers_of(path, chapter) for chapter, path in files.items() if path.is_file()}


def _settings(before: dict[str, Any], paths: dict[int, Path], refused: dict[str, str]) -> dict[str, Any]:
    """Return what `exercises.json` says, with what the teacher has changed in it."""
    chapters, exercises = {}, {}
    for chapter, path in paths.items():
        notebook = read_notebook(path)
        title = "".join(notebook["cells"][0]["source"]).splitlines()[0].lstrip("# ")
        kept = before.get("chapters", {}).get(str(chapter), {})
        chapters[str(chapter)] = {"title": title, "notebook": path.name, "due": kept.get("due", "")}
        for name in [name for name in check_calls(notebook) if name not in refused]:
            points = before.get("exercises", {}).get(name, {}).get("points", DEFAULT_POINTS)
            exercises[name] = {"points": points}
    return {"title": before.get("title", "A course with d2lite"), "chapters": chapters, "exercises": exercises}


def _write_students(
    course: CourseFolder,
    notebooks: dict[int, Path],
    settings: dict[str, Any],
    observers: dict[int, tuple[str, dict[str, str]]],
    refused: dict[str, str],
) -> None:
    goal = course.students.resolve()  # it may be a link
    new = goal.with_name(f"{goal.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    for part in dict.fromkeys(part.split("/")[0] for part in PARTS):
        shutil.copytree(course.teacher / part, new / part, ignore=_not_for_students)
    book = new / "book"
    (book / "exercises").mkdir()
    with course.exercises_found():
        for chapter, (text, _) in observers.items():
            found = specifications.exercises_of(chapter)
            ours = [e for name, e in found.items() if isinstance(e, Exercise) and name not in refused]
            place = book / "exercises"
            (place / f"observe_{chapter}.py").write_text(text, encoding="utf-8")
            (place / f"chapter_{chapter}.json").write_text(
                chapter_as_json(chapter, handed_out_exercises(ours, NUM_DRAWS)), encoding="utf-8"
            )
    for chapter, path in notebooks.items():
        for page in (path, *sorted((course.book / "appendix").glob(f"{chapter:02}-*.ipynb"))):
            notebook = _without_answers(read_notebook(page), settings, refused, chapter)
            write_notebook(book / page.relative_to(course.book), notebook)
    if any(MUSEUM.search(path.read_text(encoding="utf-8")) for path in notebooks.values()):
        shutil.copyfile(course.exercises / "bug_museum.py", book / "exercises" / "bug_museum.py")
    write_notebook(book / "index.ipynb", _index(settings))
    for path in (*book.rglob("*.ipynb"), *book.rglob("*.md")):
        mend_links(path)
    _put_in_place(new, goal)


def _put_in_place(new: Path, goal: Path) -> None:
    """Replace a folder by another one; hidden files such as .git stay, also if an earlier call was cut off."""
    old = goal.with_name(f"{goal.name}.old")
    if goal.exists() and not old.exists():
        goal.rename(old)
    elif goal.exists():  # the earlier call had not moved all of them
        for path in goal.glob(".*"):
            path.replace(old / path.name)
        shutil.rmtree(goal)
    new.rename(goal)
    for path in old.glob(".*"):
        path.rename(goal / path.name)
    shutil.rmtree(old, ignore_errors=True)


def _not_for_students(folder: str, names: list[str]) -> list[str]:
    """Return what of a folder of the teacher's is not copied: all notebooks, answers, exercises, the seed, ledgers."""
    here = Path(folder)
    secret = {"solutions", "exercises", "seed", "__pycache__", "runs"}
    return [
        name
        for name in names
        if name in secret
        or name.startswith((".", "d2lite-ledger"))
        or (name.endswith(".ipynb") and here.name in ("book", "appendix"))
    ]


def _without_answers(notebook: Notebook, settings: dict[str, Any], refused: dict[str, str], chapter: int) -> Notebook:
    cells = []
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "code":
            cell = {**cell, "outputs": [], "execution_count": None}
            if any(f'check("{name}"' in text for name in refused):
                continue
        else:
            text = ANSWERS_SENTENCE.sub("", ANSWERS_LINK.sub("", text))
            for name, entry in settings["exercises"].items():
                number = name.partition(".")[2]
                if name.startswith(f"{chapter}.") and name not in refused:
                    points = f"{entry['points']:g} point{'' if entry['points'] == 1 else 's'}"
                    text = text.replace(f"**Exercise {number}.**", f"**Exercise {number}** ({points}).")
        cells.append({**cell, "source": text.splitlines(keepends=True)})
    return {**notebook, "cells": cells}


def _index(settings: dict[str, Any]) -> Notebook:
    rows = []
    for chapter, entry in settings["chapters"].items():
        names = {n: e["points"] for n, e in settings["exercises"].items() if n.startswith(f"{chapter}.")}
        due = entry["due"] or "-"
        rows.append(
            f"| [{entry['title']}]({entry['notebook']}) | {', '.join(names)} | {sum(names.values()):g} | {due} |"
        )
    text = INDEX.format(title=settings["title"], rows="\n".join(rows))
    cell = {"cell_type": "markdown", "id": "index", "metadata": {}, "source": text.splitlines(keepends=True)}
    return {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


def mend_links(path: Path) -> None:
    """Put the text of a link in place of the link where its page was not handed out."""

    def mended(link: re.Match[str]) -> str:
        return link[0] if (path.parent / link[2]).exists() else link[1]

    if path.suffix == ".md":
        path.write_text(LINK.sub(mended, path.read_text(encoding="utf-8")), encoding="utf-8")
        return
    notebook = read_notebook(path)
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            cell["source"] = LINK.sub(mended, "".join(cell["source"])).splitlines(keepends=True)
    write_notebook(path, notebook)


def write_notebook(path: Path, notebook: Notebook) -> None:
    """Write a notebook as the book's notebooks are written."""
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
