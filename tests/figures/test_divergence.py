"""Pictures of runs that diverge: every curve is there, and names are shown as written."""

import json

import pytest
import torch

from d2lite.bugs import History, find_divergence
from d2lite.figures.divergence import FLOOR, divergence_figure, drift_figure, tensor_picture
from d2lite.figures.labels import escape_label
from tests.bugs.test_divergence import run


def test_the_figure_has_a_curve_for_each_replica_and_draws_zero_at_its_edge():
    figure = divergence_figure(find_divergence(run(), run()), step=2)
    assert [trace.name for trace in figure.data] == [
        "gradients, replica 0", "gradients, replica 1", "weights, replica 0", "weights, replica 1"
    ]  # fmt: skip
    assert all(set(trace.y) == {FLOOR} for trace in figure.data)


def test_drifts_of_no_run_and_of_nan_are_drawn():
    figure = drift_figure({"a": History(), "b": History([1.0], [0.1], [float("nan")], [1.0])})
    assert len(figure.data) == 6 and figure.layout.yaxis3.range == (0, 0.01)


@pytest.mark.parametrize("shape", [(1,), (3,), (20, 1, 3, 3), (800, 128), (0,), ()])
def test_a_picture_has_24_by_24_cells_at_most_and_keeps_the_extremes(shape):
    picture = tensor_picture(torch.ones(shape), "a <b>")
    assert picture.count("<rect") <= 24 * 24 and "a &lt;b&gt;" in picture and "<b>" not in picture
    tensor = torch.zeros(800, 128)
    tensor[17, 5] = -2.0
    assert tensor_picture(tensor, "one").count('fill="#0072b2"') == 1  # the strongest blue
    assert 'fill="#000000"' in tensor_picture(torch.tensor([float("nan"), 1.0]), "nan")


def test_the_name_of_a_run_is_shown_as_written():
    name = """<b>x</b><a href="https://example.org">%{y}</a>&lt;"""
    figure = drift_figure({name: History([1.0], [0.1], [0.0], [1.0])}, name)
    assert all(trace.name == escape_label(name) and escape_label(name) in trace.hovertemplate for trace in figure.data)
    assert "<b>" not in json.dumps(figure.to_plotly_json(), default=repr)
