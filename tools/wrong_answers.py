"""Write docs/exercises.md: the hints of each exercise, for mistakes of its specification and for other wrong answers.

`python -m tools.wrong_answers` reads them from book/exercises and tests/book/exercises; the page is not committed.
"""

import importlib
import json
import re
import sys
from pathlib import Path

from d2lite.exercises import all_exercises

__all__ = ["PAGE", "main", "page", "rows"]

ROOT = Path(__file__).resolve().parents[1]
HEAD = "| exercise | what is wrong | how to think |", "| --- | --- | --- |"
PAGE = ROOT / "docs" / "exercises.md"
INTRO = """# Exercises, and the mistakes that their checks recognise

For teachers. Each row is a hint: what is wrong, which `check` says at the first wrong try, and how to think, which it
adds from the second try on. A hint never contains the answer. Most rows are typical mistakes of `book/exercises`. Those
that begin with a name in brackets are other wrong answers, which the tests give, with a part of what `check` says.
Where no mistake fits, `check` shows what was expected in one case. This page is written by
`python -m tools.wrong_answers`.
"""


def title_and_file(chapter):
    """Return a chapter's title and the name of its file."""
    path = next((ROOT / "book").glob(f"{chapter:02}-*.ipynb"))
    first = "".join(json.loads(path.read_text(encoding="utf-8"))["cells"][0]["source"])
    return first.splitlines()[0].lstrip("# "), path.name


def rows(chapter):
    """Return the hints of a chapter, exercise by exercise, as [(exercise, what is wrong, how to think)]."""
    answers = importlib.import_module(f"tests.book.exercises.test_chapter_{chapter}").answers
    found = []
    for exercise in all_exercises().values():
        if exercise.name.partition(".")[0] != str(chapter):
            continue
        found += [(exercise.name, mistake.wrong, mistake.think) for mistake in exercise.mistakes]
        for case in answers.all_wrong:
            name, _, hint = case.values[0]
            if name == exercise.name:
                found.append((name, f"({case.id[len(name) + 1 :].replace('_', ' ')}) {hint}", ""))
    return found


def page():
    """Return the whole page."""
    lines = [INTRO]
    for chapter in dict.fromkeys(int(name.partition(".")[0]) for name in all_exercises()):
        title, file = title_and_file(chapter)
        lines += [f"## [{title}](../book/{file})\n", *HEAD]
        lines += [f"| {name} | {_escaped(wrong)} | {_escaped(think)} |" for name, wrong, think in rows(chapter)]
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
