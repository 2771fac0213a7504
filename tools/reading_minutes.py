"""The minutes that a student needs to read a chapter: `python tools/reading_minutes.py` prints them, part by part.

A student who is new to the subject reads 110 words or 11 lines of code in a minute, answers a prediction in one, and
plays with a panel, a game or a stepper for two. These rates are an estimate: two readers compared them with what they
would need, and nobody was timed. Sections of exercises are not read; their minutes are stated by hand.

A chapter of more than an hour has a marked stop: a cell with the tag `stop`, where a student can end a sitting.
"""

import json
import re
from pathlib import Path
from typing import Any

__all__ = ["LONGEST", "STOP", "of_chapter", "of_sittings"]

BOOK = Path(__file__).parents[1] / "book"
WORDS, LINES = 110, 11  # a minute
PREDICTION, PANEL = 1, 2  # minutes each
LONGEST = 60  # minutes of a sitting
STOP = "stop"
EXERCISES = re.compile(r"^## Exercises\b", re.MULTILINE)
HIDDEN = re.compile(r"<!--.*?-->|<svg.*?</svg>|!\[[^\]]*\]\([^)]*\)|\]\([^)]*\)|<[^>]+>", re.DOTALL)
PLAYS = re.compile(r"^(?!from|import).*\b(Panel|\w*Stepper|\w*Explorer|\w*Game|\w*Puzzle|Whodunit)\(", re.MULTILINE)


def of_sittings(path: Path) -> list[float]:
    """Return the minutes of each sitting of a chapter: one, or more where cells have the tag `stop`."""
    sittings = [0.0]
    for cell in _read_cells(path):
        sittings[-1] += _of_cell(cell)
        if STOP in cell["metadata"].get("tags", []):
            sittings.append(0.0)
    return sittings


def of_chapter(path: Path) -> int:
    """Return the minutes of reading a chapter, its exercises left out, rounded to five."""
    return 5 * round(sum(of_sittings(path)) / 5)


def _read_cells(path: Path) -> list[dict[str, Any]]:
    """Return the cells of a chapter before its exercises."""
    cells: list[dict[str, Any]] = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "markdown" and EXERCISES.search("".join(cell["source"])):
            break
        cells.append(cell)
    return cells


def _of_cell(cell: dict[str, Any]) -> float:
    text = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return len(HIDDEN.sub(" ", text).split()) / WORDS
    lines = [line for line in text.splitlines() if line.strip()]
    if "Predict(" in text:
        return PREDICTION + len(text.split()) / WORDS
    return len(lines) / LINES + PANEL * len(PLAYS.findall(text))


def main() -> None:
    """Print the minutes of all chapters."""
    for path in sorted(BOOK.glob("[0-9]*.ipynb")):
        sittings = of_sittings(path)
        cells = _read_cells(path)
        words = sum(len(HIDDEN.sub(" ", "".join(c["source"])).split()) for c in cells if c["cell_type"] == "markdown")
        said = " + ".join(f"{minutes:.0f}" for minutes in sittings)
        print(f"{path.stem}: {said} minutes, {len(cells)} cells, {words} words")


if __name__ == "__main__":
    main()
