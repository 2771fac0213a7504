"""The card of a state: a colour, a mark and a word that can be read on every page."""

import re

import pytest

from d2lite.figures.card import STATES, card
from d2lite.widgets.style import card as same_card


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("state", STATES)
def test_the_word_is_there_and_readable_in_its_own_colours(state):
    html = card(state, "<b>2.5</b>")
    assert state in re.sub("<[^<>]*>", "", html) and "<b>2.5</b>" in html
    ground, ink = re.search(r"background:(#\w{6});color:(#\w{6})", html).groups()
    light, dark = sorted((luminance(ground), luminance(ink)), reverse=True)
    assert (light + 0.05) / (dark + 0.05) >= 4.5


def test_each_state_of_an_answer_has_a_mark_of_its_own():
    marks = [STATES[state][0] for state in ("right", "nearly", "wrong", "not attempted", "stopped", "diverged")]
    assert len(set(marks)) == len(marks)


def test_widgets_have_the_same_one_and_an_unknown_state_is_refused():
    assert same_card is card
    with pytest.raises(ValueError, match="state: expected one of 'right', .*, got 'great'"):
        card("great", "")
