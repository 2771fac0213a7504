"""Static pictures beside plotly's own rendering of the same figures: bars at the same places, as thick and filled."""

import json
from pathlib import Path

import plotly
import pytest

from d2lite import figures
from d2lite.costs import Device, Link
from d2lite.figures.svg import figure_svg
from d2lite.labs.chapter_12 import sequence_figure
from d2lite.labs.chapter_13 import MEMORY_MODELS
from d2lite.labs.chapter_16 import Mesh, mesh_step_figure, predict_mesh_step
from notebook_ranks.flight_recorder import Collective, FlightRecord
from tests.figures.test_svg_bars import EVENTS

pytestmark = pytest.mark.slow
PLOTLY = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
# {x, y, width, height, is hatched, is empty} of the bars of a drawing, in pixels from the first bar's left top
BARS = """selector => {
  const found = [...document.querySelectorAll(selector)].map(e => {
    const box = e.getBoundingClientRect(), style = getComputedStyle(e), line = parseFloat(style.strokeWidth) || 0;
    const outline = style.stroke === 'none' ? 0 : line, fill = style.fill;
    const empty = fill === 'none' || fill === 'rgba(0, 0, 0, 0)' || parseFloat(style.fillOpacity) === 0;
    return [box.x, box.y, box.width, box.height, fill.includes('url'), empty && !fill.includes('url')];
  }).filter(b => b[2] > 1);
  return found;
}"""


def call(name, number):
    return Collective(name, ((1000,),), "float32", "0", number, "train.py", 10, "step", 0.001 * number)


RECORDS = {
    0: FlightRecord(0, (call("all_reduce", 1), call("barrier", 2)), (), "error"),
    1: FlightRecord(1, (call("all_reduce", 1),), (), "error"),
}
STEP = predict_mesh_step(MEMORY_MODELS[2], Mesh(2, 2, 4), 16, Device(4e14), Link(1e-5, 1e9))
FIGURES = {
    "timeline": lambda: figures.timeline_figure(EVENTS),
    "explained": lambda: figures.timeline_figure(EVENTS, explain=True),
    "sequence": lambda: sequence_figure(RECORDS),
    "stacked": lambda: mesh_step_figure({"mine": STEP, "whole": 3.0}),
}


@pytest.mark.parametrize("name", FIGURES)
def test_bars_are_where_plotly_draws_them(page, name):
    figure = FIGURES[name]().update_layout(width=760)
    page.set_content(f'<div id="static">{figure_svg(figure)}</div><div id="live"></div>')
    page.add_script_tag(path=PLOTLY)
    draw = "figure => Plotly.newPlot('live', figure.data, figure.layout, {staticPlot: true})"
    page.evaluate(draw, json.loads(figure.to_json()))
    page.wait_for_selector("#live .bars .point path")
    still = page.evaluate(BARS, "#static svg > rect:not(:first-child)")
    drawn = page.evaluate(BARS, "#live .bars .point path")
    assert len(still) == len(drawn) > 2
    for mine, theirs in zip(relative(still), relative(drawn), strict=True):
        assert mine[:4] == pytest.approx(theirs[:4], abs=6), (mine, theirs)
        assert mine[4:] == theirs[4:]


def relative(bars):
    """The bars, left and top from those of the first one, and lengths as parts of the longest times 700."""
    left, top = min(b[0] for b in bars), min(b[1] for b in bars)
    across = 700 / max(b[0] + b[2] - left for b in bars)
    return [[(x - left) * across, y - top, w * across, h, *rest] for x, y, w, h, *rest in bars]
