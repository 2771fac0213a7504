"""The goals, needs, minutes and work to hand in of each chapter: `python tools/chapter_goals.py` writes them on pages.

They are kept in the metadata of the chapter's notebook, under `d2lite`, and nowhere else:

- `title` and `question`, as they stand in the tables of the index;
- `core`: whether later chapters build on it;
- `goals`: what a learner can do afterwards, a list;
- `needs`: the numbers of `chapters` that must be known, of those that help (`helps`), and what else to `know`;
- `minutes`: to read (`reading`), and for the exercises with a check (`exercises`), estimated;
- `hand_in`: what a learner hands in;
- `ranks`: whether it starts processes, the ranks, which Windows cannot.

The tool writes the cell `goals` of each chapter, the two tables of `book/index.ipynb` (the map by path, and all
chapters) and the table in `docs/teaching.md`.
`--check` writes nothing and names the files that differ.
"""

import argparse
import json
import re
from pathlib import Path
from typing import Any

__all__ = [
    "BOOK",
    "CELL_ID",
    "MARK",
    "PATHS",
    "chapters",
    "facts_of",
    "goals_cell",
    "index_map",
    "index_table",
    "teachers_table",
    "with_goals",
]

BOOK = Path(__file__).parents[1] / "book"
CELL_ID = "goals"
MARK = "<!-- tools/chapter_goals.py writes this cell from the notebook's metadata -->"
TABLE = "<!-- table of chapters: tools/chapter_goals.py writes it -->"
KINDS = {"title": str, "question": str, "core": bool, "goals": list, "needs": dict, "minutes": dict, "hand_in": str}
KINDS["ranks"] = bool
# what somebody may want to learn, and the chapters for it, in their order; each needs only core chapters besides these
CORE = "train on several devices, know what it costs, find the bugs"
PATHS = {
    CORE: (1, 2, 4, 5, 8, 11),
    "use the one line of PyTorch, and compare trainings fairly": (3, 9, 10),
    "read older scripts, use several machines, repair a job that hangs": (6, 7, 12),
    "train a network that does not fit on one device": (13, 14, 15, 16, 17),
}
SIDE_ROADS = {17: 14}  # no chapter needs it, and it begins after this one
Notebook = dict[str, Any]
Facts = dict[str, Any]


def chapters(book: Path = BOOK) -> list[Path]:
    """Return the notebooks of the chapters, in order."""
    return sorted(book.glob("[0-9]*.ipynb"))


def _read(path: Path) -> Notebook:
    return json.loads(path.read_text(encoding="utf-8"))


def facts_of(path: Path) -> Facts:
    """Return what the metadata of a chapter says; raise ValueError if something is missing or of another type."""
    facts = _read(path)["metadata"].get("d2lite", {})
    for key, kind in KINDS.items():
        if not isinstance(facts.get(key), kind):
            raise ValueError(
                f"{path.name}: expected metadata.d2lite.{key} to be a {kind.__name__}, got {facts.get(key)!r}. "
                "tools/chapter_goals.py says what belongs there."
            )
    return facts


def _and(numbers: list[int]) -> str:
    *most, last = map(str, numbers)
    return f"{', '.join(most)} and {last}" if most else last


def _needs(needs: Facts) -> str:
    known = needs.get("chapters", [])
    parts = [f"chapter{'s' if len(known) > 1 else ''} {_and(known)}"] if known else []
    text = ", ".join([*parts, *([needs["know"]] if needs.get("know") else [])])
    return text + (f"; chapter {_and(needs['helps'])} helps" if needs.get("helps") else "")


def goals_cell(facts: Facts) -> str:
    """Return the text of the cell that stands below the title of a chapter."""
    goals = "".join(f"- {goal}{';' if i < len(facts['goals']) else '.'}\n" for i, goal in enumerate(facts["goals"], 1))
    minutes = facts["minutes"]
    line = (
        f"**You need** {_needs(facts['needs'])}. **Minutes** (estimated): {minutes['reading']} to read, "
        f"{minutes['exercises']} for the exercises with a check. **Hand in** {facts['hand_in']}."
    )
    if facts["ranks"]:
        line += " **On Windows** use WSL 2, Colab or Binder: this chapter starts processes that Windows cannot start."
    return f"**After this chapter you can** {MARK}\n\n{goals}\n{line}"


def with_goals(notebook: Notebook, text: str) -> Notebook:
    """Return a notebook with this text in the cell `goals`, the second one, and no other such cell."""
    cells = [cell for cell in notebook["cells"] if cell.get("id") != CELL_ID]
    cell = {"cell_type": "markdown", "id": CELL_ID, "metadata": {}, "source": text.splitlines(keepends=True)}
    return notebook | {"cells": [cells[0], cell, *cells[1:]]}


