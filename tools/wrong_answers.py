"""Write docs/exercises.md: the wrong answers that tests give to each exercise, and the hint that each one draws.

`python -m tools.wrong_answers` reads them from tests/exercises; a test compares the page with them.
"""

import importlib
import json
import re
import sys
from pathlib import Path

__all__ = ["PAGE", "main", "page", "rows"]

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "exercises.md"
INTRO = """# Exercises, and the mistakes that their checks recognise

For teachers. Each row is a wrong answer that a test gives to `check`, and a part of the hint that it must draw. A hint
says what is wrong; at the second try it also says how to think. Where no known mistake fits, it shows
what was expected in one case. It never contains the answer. The tests give right answers in several forms as well.
This page is written by `python -m tools.wrong_answers`.
"""


def title_and_file(chapter):
    """Return a chapter's title and the name of its file."""
    path = next((ROOT / "book").glob(f"{chapter:02}-*.ipynb"))
    first = "".join(json.loads(path.read_text(encoding="utf-8"))["cells"][0]["source"])
    return first.splitlines()[0].lstrip("# "), path.name


def rows(chapter):
    """Return the wrong answers of a chapter in order as [(exercise, the answer's name in words, part of its hint)]."""
    answers = importlib.import_module(f"tests.exercises.test_chapter_{chapter}").answers
    found = []
    for case in answers.all_wrong:
        name, _, hint = case.values[0]
        found.append((name, case.id[len(name) + 1 :].replace("_", " "), hint))
    return sorted(found, key=lambda row: row[0])  # stable: in the order of the tests


def page():
    """Return the whole page."""
    lines = [INTRO]
    for chapter in range(1, 13):
        title, file = title_and_file(chapter)
        lines += [f"## [{title}](../book/{file})\n", "| exercise | wrong answer | hint |", "| --- | --- | --- |"]
        lines += [f"| {name} | {answer} | {_escaped(hint)} |" for name, answer, hint in rows(chapter)]
        lines.append("")
    return "\n".join(lines)


def _escaped(text):
    return re.sub(r"([|*_<])", r"\\\1", text)


def main():
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE.relative_to(ROOT))


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
