"""The page for teachers: plans hold the core chapters in an order that works, and each open exercise has a rubric."""

import re

import pytest

from d2lite.book import PARTS
from tests.book.test_book import BOOK, CHAPTERS, read
from tools.chapter_goals import facts_of

DOCS = BOOK.parent / "docs"
FACTS = {int(path.name[:2]): facts_of(path) for path in CHAPTERS}
CORE = [number for number, facts in FACTS.items() if facts["core"]]
OPEN = re.compile(r"(?m)^(\d+)\. |\*\*Exercise (\d+)\*\* \(no check\)")
LAB_MINUTES = 90


def tables(heading):
    """The tables below a heading of the page: a list of rows, each {column: cell}."""
    page = (DOCS / "teaching.md").read_text(encoding="utf-8")
    section = re.split(r"(?m)^#+ ", page.split(f"# {heading}\n")[1])[0]
    lines = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("|")]
    names, _, *rows = lines
    return [dict(zip(names, row, strict=True)) for row in rows]


def planned(heading):
    """The chapters of a plan, in order, each once."""
    return list(dict.fromkeys(int(row["chapter"]) for row in tables(heading) if row["chapter"] != "-"))


@pytest.mark.parametrize("plan", ["Two weeks", "A term with lectures"])
def test_core_chapters_are_in_the_plan_and_optional_ones_are_not(plan):
    assert planned(plan) == CORE


@pytest.mark.parametrize("plan", ["One evening", "A lab of 90 minutes"])
def test_a_short_plan_has_core_chapters_only(plan):
    assert planned(plan) and set(planned(plan)) <= set(CORE)


@pytest.mark.parametrize("plan", ["One evening", "Two weeks", "A term with lectures"])
def test_a_chapter_comes_after_those_that_it_needs(plan):
    chapters = planned(plan)
    for place, number in enumerate(chapters):
        assert set(FACTS[number]["needs"]["chapters"]) <= set(chapters[:place]), number


def test_a_core_chapter_fits_into_a_lab_or_the_page_says_what_to_leave_for_home():
    assert all(FACTS[number]["minutes"]["reading"] <= LAB_MINUTES for number in CORE)
    longer = [number for number in CORE if sum(FACTS[number]["minutes"].values()) > LAB_MINUTES]
    assert f"Chapters {' and '.join(map(str, longer))} need more with their exercises" in (
        DOCS / "teaching.md"
    ).read_text(encoding="utf-8")


def test_the_lab_gives_its_chapter_the_estimated_minutes():
    spans = [[int(n) for n in row["minutes"].split(" to ")] for row in tables("A lab of 90 minutes")]
    assert [span[0] for span in spans[1:]] == [span[1] for span in spans[:-1]]
    assert (spans[0][0], spans[-1][1]) == (0, LAB_MINUTES)
    (number,) = planned("A lab of 90 minutes")
    there = sum(
        end - start
        for (start, end), row in zip(spans, tables("A lab of 90 minutes"), strict=True)
        if row["chapter"] != "-"
    )
    assert there >= sum(FACTS[number]["minutes"].values())


def test_each_optional_chapter_has_a_place_after_what_it_needs():
    week_of = {int(row["chapter"]): int(row["week"]) for row in tables("A term with lectures") if row["chapter"] != "-"}
    optional = {}
    for row in tables("Where optional chapters fit"):
        week, *after = map(int, re.findall(r"\d+", row["not before"]))
        number = int(row["optional chapter"])
        optional[number] = week
        for needed in FACTS[number]["needs"]["chapters"]:
            assert (week_of | optional)[needed] < week and (needed in week_of or needed in after), number
    assert set(optional) == set(FACTS) - set(CORE)


def test_each_open_exercise_has_a_rubric():
    expected = []
    for path in CHAPTERS:
        text = "\n".join(cell.source for cell in read(path).cells if cell.cell_type == "markdown")
        numbers = [
            int(one or other) for one, other in OPEN.findall(text.split("## Exercises")[1].split("## Summary")[0])
        ]
        expected += [f"{int(path.name[:2])}.{number}" for number in sorted(numbers)]
    page = (DOCS / "rubrics.md").read_text(encoding="utf-8")
    assert re.findall(r"(?m)^\| (\d+\.\d+) \|", page) == expected
    for line in page.splitlines():
        if re.match(r"\| \d+\.\d+ \|", line):
            _, evidence, reason = line.strip("| ").split(" | ")
            assert evidence and reason.count("; ") >= 1, line  # two thoughts


def test_there_are_three_projects_of_20_points():
    projects = (DOCS / "rubrics.md").read_text(encoding="utf-8").split("### Project ")[1:]
    assert [sum(map(int, re.findall(r"(?m)^\| (\d+) \|", project))) for project in projects] == [20, 20, 20]


def test_students_do_not_get_the_rubrics():
    """What a course is made of are these parts of the book."""
    assert not any("docs".startswith(part.split("/")[0]) for part in PARTS)
    others = [path for path in BOOK.rglob("*") if path.suffix in (".md", ".ipynb")]
    assert len(others) > 30 and not any("rubrics.md" in path.read_text(encoding="utf-8") for path in others)


def test_the_ledger_is_not_for_marks():
    text = " ".join((DOCS / "teaching.md").read_text(encoding="utf-8").split())
    assert "are for learning, and not for marks" in text


def test_links_of_the_pages_lead_to_files():
    names = "teaching", "rubrics", "windows", "where-it-runs", "measurements"
    root = DOCS.parent
    pages = [*(DOCS / f"{name}.md" for name in names), *root.glob("packages/*/README.md")]
    for page in (*pages, root / "README.md", root / "CONTRIBUTING.md"):
        for link in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
            assert link.startswith("https://") or (page.parent / link).exists(), (page, link)
