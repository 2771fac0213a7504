"""The bugs of a script in chapter 11: each differs from the right script, and the rehearsal says what the page says."""

import os
import re
import tempfile
from pathlib import Path

import pytest

from d2lite import book_root
from ddp_rehearsal import report_text
from tests.book.test_book import BOOK, read

pytestmark = pytest.mark.skipif(os.name == "nt", reason="ranks need Linux or macOS")
CELLS = {cell.id: cell.source for cell in read(BOOK / "11-bug-museum.ipynb").cells}
SCRIPT = book_root() / "book" / "scripts" / "small_ddp.py"


def of_the_chapter():
    """The names that the cells with the bugs define."""
    names = {"tempfile": tempfile, "Path": Path, "script": SCRIPT}
    for cell in ("script-bugs", "rehearsed"):
        exec(CELLS[cell], names)  # cells of this repository
    return names


NAMES = of_the_chapter()
ROWS = dict(re.findall(r"(?m)^\| (\w[^|]*?) \| ([^|]*?) \| [^|]* \|$", CELLS["script-table"]))
# {bug: (whether there is a finding, what the report says)}
SAID = {
    "clipped before the reduction": (False, "each rank clips its own gradients, and they are averaged after"),
    "frozen after wrapping": (True, "(ranks 0, 1, step 2, train.py line 44)"),
    "lr for the minibatch of one rank": (False, "Global minibatch: 32 = 2 × 16 rows. SGD, learning rate 0.1."),
    "lr scaled twice, on resume": (False, "Global minibatch: 32 = 2 × 16 rows. SGD, learning rate 0.4."),
    "loss of rank 0 alone": (False, "Global minibatch: 32 = 2 × 16 rows. SGD, learning rate 0.2."),
    "same noise on each rank": (False, "Global minibatch: 32 = 2 × 16 rows. SGD, learning rate 0.2."),
}


def test_each_bug_is_one_change_of_the_script_and_has_a_row():
    code = SCRIPT.read_text()
    assert list(NAMES["SCRIPT_BUGS"]) == list(SAID)
    assert [row for row in ROWS if row != "bug"] == list(SAID)[1:]  # the first one has its report on the page
    for right, wrong in NAMES["SCRIPT_BUGS"].values():
        assert code.count(right) == 1 and right != wrong
        compile(code.replace(right, wrong), "train.py", "exec")


@pytest.mark.slow
@pytest.mark.parametrize("bug", SAID)
def test_the_rehearsal_says_what_the_page_says(bug):
    found, (has_finding, said) = NAMES["rehearsed"](bug), SAID[bug]
    assert found.error == "" and bool(found.findings) == has_finding == found.exit_code, report_text(found)
    assert said in report_text(found)
    if bug not in ROWS:  # the first one has its report on the page
        return
    assert has_finding == ("finding" in ROWS[bug])
    nothing = ROWS[bug] == "nothing"  # else it is a fact: a learning rate that the right script has not
    assert nothing == (not has_finding and "learning rate 0.2" in said)


@pytest.mark.slow
def test_the_right_script_has_no_finding_and_the_same_facts_as_the_bugs_that_a_rehearsal_cannot_see():
    found = NAMES["rehearsed"]()
    assert found.exit_code == 0 and found.steps == 16, report_text(found)
    assert found.facts[0] == SAID["same noise on each rank"][1]


@pytest.mark.slow
def test_the_first_note_of_the_clip_names_its_line_and_the_second_is_of_the_right_script_too():
    first, second = NAMES["rehearsed"]("clipped before the reduction").notes
    lines = SCRIPT.read_text().splitlines()
    assert "clip_grad_norm_" in lines[first.place[1] - 1] and first.ranks == (0, 1)
    assert "privacy" in first.repair and [note.words for note in NAMES["rehearsed"]().notes] == [second.words]
