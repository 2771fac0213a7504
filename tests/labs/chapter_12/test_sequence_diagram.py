"""The sequence diagram: one lane a rank, the first collective that does not match in red, the line in the words."""

import pytest

pytest.importorskip("plotly")

from d2lite.figures.alternative_text import alternative_text  # noqa: E402
from d2lite.figures.palette import RED  # noqa: E402
from d2lite.figures.svg import figure_svg  # noqa: E402
from d2lite.labs.chapter_07 import CAUSES, Job, simulated_records  # noqa: E402
from d2lite.labs.chapter_12 import sequence_figure  # noqa: E402
from notebook_ranks import Collective, FlightRecord, first_mismatch  # noqa: E402


def reds(figure):
    """The bars that are red or have a red edge: [(name, lane, column)]."""
    return [
        (bar.name, lane, round(base + 0.45))
        for bar in figure.data
        if bar.marker.line.color == RED
        for lane, base in zip(bar.y, bar.base, strict=True)
    ]


@pytest.mark.parametrize("cause", CAUSES)
def test_each_cause_has_a_picture_and_only_the_mismatch_is_red(cause):
    records = simulated_records(Job(cause, 0, 1), 3)
    figure = sequence_figure(records)
    wrong = first_mismatch(records)
    assert bool(reds(figure)) == (wrong is not None)
    if wrong is not None:
        members = [rank for rank in records if not records[rank].missing]
        assert len(reds(figure)) == len(members) and len({column for *_, column in reds(figure)}) == 1
        assert "line" in alternative_text(figure).split("does not match")[1]
    assert figure_svg(figure).startswith("<svg")


def test_a_rank_that_did_not_call_has_an_empty_box_and_a_lost_rank_a_reason():
    absent = sequence_figure(simulated_records(Job("data", 1, 1), 2))
    assert {name for name, *_ in reds(absent)} == {"does not match", "not called"}
    lost = sequence_figure(simulated_records(Job("dead", 1, 1), 2))
    assert lost.layout.annotations[0].text == "no record: its process has ended"
    assert "no record: its process has ended" in alternative_text(lost)


def test_hovering_shows_what_was_called_and_where():
    figure = sequence_figure(simulated_records(Job("size", 1, 1), 2))
    bar = next(bar for bar in figure.data if bar.name == "does not match")
    assert "all_reduce no. 5 of [500] float32" in bar.hovertext[1] and "faults.py line" in bar.hovertext[1]


def test_text_from_outside_is_no_markup():
    call = Collective(
        name="<b>x", sizes=((3,),), dtype="float32", group="0", number=1, file="<i>.py", line=1, function="<u>f"
    )
    figure = sequence_figure({0: FlightRecord(0, (call,))}, title="<b>mine")
    assert "<b>" not in figure.layout.title.text and "<u>" not in figure.data[0].hovertext[0]
    assert "<b>x" not in figure.data[0].text[0]


def test_only_the_last_columns_are_shown_the_mismatch_among_them():
    calls = tuple(
        Collective(
            name="barrier", sizes=(), dtype="", group="0", number=n, file="t.py", line=1, function="f", at_s=float(n)
        )
        for n in range(1, 41)
    )
    both = {"0": (0, 1)}
    figure = sequence_figure({0: FlightRecord(0, calls, groups=both), 1: FlightRecord(1, calls[:30], groups=both)})
    assert len(figure.layout.xaxis.ticktext) == 6 and "no. 31" in figure.layout.xaxis.ticktext


def test_without_collectives():
    with pytest.raises(ValueError, match="expected the collectives of at least one rank, got none"):
        sequence_figure({0: FlightRecord(0, missing="it did not answer")})