def _short_needs(needs: Facts) -> str:
    helps = f" ({', '.join(map(str, needs['helps']))})" if needs.get("helps") else ""
    return (", ".join(map(str, needs.get("chapters", []))) or "–") + helps


def _kind(facts: Facts) -> str:
    return "core" if facts["core"] else "optional"


def _way(name: str) -> str:
    """Return what stands before a chapter in the map: of a side road, where it begins."""
    number = int(name[:2])
    return f"as a side road after {SIDE_ROADS[number]} " if number in SIDE_ROADS else ""


def index_map(book: Path = BOOK) -> str:
    """Return the map of the index: for each path its chapters, and their minutes together."""
    found = {int(path.name[:2]): (path.name, facts_of(path)) for path in chapters(book)}
    rows = ["| you want to | read, in this order | minutes |", "|---|---|---|"]
    for want, numbers in PATHS.items():
        known = [found[number] for number in numbers if number in found]
        links = ", ".join(f"{_way(name)}[{int(name[:2])} {facts['title']}]({name})" for name, facts in known)
        reading, exercises = (sum(facts["minutes"][of] for _, facts in known) for of in ("reading", "exercises"))
        if known:
            begin = "" if want == CORE else "after the first row: "
            rows.append(f"| {want} | {begin}{links} | {reading} + {exercises} |")
    return "\n".join(rows)


def index_table(book: Path = BOOK) -> str:
    """Return the table of all chapters in the index."""
    rows = ["| chapter | its question | needs | minutes |", "|---|---|---|---|"]
    for path in chapters(book):
        facts = facts_of(path)
        name, minutes = f"{int(path.name[:2])} {facts['title']}", facts["minutes"]
        rows.append(
            f"| [{name}]({path.name}) ({_kind(facts)}) | {facts['question']} | {_short_needs(facts['needs'])} "
            f"| {minutes['reading']} + {minutes['exercises']} |"
        )
    return "\n".join(rows)


def teachers_table(book: Path = BOOK) -> str:
    """Return the table of `docs/teaching.md`."""
    rows = ["| chapter | kind | needs | minutes | to hand in |", "| --- | --- | --- | --- | --- |"]
    for path in chapters(book):
        facts = facts_of(path)
        name, minutes = f"{int(path.name[:2])} {facts['title']}", facts["minutes"]
        rows.append(
            f"| [{name}](../book/{path.name}) | {_kind(facts)} | {_short_needs(facts['needs'])} "
            f"| {minutes['reading']} + {minutes['exercises']} | {facts['hand_in']} |"
        )
    return "\n".join(rows)


def _with_index(notebook: Notebook, table: str) -> Notebook:
    """Return the index with this table in place of the one that begins like it."""
    first, found, cells = table.split("\n", 1)[0], 0, []
    for cell in notebook["cells"]:
        new, number = re.subn(
            rf"(?m)^{re.escape(first)}\n(?:\|.*\n?)*", lambda _: table + "\n", "".join(cell["source"])
        )
        found += number
        cells.append(cell | {"source": new.splitlines(keepends=True)} if number else cell)
    if found != 1:
        raise ValueError(f"expected one table in the index that begins with {first!r}, got {found}")
    return notebook | {"cells": cells}


def _with_table(text: str, table: str) -> str:
    """Return the page for teachers with this table between its two marks."""
    parts = text.split(TABLE)
    if len(parts) != 3:
        raise ValueError(f"expected two lines {TABLE!r} in docs/teaching.md, got {len(parts) - 1}")
    return f"{parts[0]}{TABLE}\n{table}\n{TABLE}{parts[2]}"


def _as_text(notebook: Notebook) -> str:
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Write the pages; return 1 if `--check` found one that differs."""
    parser = argparse.ArgumentParser(description="Write the goals of each chapter, and the tables of all chapters.")
    parser.add_argument("--check", action="store_true", help="write nothing, exit with 1 if a file would change")
    parser.add_argument("--book", type=Path, default=BOOK, help="the folder of the book, beside the folder docs")
    args = parser.parse_args(arguments)
    teaching = args.book.parent / "docs" / "teaching.md"
    pages = {path: _as_text(with_goals(_read(path), goals_cell(facts_of(path)))) for path in chapters(args.book)}
    index = args.book / "index.ipynb"
    pages[index] = _as_text(_with_index(_with_index(_read(index), index_map(args.book)), index_table(args.book)))
    pages[teaching] = _with_table(teaching.read_text(encoding="utf-8"), teachers_table(args.book))
    changed = [path for path, text in pages.items() if path.read_text(encoding="utf-8") != text]
    for path in changed:
        if not args.check:
            path.write_text(pages[path], encoding="utf-8")
        print(f"{'differs' if args.check else 'written'}: {path.relative_to(args.book.parent)}")
    return int(args.check and bool(changed))


if __name__ == "__main__":
    raise SystemExit(main())
