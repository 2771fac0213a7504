"""The index: it starts a training, its map says what is true of every chapter, and its links lead somewhere."""

import re
from pathlib import Path

import nbformat

from tests.book.test_book import APPENDIX, BOOK, CHAPTERS, SOLUTIONS, code_cells, read
from tools.chapter_goals import index_table
from tools.reading_minutes import of_chapter

INDEX = BOOK / "index.ipynb"
WORDS_PER_MINUTE, LINES_PER_MINUTE, MINUTES_PER_EXERCISE = 150, 15, 10


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


def estimated(path):
    """(minutes to read, minutes to work) of a chapter, by one rule for all."""
    texts = [cell.source for cell in read(path).cells if cell.cell_type == "markdown"]
    words = sum(len(re.sub(r"!\[[^]]*]", "", text).split()) for text in texts)  # a drawing is looked at
    lines = sum(len(cell.source.splitlines()) for cell in code_cells(path) if not cell.id.startswith("exercise"))
    exercises = sum(cell.id.startswith("exercise") and cell.id.endswith("-check") for cell in code_cells(path))
    return words / WORDS_PER_MINUTE + lines / LINES_PER_MINUTE, exercises * MINUTES_PER_EXERCISE


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


def test_the_map_is_made_from_the_metadata_of_the_chapters():
    assert index_table() in text(), "run: python tools/chapter_goals.py"


def test_the_minutes_follow_one_rule_and_are_called_estimated():
    assert "Minutes are estimated" in text()
    for name, cells in rows().items():
        reading, exercises = map(int, re.findall(r"\d+", cells[3]))
        of_words, of_exercises = estimated(BOOK / name)
        assert reading == of_chapter(BOOK / name) or abs(reading - of_words) <= 6, (name, reading, of_words)
        assert abs(exercises - of_exercises) <= 6, (name, exercises, of_exercises)


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
