"""A figure that follows controls: drawn at once, again at each change, in words, and refused where it is none."""

import ipywidgets
import pytest

from d2lite.figures import Figure
from d2lite.labs.chapter_10 import FigureExplorer


def line(slope, offset=0):
    return Figure({"data": [{"type": "scatter", "name": "line", "x": [0, 1], "y": [offset, slope + offset]}]})


def explorer(**controls):
    return FigureExplorer(line, slope=ipywidgets.IntSlider(2), **controls)


def test_it_is_drawn_at_once_and_follows_its_controls():
    shown = explorer(offset=ipywidgets.IntSlider(0))
    assert list(shown.figure.data[0].y) == [0, 2]
    shown.controls["slope"].value = 3
    shown.controls["offset"].value = 1
    assert list(shown.figure.data[0].y) == [1, 4]
    assert "line: 2 points, from 1 at 0 to 4 at 1" in shown.plot.alternative_text
    assert repr(shown) == f"FigureExplorer\n{shown.plot.alternative_text}"


def test_its_picture_is_that_of_now():
    shown = explorer()
    shown.controls["slope"].value = 5
    html = shown._draw_static()
    assert html.startswith("<img alt=") and "to 5 at 1" in html and "<p>" not in html


def test_what_is_no_figure_and_no_control_is_named():
    with pytest.raises(TypeError, match="draw: expected a plotly figure, got list. Return the figure."):
        FigureExplorer(lambda slope: [slope], slope=ipywidgets.IntSlider(2))
    with pytest.raises(TypeError, match="slope: expected a control of ipywidgets with a value, got 2"):
        FigureExplorer(line, slope=2)
