"""The curves of predicted all-reduces are the formulas' values, in milliseconds."""

import pytest

from d2lite.labs.chapter_04 import all_reduce_figure


def test_each_formula_is_a_curve_of_milliseconds_over_bytes():
    figure = all_reduce_figure({"flat": lambda n: 0.002, "rises": lambda n: n / 1e9}, "64 devices")
    flat, rises = figure.data
    assert (flat.name, rises.name) == ("flat", "rises") and flat.line.color != rises.line.color
    assert list(flat.y) == pytest.approx([2.0] * len(flat.x))
    assert list(rises.y) == pytest.approx([n / 1e6 for n in rises.x])
    assert rises.x[0] <= 1e3 and rises.x[-1] >= 1e9
    assert figure.layout.xaxis.type == figure.layout.yaxis.type == "log"
    assert "64 devices" in figure.layout.title.text and "predicted" in figure.layout.title.text
