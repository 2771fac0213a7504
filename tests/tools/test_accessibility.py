"""The table of what axe-core finds, the choice of chapters, and the exit status. No browser is started here."""

import contextlib

import pytest

from tools import accessibility
from tools.accessibility import Finding, Reading, table

GREY = Finding("serious", "color-contrast", 2, ".note", "<p class='note'>")
BUTTON = Finding("critical", "button-name", 0, "button", "<button>")
HEADING = Finding("moderate", "heading-order", 0, "h5", "<h5>")


@pytest.fixture
def book(tmp_path, monkeypatch):
    """A folder with three notebooks, and what is read of them unless it is nothing: {(name, theme): reading}."""
    for name in ("01-one.ipynb", "02-two.ipynb", "index.ipynb"):
        (tmp_path / name).write_text("{}")
    found = {}

    def read(browser, address, name, themes, seconds):
        return {theme: found.get((name, theme), Reading(4, 9, [])) for theme in themes}

    monkeypatch.setattr(accessibility, "_server", lambda folder: contextlib.nullcontext("http://%s"))
    monkeypatch.setattr(accessibility, "_chromium", contextlib.nullcontext)
    monkeypatch.setattr(accessibility, "_read", read)
    return tmp_path, found


def rows(text):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]


def test_a_row_counts_the_findings_of_each_severity_and_names_the_rules_worst_first():
    found = {"01": {"light": Reading(30, 80, [HEADING, GREY, BUTTON, GREY]), "dark": Reading(30, 80, [])}}
    head, rule, light, dark = rows(table(found))
    assert head == ["chapter", "theme", "outputs", "texts", "critical", "serious", "moderate", "minor", "rules"]
    assert set(rule) == {"---"} and len(rule) == len(head)
    rules = "button-name 1, color-contrast 2, heading-order 1"
    assert light == ["01", "light", "30", "80", "1", "2", "1", "0", rules]
    assert dark == ["01", "dark", "30", "80", "0", "0", "0", "0", "none"]


def test_a_chapter_that_could_not_be_read_has_no_numbers_but_the_reason():
    *_, row = rows(table({"07": {"dark": "not read: 3 of 36 cells ran within 600 s"}}))
    assert row == ["07", "dark", *[""] * 6, "not read: 3 of 36 cells ran within 600 s"]


def test_all_chapters_in_both_themes_unless_some_are_named(book, capsys):
    folder, _ = book
    assert accessibility.main(["--book", str(folder)]) == 0
    names = [row[:2] for row in rows(capsys.readouterr().out)[2:]]
    assert names == [[n, t] for n in ("01-one.ipynb", "02-two.ipynb", "index.ipynb") for t in ("light", "dark")]
    assert accessibility.main(["--book", str(folder), "--theme", "dark", "02", "index"]) == 0
    names = [row[:2] for row in rows(capsys.readouterr().out)[2:]]
    assert names == [["02-two.ipynb", "dark"], ["index.ipynb", "dark"]]


@pytest.mark.parametrize(
    ("reading", "status", "told"),
    [
        (Reading(4, 9, [HEADING]), 0, ""),  # what is not grave is only counted
        (Reading(4, 9, [HEADING, GREY]), 1, "02-two.ipynb, dark, code cell 3: serious color-contrast"),
        ("not read: no page", 1, ""),
    ],
)
def test_it_fails_on_what_is_grave_and_on_what_was_not_read(book, capsys, reading, status, told):
    folder, found = book
    found["02-two.ipynb", "dark"] = reading
    assert accessibility.main(["--book", str(folder)]) == status
    after_the_table = [line for line in capsys.readouterr().out.splitlines() if line[:1] != "|"]
    assert after_the_table == ([told, "    .note", "    <p class='note'>"] if told else [])


def test_a_folder_without_such_notebooks_is_refused(book, capsys):
    with pytest.raises(SystemExit):
        accessibility.main(["--book", str(book[0]), "13"])
    assert "got none that begins with ['13']" in capsys.readouterr().err
