"""The functions of a laboratory that a chapter shows are the same code there, docstrings and types aside."""

from pathlib import Path

import pytest

from tests.book.test_book import APPENDIX, CHAPTERS, SOLUTIONS, code_cells, functions, plain

LABS = Path(__file__).parents[2] / "book" / "labs"
KEPT = {
    (str(path.relative_to(LABS)), name): tree
    for path in sorted(LABS.rglob("*.py"))
    for name, tree in functions(path.read_text()).items()
    if not name.startswith("_")
}
# at least so many
SHOWN = {"chapter_01": 1, "chapter_10": 4, "chapter_13": 15, "chapter_14": 17, "chapter_15": 9, "chapter_17": 10}


def shown_in(path):
    found = {}
    for cell in code_cells(path):
        found |= functions(plain(cell.source))
    return found


@pytest.mark.parametrize("path", CHAPTERS + SOLUTIONS + APPENDIX, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_the_code_that_is_read_is_the_code_that_runs(path):
    shown = shown_in(path)
    differ = [place for place, tree in KEPT.items() if shown.get(place[1], tree) != tree]
    assert differ == []


def test_chapters_show_their_laboratories():
    shown = {chapter: shown_in(chapter) for chapter in CHAPTERS}
    for lab, least in SHOWN.items():
        (chapter,) = [path for path in CHAPTERS if path.name[:2] == lab[-2:]]
        own = {name: tree for (file, name), tree in KEPT.items() if file.startswith(lab)}
        same = [name for name, tree in own.items() if shown[chapter].get(name) == tree]
        assert len(same) >= least, (lab, same)
