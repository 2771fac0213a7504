"""What changes to published runs brought, beside the model; and what the appendices say about both tables."""

import json

import pytest

from d2lite import book_root
from d2lite.labs.chapter_13 import PUBLISHED_MEMORY
from d2lite.labs.chapter_16 import PUBLISHED_CHANGES


def text_of(chapter, cell_id):
    file = next((book_root() / "book" / "appendix").glob(f"{chapter}-*.ipynb"))
    notebook = json.loads(file.read_text(encoding="utf-8"))
    return "".join(next(cell["source"] for cell in notebook["cells"] if cell["id"] == cell_id))


@pytest.mark.parametrize("change", PUBLISHED_CHANGES, ids=lambda change: change.name)
def test_a_change_is_predicted_within_four_percent(change):
    assert change.published < 1 and abs(change.difference) < 0.041


def test_the_appendices_say_how_many_are_close():
    close = sum(abs(change.difference) < 0.02 for change in PUBLISHED_CHANGES)
    assert (close, len(PUBLISHED_CHANGES)) == (10, 11)
    assert text_of(16, "changes-after").startswith("Ten of the eleven changes are within 2%.")
    near = [run for run in PUBLISHED_MEMORY if abs(run.difference) < 0.15]
    far = [run for run in PUBLISHED_MEMORY if run not in near]
    assert (len(near), len(PUBLISHED_MEMORY)) == (8, 10)
    assert all(-0.23 < run.difference < -0.2 for run in far)
    assert text_of(13, "published-read").startswith("Eight of the ten are within 15%, and two are a fifth below.")
