"""The links at the beginning and the end of each notebook: up to date, leading somewhere, and nothing else changes."""

import copy
import json
import re
import shutil

import pytest

from tools import navigation
from tools.navigation import BOOK, CELL_ID, MARK

NOTEBOOKS = navigation.notebooks()
CHAPTERS = [path for path in NOTEBOOKS if path.parent == BOOK]
EACH = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: str(p.relative_to(BOOK)))


def cells(path):
    return json.loads(path.read_text())["cells"]


def targets(line):
    return re.findall(r"\]\(([^)]+)\)", line)


@pytest.fixture
def small_book(tmp_path):
    """Two chapters, a solution and an appendix, without links."""

    def write(name, *sources):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        made = [{"cell_type": "markdown", "id": f"c{i}", "metadata": {}, "source": [s]} for i, s in enumerate(sources)]
        path.write_text(json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))

    write("01-first.ipynb", "# 1 First: a start\n\nText.", "End.")
    write("02-second.ipynb", "# 2 Second, and more\n\nText.", "End.")
    write("solutions/01-first.ipynb", "# 1 First: answers\n\nText.")
    write("appendix/02-more.ipynb", "# Appendix to chapter 2: more\n\nText.")
    write("index.ipynb", "# Index")
    return tmp_path


@EACH
def test_each_notebook_begins_and_ends_with_links_that_lead_somewhere(path):
    first, last = cells(path)[0], cells(path)[-1]
    lines = "".join(first["source"]).split("\n")
    assert lines[0].startswith("# ")  # the title stays the first thing seen
    assert lines[1].endswith(MARK) and last["id"] == CELL_ID and "".join(last["source"]) == lines[1]
    assert lines[1] == f"{navigation.links(path)} {MARK}", "run: python tools/navigation.py"
    for target in targets(lines[1]):
        assert not target.startswith("/") and (path.parent / target).is_file(), target


@EACH
def test_contents_glossary_and_messages_are_one_click_away(path):
    found = {
        (path.parent / target).resolve().relative_to(BOOK).as_posix() for target in targets(navigation.links(path))
    }
    assert {"index.ipynb", "glossary.md", "messages.md"} <= found
    (chapter,) = [other for other in CHAPTERS if other.name[:2] == path.name[:2]]
    if path != chapter:
        assert chapter.name in found
    if path.parent.name != "solutions":
        assert f"solutions/{chapter.name}" in found


def test_the_chapters_are_one_path_in_both_directions():
    for one, other in zip(CHAPTERS, CHAPTERS[1:], strict=False):
        assert other.name in targets(navigation.links(one)) and one.name in targets(navigation.links(other))
    assert CHAPTERS[-1].name not in targets(navigation.links(CHAPTERS[0]))


def test_it_writes_once_and_then_nothing(small_book, capsys):
    assert navigation.main(["--check", "--book", str(small_book)]) == 1
    assert len(capsys.readouterr().out.splitlines()) == 4 and len(cells(small_book / "01-first.ipynb")) == 2
    assert navigation.main(["--book", str(small_book)]) == 0
    written = {path: path.read_bytes() for path in navigation.notebooks(small_book)}
    assert capsys.readouterr().out.count("written") == 4
    assert navigation.main(["--book", str(small_book)]) == navigation.main(["--check", "--book", str(small_book)]) == 0
    assert capsys.readouterr().out == "" and written == {path: path.read_bytes() for path in written}
    first, text, end = ["".join(cell["source"]) for cell in cells(small_book / "01-first.ipynb")]
    line = "[contents](index.ipynb) · [2 Second →](02-second.ipynb) · [answers](solutions/01-first.ipynb)"
    assert first.startswith(f"# 1 First: a start\n{line}") and first.endswith("\n\nText.") and text == "End."
    assert end.startswith(line)


def test_old_links_are_replaced_and_the_last_cell_moves_to_the_end(small_book):
    navigation.main(["--book", str(small_book)])
    path = small_book / "01-first.ipynb"
    notebook = json.loads(path.read_text())
    added = {"cell_type": "code", "id": "new", "metadata": {}, "source": ["1"], "outputs": [], "execution_count": None}
    path.write_text(json.dumps(notebook | {"cells": [*notebook["cells"], added]}))
    shutil.copy(small_book / "02-second.ipynb", small_book / "03-third.ipynb")
    (small_book / "02-second.ipynb").unlink()
    shutil.rmtree(small_book / "appendix")
    navigation.main(["--book", str(small_book)])
    assert [cell["id"] for cell in cells(path)] == ["c0", "c1", "new", CELL_ID]
    assert path.read_text().count("navigation.py") == 2 and "02-second" not in path.read_text()


def test_the_rest_of_a_notebook_stays_as_it_is():
    notebook = json.loads(CHAPTERS[0].read_text())
    before = copy.deepcopy(notebook)
    new = navigation.with_links(notebook, "[a](b)")
    assert notebook == before and new["cells"][1:-1] == before["cells"][1:-1]
    assert new["metadata"] == before["metadata"]


def test_a_notebook_without_a_title_or_a_chapter_is_refused(small_book):
    with pytest.raises(ValueError, match="must begin with a Markdown cell whose first line is a title, got 'no title'"):
        navigation.with_links({"cells": [{"cell_type": "markdown", "id": "a", "source": ["no title"]}]}, "[a](b)")
    stray = small_book / "appendix" / "07-stray.ipynb"
    with pytest.raises(ValueError, match="belongs to no chapter: its name must begin with the two digits of one"):
        navigation.links(stray, small_book)
