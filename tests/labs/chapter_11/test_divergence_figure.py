"""Pictures of runs that diverge: every curve is there, and names are shown as written."""

import json
import math

import pytest
import torch

from d2lite.figures.labels import escape_label
from d2lite.labs.chapter_11 import Comparison, History, find_divergence
from d2lite.labs.chapter_11.divergence_figure import divergence_figure, tensor_picture
from d2lite.labs.chapter_11.replica_drift_figure import drift_figure
from tests.labs.chapter_11.test_divergence import run


def labels(figure, trace):
    """What stands at the y axis where each point of a curve is; "" between the ticks."""
    ticks = dict(zip(figure.layout.yaxis.tickvals, figure.layout.yaxis.ticktext, strict=True))
    return [ticks.get(y, "") for y in trace.y]


def test_equal_runs_are_on_the_line_of_equal_tensors():
    figure = divergence_figure(find_divergence(run(), run()), step=2)
    assert [trace.name for trace in figure.data] == ["gradients", "weights"]
    assert all(set(labels(figure, trace)) == {"equal"} for trace in figure.data)
    (line,) = figure.layout.shapes
    assert line.x0 == line.x1 == 2


def test_the_axis_fits_the_differences_and_the_largest_of_all_replicas_is_drawn():
    rows = [[0.0, 0.0], [3e-8, 2e-8], [math.nan, 4.0], [math.inf, 5e7], [math.nan, math.nan]]
    figure = divergence_figure(Comparison(gradients=rows, weights=[[0.0]] * 5))
    gradients, weights = figure.data
    assert list(gradients.y[1:3]) == [3e-8, 4.0] and math.isnan(gradients.y[4])
    assert list(gradients.text[:4]) == [
        "equal, replica 0",
        "3e-08, replica 0",
        "4, replica 1",
        "not written, replica 0",
    ]
    shown = labels(figure, gradients)
    assert (shown[0], shown[3]) == ("equal", "not written") and set(labels(figure, weights)) == {"equal"}
    low, high = figure.layout.yaxis.range
    inside = [math.log10(y) for trace in figure.data for y in trace.y if y == y]
    assert low < min(inside) and max(inside) < high, "a curve runs along the edge"
    assert "10\u207b\u2078" in figure.layout.yaxis.ticktext


def test_drifts_of_no_run_and_of_nan_are_drawn():
    figure = drift_figure({"a": History(), "b": History([1.0], [0.1], [float("nan")], [1.0])})
    assert len(figure.data) == 6 and figure.layout.yaxis3.range == (0, 0.01)


def test_no_curve_of_the_drift_figure_leaves_its_plot():
    figure = drift_figure({"a": History([7.0, 2.0], [0.1, 0.9], [0.0, 0.3], [1.0, 1.0]), "b": History()})
    for trace in figure.data:
        low, high = figure.layout[trace.yaxis.replace("y", "yaxis")].range
        assert all(low <= y <= high for y in trace.y)
    domains = [axis.domain for axis in figure.select_yaxes()]
    assert all(above[0] > below[1] for above, below in zip(domains, domains[1:], strict=False))
    assert figure.layout.xaxis3.title.text == "step" and not figure.layout.xaxis.title.text


@pytest.mark.parametrize("shape", [(1,), (3,), (20, 1, 3, 3), (800, 128), (0,), ()])
def test_a_picture_has_24_by_24_cells_at_most_and_keeps_the_extremes(shape):
    picture = tensor_picture(torch.ones(shape), "a <b>")
    assert picture.count("<rect") <= 24 * 24 and "a &lt;b&gt;" in picture and "<b>" not in picture
    tensor = torch.zeros(800, 128)
    tensor[17, 5] = -2.0
    assert 'width="168"' in picture and picture.count('width="0"') == picture.count('height="0"') == 0
    assert tensor_picture(tensor, "one").count('fill="#0072b2"') == 1  # the strongest blue
    assert 'fill="#000000"' in tensor_picture(torch.tensor([float("nan"), 1.0]), "nan")


def test_the_name_of_a_run_is_shown_as_written():
    name = """<b>x</b><a href="https://example.org">%{y}</a>&lt;"""
    figure = drift_figure({name: History([1.0], [0.1], [0.0], [1.0])}, name)
    assert all(trace.name.startswith(escape_label(name) + ", ") for trace in figure.data)
    assert all(escape_label(name) in trace.hovertemplate for trace in figure.data)
    assert "<b>" not in json.dumps(figure.to_plotly_json(), default=repr)
