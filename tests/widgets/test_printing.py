"""Lines: as a terminal shows them, in linear time and bounded memory."""

import random
import sys
import time

import pytest

from d2lite.widgets.printing import Lines, printing_to


@pytest.mark.parametrize("end", ["", "\r", "\n"])
def test_many_short_prints_take_linear_time_and_bounded_room(end):
    lines = Lines()
    began = time.monotonic()
    with printing_to(lines):
        for _ in range(200_000):
            print("x", end=end)
    assert time.monotonic() - began < 8  # 0.4 s; joined in each write, it took 20 s
    assert str(lines) == {"": "x" * 10_000, "\r": "x", "\n": "\n".join("x" * 199)}[end]
    for _ in range(100_000):
        lines.write("")
    assert len(lines._pieces) <= 20_001


def test_of_a_long_line_the_end_is_kept():
    lines = Lines(width=10)
    for i in range(1000):
        lines.write(f"{i},")
    assert str(lines) == "7,998,999,"
    lines.write("a" * 100 + "b\nnext")
    assert str(lines) == "a" * 9 + "b\nnext"


def test_pieces_show_what_the_whole_text_shows():
    chance = random.Random(0)
    for _ in range(500):
        text = "".join(chance.choice("ab\r\n") for _ in range(30))
        whole, pieces = Lines(4), Lines(4)
        whole.write(text)
        for character in text:
            pieces.write(character)
        assert str(whole) == str(pieces)


def test_writelines_goes_to_the_sink_as_well(capsys):
    lines = Lines()
    with printing_to(lines):
        sys.stdout.writelines(["one\n", "two"])
    assert str(lines) == "one\ntwo" and capsys.readouterr().out == ""
