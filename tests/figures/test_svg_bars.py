"""Bars of a picture: all as thick, hatched and outlined as the figure says, with names where there is room."""

import xml.etree.ElementTree as ET

import pytest

from d2lite import figures
from d2lite.figures.svg import figure_svg
from d2lite.trace import Event

SVG = "{http://www.w3.org/2000/svg}"
SPANS = [
    *(("forward", r, 0, 10 + r) for r in (0, 1)),
    *(("wait", r, 10 + r, 20) for r in (0, 1)),
    ("all_reduce", 1, 20, 40),
    ("update", 0, 40, 41),
]
EVENTS = [
    Event(rank=rank, kind=kind, name=f"{kind} {rank}", start_s=a / 1e3, end_s=b / 1e3, n_bytes=0)
    for kind, rank, a, b in SPANS
]


def bars(figure):
    """The rectangles of a picture without its ground."""
    root = ET.fromstring(figure_svg(figure))
    return [r for r in root.iter(f"{SVG}rect")][1:], root


def test_all_bars_are_as_thick_as_plotly_makes_them():
    figure = figures.timeline_figure(EVENTS)
    drawn, _ = bars(figure)
    lanes, height = 4, figure.layout.height - figure.layout.margin.t
    assert len(drawn) == len(EVENTS) and len({bar.get("height") for bar in drawn}) == 1
    assert float(drawn[0].get("height")) == pytest.approx(32, abs=4) and lanes * 32 < height


def test_a_wait_is_hatched_and_its_pattern_is_in_the_picture():
    drawn, root = bars(figures.timeline_figure(EVENTS))
    hatched = [bar.get("fill") for bar in drawn if bar.get("fill").startswith("url(#")]
    names = {pattern.get("id") for pattern in root.iter(f"{SVG}pattern")}
    assert len(hatched) == 2 and {fill[5:-1] for fill in hatched} <= names


def test_what_is_empty_stays_empty_and_has_its_outline():
    figure = figures.Figure()
    marker = {"color": "rgba(0,0,0,0)", "line": {"color": ["#E0102F", "#797979"], "width": [3, 0]}}
    figure.add_bar(orientation="h", x=[1, 2], y=["a", "b"], marker=marker)
    (red, plain), _ = bars(figure)
    assert (red.get("fill"), red.get("stroke"), red.get("stroke-width")) == ("none", "#E0102F", "3")
    assert plain.get("fill") == "none" and plain.get("stroke") is None


def test_a_name_is_in_its_bar_if_it_has_room():
    _, root = bars(figures.timeline_figure(EVENTS))
    texts = {"".join(text.itertext()) for text in root.iter(f"{SVG}text")}
    assert {"forward 0", "all_reduce 1"} <= texts and "update 0" not in texts and "wait 0" not in texts


def test_stacked_bars_begin_where_the_ones_before_end():
    figure = figures.Figure()
    for part in (1, 2):
        figure.add_bar(orientation="h", x=[part, None], y=["a", "b"])
    (first, second), _ = bars(figure.update_layout(barmode="stack"))
    assert float(second.get("x")) == pytest.approx(float(first.get("x")) + float(first.get("width")), abs=0.2)
    assert float(second.get("width")) == pytest.approx(2 * float(first.get("width")), rel=0.02)


def test_a_width_of_its_own_is_kept():
    figure = figures.Figure()
    figure.add_bar(orientation="h", x=[1, 1], y=[0, 1], width=0.5)
    figure.update_yaxes(range=[-0.5, 1.5])
    drawn, _ = bars(figure.update_layout(height=300, margin={"t": 40, "b": 40}))
    assert float(drawn[0].get("height")) == pytest.approx((float(drawn[0].get("y")) - float(drawn[1].get("y"))) / 2)


def test_a_text_beside_a_bar_is_that_of_its_bar():
    figure = figures.Figure()
    figure.add_bar(orientation="h", x=[1, None, 2], y=["a", "b", "c"], text=["A", "B", "C"], textposition="outside")
    (first, last), root = bars(figure)
    places = {"".join(text.itertext()): float(text.get("y")) for text in root.iter(f"{SVG}text")}
    for bar, name in ((first, "A"), (last, "C")):
        assert places[name] == pytest.approx(float(bar.get("y")) + float(bar.get("height")) / 2, abs=6)
    assert "B" not in places
