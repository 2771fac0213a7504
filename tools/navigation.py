"""The links at the beginning and the end of each notebook of the book: `python tools/navigation.py` writes them.

They are the line below the title, and the last cell. Both end with a comment that no reader sees. By it the tool finds
them again, so that running it twice changes nothing. `--check` writes nothing and names the notebooks that differ.
"""

import argparse
import json
import re
from pathlib import Path

__all__ = ["BOOK", "CELL_ID", "MARK", "links", "notebooks", "with_links"]

BOOK = Path(__file__).parents[1] / "book"
MARK = "<!-- navigation: tools/navigation.py writes this line -->"
CELL_ID = "navigation"


def notebooks(book: Path = BOOK) -> list[Path]:
    """Return the chapters, their solutions and their appendices; the index has its own links."""
    return [path for folder in (".", "solutions", "appendix") for path in sorted((book / folder).glob("[0-9]*.ipynb"))]


def _read(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))


def _short_title(path: Path) -> str:
    """Return the title of a notebook without "# ", and without what follows a colon or ", and"."""
    first = "".join(_read(path)["cells"][0]["source"]).split("\n", 1)[0]
    return re.split(r":|, and ", first.removeprefix("# "), maxsplit=1)[0].strip()


def links(path: Path, book: Path = BOOK) -> str:
    """Return the links of one notebook: a line of Markdown with paths relative to it."""
    chapters = [chapter for chapter in notebooks(book) if chapter.parent == book]
    chapter = next((other for other in chapters if other.name[:2] == path.name[:2]), None)
    if chapter is None:
        raise ValueError(f"{path} belongs to no chapter: its name must begin with the two digits of one")
    up, found = "" if path == chapter else "../", [("contents", "index.ipynb")]
    place = chapters.index(chapter)
    if path != chapter:
        found += [(f"chapter {_short_title(chapter)}", chapter.name)]
    else:
        found += [(f"← {_short_title(other)}", other.name) for other in chapters[max(0, place - 1) : place]]
        found += [(f"{_short_title(other)} →", other.name) for other in chapters[place + 1 : place + 2]]
    if path.parent.name != "solutions" and (book / "solutions" / chapter.name).exists():
        found += [("answers", f"solutions/{chapter.name}")]
    found += [("glossary", "glossary.md"), ("error messages", "messages.md")]
    return " · ".join(f"[{text}]({up}{target})" for text, target in found)


def with_links(notebook: dict, line: str) -> dict:
    """Return a notebook with this line of links below its title and in its last cell, and no other such lines."""
    cells = [cell for cell in notebook["cells"] if cell.get("id") != CELL_ID]
    title, *rest = [text for text in "".join(cells[0]["source"]).split("\n") if MARK not in text]
    if cells[0]["cell_type"] != "markdown" or not title.startswith("# "):
        raise ValueError(f"a notebook must begin with a Markdown cell whose first line is a title, got {title!r}")
    first = "\n".join([title, f"{line} {MARK}", *rest])
    end = {"cell_type": "markdown", "id": CELL_ID, "metadata": {}, "source": [f"{line} {MARK}"]}
    return notebook | {"cells": [cells[0] | {"source": first.splitlines(keepends=True)}, *cells[1:], end]}


def main(arguments: list[str] | None = None) -> int:
    """Write the links of all notebooks; return 1 if `--check` found notebooks that differ."""
    parser = argparse.ArgumentParser(description="Write the links at the beginning and end of the book's notebooks.")
    parser.add_argument("--check", action="store_true", help="write nothing, exit with 1 if a notebook would change")
    parser.add_argument("--book", type=Path, default=BOOK, help="the folder of the book")
    args = parser.parse_args(arguments)
    changed = []
    for path in notebooks(args.book):
        notebook = _read(path)
        new = with_links(notebook, links(path, args.book))
        if new != notebook:
            changed.append(path)
            if not args.check:
                path.write_text(json.dumps(new, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for path in changed:
        print(f"{'differs' if args.check else 'written'}: {path.relative_to(args.book)}")
    return int(args.check and bool(changed))


if __name__ == "__main__":
    raise SystemExit(main())
