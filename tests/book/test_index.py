"""The index: it starts a training, its map says what is true of every chapter, and its links lead somewhere."""

import re
from pathlib import Path

import nbformat
import pytest

from tests.book.test_book import APPENDIX, BOOK, CHAPTERS, SOLUTIONS, code_cells, read
from tools import reading_minutes
from tools.chapter_goals import index_map, index_table

INDEX = BOOK / "index.ipynb"
EACH_CHAPTER = pytest.mark.parametrize("path", CHAPTERS, ids=lambda p: p.stem)


def text():
    return "\n".join(cell.source for cell in read(INDEX).cells if cell.cell_type == "markdown")


def rows():
    """The rows of the map: {file name: [cells]}."""
    found = {}
    for line in text().splitlines():
        link = re.match(r"\| \[[^]]*\]\((\d\d-[^)]*\.ipynb)\)", line)
        if link:
            found[link[1]] = [cell.strip() for cell in line.strip("|").split("|")]
    return found


def test_nothing_is_committed_but_the_cells():
    notebook = read(INDEX)
    nbformat.validate(notebook)
    assert notebook.metadata.kernelspec.name == "python3" and "widgets" not in notebook.metadata
    assert len({cell.id for cell in notebook.cells}) == len(notebook.cells)
    for cell in code_cells(INDEX):
        assert cell.outputs == [] and cell.execution_count is None and len(cell.source.splitlines()) <= 25


def test_a_panel_that_trains_stands_before_everything_else():
    """One line, then the training: its cell needs no other one, and shows no code."""
    first, second = read(INDEX).cells[:2]
    assert first.cell_type == "markdown" and len(first.source) < 200
    assert second.cell_type == "code" and "panel.train.click()" in second.source
    assert second.source.rstrip().endswith("\npanel") and second.metadata.jupyter.source_hidden
    assert read(INDEX).cells[3].source == code_cells(CHAPTERS[0])[0].source  # for Colab


def test_the_map_has_every_chapter_in_order():
    assert list(rows()) == [path.name for path in CHAPTERS]
    for name, cells in rows().items():
        assert cells[1].endswith("?") and re.search(r"\((core|optional)\)$", cells[0]), name


def test_the_tables_are_made_from_the_metadata_of_the_chapters():
    for table in (index_map(), index_table()):
        assert table in text(), "run: python tools/chapter_goals.py"


def test_what_is_long_is_folded():
    """The map by path is seen at once; all chapters and all answers are opened by those who look for them."""
    seen = re.sub(r"<details>.*?</details>", "", text(), flags=re.DOTALL)
    assert index_map() in seen and index_table() not in seen and "](solutions/" not in seen
    assert len(re.findall(r"(?m)^<details>\n<summary>.+</summary>\n\n", text())) == text().count("<details>") == 3


@EACH_CHAPTER
def test_the_minutes_follow_one_rule(path):
    reading, exercises = map(int, re.findall(r"\d+", rows()[path.name][3]))
    assert reading == reading_minutes.of_chapter(path), "metadata.d2lite.minutes.reading: tools/reading_minutes.py"
    checks = [cell for cell in code_cells(path) if re.search(r"(?m)^check\(", cell.source)]
    assert exercises >= 10 * len(checks)


@EACH_CHAPTER
def test_a_sitting_is_no_longer_than_an_hour(path):
    longest = max(reading_minutes.of_sittings(path))
    assert longest <= reading_minutes.LONGEST + 2.5, "shorten it, or give a cell the tag `stop`"


def test_minutes_are_called_estimated():
    assert "Minutes are estimated" in text()


def test_a_core_chapter_needs_no_optional_one():
    kinds = {int(name[:2]): re.search(r"\((\w+)\)$", cells[0])[1] for name, cells in rows().items()}
    for name, cells in rows().items():
        for needed in map(int, re.findall(r"\d+", cells[2])):
            assert needed < int(name[:2])
            assert not (kinds[int(name[:2])] == "core" and kinds[needed] == "optional"), name


def test_every_core_chapter_is_in_the_two_weeks_of_class():
    plan = text().split("**Two weeks of class.**")[1].split("Chapters 3 and 9")[0]
    for name, cells in rows().items():
        if cells[0].endswith("(core)"):
            assert name in plan, name


def test_three_paths():
    for path in ("one evening", "two weeks of class", "two gpus and a deadline"):
        assert path in text().lower()


def test_every_link_leads_to_a_file():
    for link in set(re.findall(r"\]\(([^)#]+)", text())):
        assert "://" not in link and (BOOK / link).is_file(), link


def test_solutions_appendices_glossary_and_messages_are_one_click_away():
    linked = set(re.findall(r"\]\(([^)#]+)", text()))
    others = [path.relative_to(BOOK).as_posix() for path in (*SOLUTIONS, *APPENDIX)]
    assert {*others, "glossary.md", "messages.md"} <= linked


def test_the_ledger_is_read_and_not_typed_in():
    (cell,) = [cell for cell in code_cells(INDEX) if "read_ledger()" in cell.source]
    assert not re.search(r"\d", cell.source.replace("d2lite", ""))
    assert Path(INDEX).stat().st_size < 50_000
