"""The bars of memory: the text at the end of a bar is never on the line of the device."""

import pytest

from d2lite.labs.chapter_13 import memory_bars, predict_memory


@pytest.mark.parametrize(("gb", "at"), [(10, 10), (40, 40), (50, 80), (79, 80), (80, 80), (81, 81), (200, 200)])
def test_the_text_stands_beside_the_line(gb, at):
    figure = memory_bars({"a rank": predict_memory(1e9 * gb / 16)}, 80e9)
    note = next(note for note in figure.layout.annotations if "GB" in note.text and note.xref != "paper")
    assert note.x == pytest.approx(1e9 * at) and ("fits" in note.text) == (gb <= 80)
    assert figure.layout.shapes[0].x0 == 80e9
