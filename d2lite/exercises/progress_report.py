"""What a learner has solved and predicted, as text: the ledger of a folder, chapter by chapter."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from d2lite.exercises.specifications import all_exercises, chapters
from d2lite.learner_ledger import FILE, ledger_file, read_ledger
from notebook_ranks.shared.format import text_of

__all__ = ["progress_report"]

OTHERS = "others"
MOST_FOLDERS = 5
MOST_CHARS = 100


def progress_report(folder: str = "") -> str:
    """Return what was solved with the notebooks of a folder, by default the current one, as lines of text.

    `folder` may be the path of the ledger itself. Anyone may have edited a ledger: what is not as expected is not
    solved.
    """
    path = _path(folder)
    if path is None:
        return "Nothing is kept: the variable D2LITE_LEDGER is off."
    if not path.exists():
        return _no_ledger(path)
    ledger = read_ledger(path)
    exercises, predictions = ledger["exercises"], _made(ledger["predictions"])
    titles = {name: exercise.title for name, exercise in all_exercises().items()}
    titles |= {text_of(name)[:MOST_CHARS]: "" for name in exercises if name not in titles}
    solved = [name for name in titles if _is_solved(exercises.get(name))]
    num_made = sum(predictions.values())
    lines = [f"{len(solved)} of {len(titles)} exercises solved, {_predictions(num_made)} made ({path})"]
    for chapter in sorted({_chapter(name) for name in titles} | {*predictions}, key=_sort_key):
        names = [name for name in titles if _chapter(name) == chapter]
        num_solved, num_made = sum(name in solved for name in names), predictions.get(chapter, 0)
        head = chapter if chapter == OTHERS else f"chapter {chapter}"
        lines += ["", f"{head}: {num_solved} of {len(names)} solved, {_predictions(num_made)} made"]
        lines += [f"  {name:4}  {_state_in_words(exercises.get(name)):22}  {titles[name]}".rstrip() for name in names]
    return "\n".join(lines)


def _sort_key(chapter: str) -> tuple[bool, int, str]:
    """Sort chapters by their number, and what is no chapter last."""
    return chapter == OTHERS, int(chapter) if chapter.isdecimal() and len(chapter) < 10 else 0, chapter


def _path(folder: str) -> Path | None:
    if not folder:
        return ledger_file()
    path = Path(os.path.expanduser(folder))
    if not path.exists():
        raise FileNotFoundError(f"expected a folder with notebooks, got {folder}, which does not exist.")
    return path / FILE if path.is_dir() else path


def _no_ledger(path: Path) -> str:
    text = f"No ledger: there is no {path}. Nothing was checked or predicted with the notebooks of this folder yet."
    found = sorted(path.parent.glob(f"*/{path.name}"))[:MOST_FOLDERS]
    if found:
        return text + "".join(f"\nThere is one here: python -m d2lite progress {other.parent}" for other in found)
    return text + "\nIf they are elsewhere: python -m d2lite progress FOLDER"


def _made(predictions: Mapping[str, Any]) -> dict[str, int]:
    """Return {chapter: number of predictions with an answer}."""
    made: dict[str, int] = {}
    for key, entry in predictions.items():
        if isinstance(entry.get("answers"), list) and entry["answers"]:
            made[_chapter(key)] = made.get(_chapter(key), 0) + 1
    return made


def _chapter(name: str) -> str:
    first = name.partition(".")[0]
    return first if first in map(str, chapters()) else OTHERS


def _is_solved(entry: Any) -> bool:
    return entry is not None and entry.get("solved") is True


def _state_in_words(entry: Any) -> str:
    if entry is None:
        return "not tried"
    right, total = entry.get("right"), entry.get("total")
    cases = f"{right} of {total} cases right" if type(right) is int and type(total) is int else ""
    if _is_solved(entry):
        return "solved" + (f", {total} cases" if cases else "")
    return cases if cases and len(cases) < MOST_CHARS else "tried"


def _predictions(num_predictions: int) -> str:
    return f"{num_predictions} prediction{'' if num_predictions == 1 else 's'}"
