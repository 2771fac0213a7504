"""Goals, minutes, what to hand in: the pages say what the metadata of the chapters says, and the metadata is true."""

import json
import re
import shutil

import pytest

from tools import chapter_goals
from tools.chapter_goals import BOOK, CELL_ID, facts_of

CHAPTERS = chapter_goals.chapters()
EACH = pytest.mark.parametrize("path", CHAPTERS, ids=lambda p: p.stem)
STARTS_RANKS = re.compile(r"\bWorkers\(|\bhosts\.loopback\(")
OPEN = re.compile(r"(?m)^(\d)\. |\*\*Exercise (\d)\*\* \(no check\)")


def cells(path):
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


def source(path, kind="code"):
    return "\n".join("".join(cell["source"]) for cell in cells(path) if cell["cell_type"] == kind)


def numbers(text):
    """The numbers in "1 to 3, and 4 or 7": {1, 2, 3, 4, 7}."""
    ranges = re.sub(r"(\d+) to (\d+)", lambda m: " ".join(map(str, range(int(m[1]), int(m[2]) + 1))), text)
    return set(map(int, re.findall(r"\d+", ranges)))


@pytest.fixture
def copy(tmp_path):
    """A book of the first two chapters, with its index and the page for teachers."""
    for name in (*[path.name for path in CHAPTERS[:2]], "index.ipynb"):
        (tmp_path / "book").mkdir(exist_ok=True)
        shutil.copy(BOOK / name, tmp_path / "book" / name)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "teaching.md").write_text(f"before\n{chapter_goals.TABLE}\n{chapter_goals.TABLE}\nafter\n")
    return tmp_path / "book"


@EACH
def test_the_second_cell_of_a_chapter_is_its_metadata_in_words(path):
    goals = cells(path)[1]
    assert goals["id"] == CELL_ID and goals["cell_type"] == "markdown"
    assert "".join(goals["source"]) == chapter_goals.goals_cell(facts_of(path)), "run: python tools/chapter_goals.py"


def test_all_pages_are_up_to_date(capsys):
    assert chapter_goals.main(["--check"]) == 0 and capsys.readouterr().out == ""


@EACH
def test_what_is_handed_in_is_in_the_chapter(path):
    """All exercises with a check, the gaps, and open exercises that exist."""
    text, hand_in = source(path, "markdown"), facts_of(path)["hand_in"]
    checked = {int(n) for n in re.findall(rf'check\("{int(path.name[:2])}\.(\d+)"', source(path))}
    without = {int(one or other) for one, other in OPEN.findall(text.split("## Exercises")[1])}
    always, _, choice = hand_in.partition("open exercise")
    assert numbers(always) == checked and numbers(choice) <= without
    gaps = len(re.findall(r"(?m)^(?:#+ |\*\*)Your turn", text))
    assert ("*Your turn*" in hand_in) == (gaps > 0) and hand_in.startswith("both") == (gaps == 2)


@EACH
def test_a_chapter_says_whether_it_starts_ranks(path):
    facts = facts_of(path)
    assert facts["ranks"] == bool(STARTS_RANKS.search(source(path)))
    assert facts["ranks"] == ("On Windows" in chapter_goals.goals_cell(facts))


def test_pages_and_index_name_the_chapters_with_ranks():
    have_ranks = {int(path.name[:2]) for path in CHAPTERS if facts_of(path)["ranks"]}
    pages = [BOOK.parent / name for name in ("README.md", "docs/where-it-runs.md", "docs/windows.md")]
    for page in (*pages, BOOK / "index.ipynb"):
        said = re.findall(r"Chapters (\d+ to \d+ and \d+ to \d+)", " ".join(page.read_text(encoding="utf-8").split()))
        assert said and all(numbers(words) == have_ranks for words in said), page


@EACH
def test_goals_are_few_and_short(path):
    goals = facts_of(path)["goals"]
    assert 2 <= len(goals) <= 4 and all(len(goal) < 140 and not goal.endswith(".") for goal in goals)


def test_it_writes_once_and_then_nothing(copy, capsys):
    path = copy / CHAPTERS[0].name
    notebook = json.loads(path.read_text())
    notebook["metadata"]["d2lite"]["goals"] = ["count", "choose"]
    path.write_text(chapter_goals._as_text(notebook))
    assert chapter_goals.main(["--book", str(copy), "--check"]) == 1
    assert capsys.readouterr().out.split() == [
        word for name in (f"book/{path.name}", "book/index.ipynb", "docs/teaching.md") for word in ("differs:", name)
    ]
    assert chapter_goals.main(["--book", str(copy)]) == 0
    assert "- count;\n- choose.\n" in "".join(cells(path)[1]["source"])
    assert cells(path)[2:] == cells(CHAPTERS[0])[2:] and cells(path)[0] == cells(CHAPTERS[0])[0]
    page = (copy.parent / "docs" / "teaching.md").read_text()
    assert page.startswith("before\n") and page.endswith("\nafter\n") and page.count("(../book/0") == 2
    assert source(copy / "index.ipynb", "markdown").count("(core) |") == 2  # the map has lost the other chapters
    written = [path.read_bytes() for path in copy.glob("*.ipynb")]
    capsys.readouterr()
    assert chapter_goals.main(["--book", str(copy), "--check"]) == chapter_goals.main(["--book", str(copy)]) == 0
    assert capsys.readouterr().out == "" and written == [path.read_bytes() for path in copy.glob("*.ipynb")]


def test_the_map_has_each_chapter_once_and_nothing_is_read_before_what_it_needs():
    facts = {int(path.name[:2]): facts_of(path) for path in CHAPTERS}
    assert sorted(number for path in chapter_goals.PATHS.values() for number in path) == list(facts)
    core = chapter_goals.PATHS[chapter_goals.CORE]
    assert list(core) == [number for number, of in facts.items() if of["core"]]
    for path in chapter_goals.PATHS.values():
        for place, number in enumerate(path):
            known = {*path[:place], *(core if path != core else ())}
            assert set(facts[number]["needs"]["chapters"]) <= known, number
    sums = [[int(n) for n in row.split("|")[3].split("+")] for row in chapter_goals.index_map().splitlines()[2:]]
    assert [sum(of) for of in zip(*sums, strict=True)] == [
        sum(of["minutes"][what] for of in facts.values()) for what in ("reading", "exercises")
    ]


def test_metadata_that_is_missing_is_named(copy):
    path = copy / CHAPTERS[1].name
    notebook = json.loads(path.read_text())
    notebook["metadata"]["d2lite"]["goals"] = "all"
    path.write_text(json.dumps(notebook))
    with pytest.raises(ValueError, match=r"02-data.*: expected metadata.d2lite.goals to be a list, got 'all'"):
        facts_of(path)


def test_a_page_without_a_place_for_the_table_is_refused(copy):
    (copy.parent / "docs" / "teaching.md").write_text("no marks")
    with pytest.raises(ValueError, match="expected two lines .* in docs/teaching.md, got 0"):
        chapter_goals.main(["--book", str(copy)])
    assert cells(copy / CHAPTERS[0].name)[1]["id"] == CELL_ID
    index = json.loads((copy / "index.ipynb").read_text())
    with pytest.raises(ValueError, match="expected one table in the index .* got 0"):
        chapter_goals._with_index(index | {"cells": index["cells"][:3]}, chapter_goals.index_table(copy))
