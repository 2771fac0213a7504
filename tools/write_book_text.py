"""Write the text that chapter 13 trains on: `python -m tools.write_book_text` makes d2lite/data/book.txt.

It is the prose of chapters 1 to 12, taken from their Markdown: no code, links, tables or drawings, ASCII only. The
file is committed and does not follow the chapters, so that a later edit of a page changes no loss of chapter 13.
"""

import json
import re
from pathlib import Path

__all__ = ["main", "prose"]

ROOT = Path(__file__).resolve().parents[1]
BOOK = ROOT / "book"
TEXT = ROOT / "d2lite" / "data" / "book.txt"
ASCII = str.maketrans({"→": "->", "×": "x", "–": "-", "—": "-", "“": '"', "”": '"', "’": "'", "…": "...", "·": "*"})


def prose(markdown: str) -> str:
    """Return the text of some Markdown: without code blocks, drawings, tables, the targets of links, and marks."""
    text = re.sub(r"```.*?```|\$\$.*?\$\$|<[^>\n]*>|!\[[^]]*\]\([^)]*\)", "", markdown, flags=re.S)
    text = re.sub(r"\$([^$\n]*)\$", lambda formula: formula[1].replace("\\", ""), text)
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text)
    lines = [re.sub(r"^#+ |[*`]", "", line).rstrip() for line in text.splitlines() if not line.startswith("|")]
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()
    return text.translate(ASCII).encode("ascii", "ignore").decode("ascii")


def main() -> None:
    """Write the file anew from the chapters 1 to 12."""
    pages = []
    for path in sorted(BOOK.glob("[01]*.ipynb"))[:12]:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        words = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
        pages.append("\n\n".join(filter(None, (prose(text) for text in words if "tools/navigation.py" not in text))))
    TEXT.write_text("\n\n".join(pages) + "\n", encoding="ascii")
    print(f"{TEXT.relative_to(ROOT)}: {TEXT.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
