"""The widget of a figure: one state that is always complete, one message per change, plotly's code once."""

import json
import subprocess
import sys

import numpy as np
import pytest

plotly = pytest.importorskip("plotly")
from d2lite.figures import Figure  # noqa: E402
from d2lite.widgets.live_figure import close_all  # noqa: E402
from d2lite.widgets.plotly_code import load_plotly  # noqa: E402
from d2lite.widgets.plotly_widget import PlotlyWidget  # noqa: E402


def curve(*y):
    return Figure([{"type": "scatter", "name": "loss", "x": np.arange(len(y)) + 0.5, "y": np.array(y, float)}])


@pytest.fixture
def widget():
    widget = PlotlyWidget(curve(1, 2))
    yield widget
    close_all(widget)


def test_a_page_that_opens_late_gets_the_present_figure(widget):
    widget.show(curve(3, 2, float("nan"), 1))
    state = widget.get_state()
    (trace,) = json.loads(state["_json"])["data"]
    assert trace["y"]["dtype"] == "f8" and "bdata" in trace["y"]  # arrays are compact, and NaN is no JSON
    assert "loss: 3 points, from 3 at 0.5 to 1 at 3.5" in state["alternative_text"]
    assert list(widget.figure.data[0].y[:2]) == [3, 2]


def test_a_change_is_one_message_and_no_change_is_none(widget, monkeypatch):
    sent = []
    monkeypatch.setattr(widget, "_send", lambda msg, buffers=None: sent.append(msg["state"]))
    widget.show(curve(3))
    assert [sorted(state) for state in sent] == [["_json", "alternative_text"]]
    widget.show(curve(3))
    assert len(sent) == 1


def test_all_figures_of_a_kernel_share_the_code(widget):
    other = PlotlyWidget(curve(1))
    assert widget._code_id == other._code_id == load_plotly().model_id
    assert "plotly.js" in load_plotly().code[:100] and len(other._esm) < 10_000
    close_all(other)


def test_a_panel_does_not_load_what_plotly_needs_to_check_notebooks():
    """The import of nbformat's schemas took the first panel four seconds."""
    code = (
        "import sys; from d2lite import Panel; Panel(lambda lr=0.1: None)._repr_mimebundle_(); "
        "print([m for m in ('nbformat', 'jsonschema') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
