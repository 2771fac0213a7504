"""What was solved, as text."""

import json

import pytest

from d2lite.exercises import all_exercises
from d2lite.exercises.progress_report import progress_report
from d2lite.learner_ledger import FILE


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.delenv("D2LITE_LEDGER", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(folder, **sections):
    (folder / FILE).write_text(json.dumps(sections))


def test_what_was_solved_tried_and_predicted_by_chapter(folder):
    exercises = {
        "1.1": {"solved": True, "right": 7, "total": 7},
        "1.2": {"solved": False, "right": 3, "total": 5},
        "mine.1": {"solved": True, "right": 2, "total": 2},
    }
    predictions = {
        "1.1": {"answers": [47.0]},
        "1.2": {"answers": []},
        "2.1": {"answers": ["yes", "no"]},
        "x": {"answers": [1]},
    }
    write(folder, exercises=exercises, predictions=predictions)
    lines = progress_report().splitlines()
    assert lines[0] == f"2 of {len(all_exercises()) + 1} exercises solved, 3 predictions made ({folder / FILE})"
    assert "chapter 1: 1 of 3 solved, 1 prediction made" in lines
    assert "  1.1   solved, 7 cases         Data parallelism: what is sent, and what a device holds" in lines
    assert any(line.startswith("  1.2   3 of 5 cases right      From which batch size") for line in lines)
    assert any(line.startswith("  1.3   not tried               A linear layer") for line in lines)
    assert "chapter 2: 0 of 3 solved, 1 prediction made" in lines
    assert lines[-2:] == ["others: 1 of 1 solved, 1 prediction made", "  mine.1  solved, 2 cases"]
    assert [line.split(":")[0] for line in lines if line.startswith("chapter")] == [
        f"chapter {i}" for i in range(1, 18)
    ]


def test_the_folder_or_the_file_is_an_argument(folder):
    (folder / "mine").mkdir()
    write(folder / "mine", exercises={"1.1": {"solved": True}})
    for argument in (str(folder / "mine"), "mine", f"mine/{FILE}"):
        assert progress_report(argument).startswith("1 of ")
    assert "solved" in progress_report("mine").splitlines()[3]


def test_no_ledger(folder, monkeypatch):
    text = progress_report()
    assert text.startswith(f"No ledger: there is no {folder / FILE}. Nothing was checked or predicted")
    assert text.endswith("progress FOLDER")
    (folder / "book").mkdir()
    write(folder / "book")
    assert progress_report().endswith(f"There is one here: python -m d2lite progress {folder / 'book'}")
    with pytest.raises(FileNotFoundError, match="expected a folder with notebooks, got none, which does not exist"):
        progress_report("none")
    monkeypatch.setenv("D2LITE_LEDGER", "off")
    assert progress_report() == "Nothing is kept: the variable D2LITE_LEDGER is off."


@pytest.mark.parametrize("text", ["", "{", "[]", '{"exercises": []}', "\udcff", "[" * 100_000])
def test_a_damaged_ledger(folder, text):
    (folder / FILE).write_text(text, errors="surrogateescape")
    with pytest.raises(ValueError, match=FILE):
        progress_report()


def test_odd_entries_count_as_not_solved(folder):
    odd = {
        "1.1": {"solved": "yes", "right": "\x1b[31m", "total": 10**400},
        "1.2": 3,
        "1.3": {"right": 10**400, "total": 1},
    }
    write(
        folder, exercises={**odd, "\x1b]0;title\x07": {}, "x" * 10_000: {}}, predictions={"": {"answers": 1}, "1": []}
    )
    text = progress_report()
    assert text.startswith("0 of ") and "\x1b" not in text and "x" * 200 not in text
    assert "  1.1   tried" in text and "  1.2   not tried" in text and "  1.3   tried" in text
