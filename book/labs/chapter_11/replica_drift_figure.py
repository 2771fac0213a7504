"""The picture of replicas that drift apart: loss, accuracy and replica drift per step."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from d2lite.figures.figure import Figure
from d2lite.figures.figure_layout import accuracy_axis, add_key, layout, ticks_at
from d2lite.figures.labels import escape_label
from d2lite.figures.palette import style

from .replica_drift import History

__all__ = ["drift_figure"]

_DOMAINS = ((0.74, 1.0), (0.37, 0.63), (0.0, 0.26))  # of the three plots, from the top
_STROKES = {"solid": "━", "dash": "╍", "dot": "┅", "dashdot": "┉"}


def drift_figure(histories: Mapping[str, History], title: str = "") -> Figure:
    """Return a figure with three plots over the steps: test loss, test accuracy and replica drift, measured.

    The plots stand above each other, on one axis of steps. `histories` is {name of a run: History}; each run has one
    colour.
    """
    figure = Figure(layout=layout("step", None, title, 480, bottom=50))
    for i, (name, history) in enumerate(histories.items()):
        colour, dash, _ = style(i)
        plots = {"test loss": history.losses, "test accuracy": history.accuracies, "replica drift": history.drifts}
        for j, (what, values) in enumerate(plots.items()):
            figure.add_scatter(
                x=np.arange(1, len(values) + 1),
                y=np.array(values, float),
                xaxis=f"x{j + 1}" if j else "x",
                yaxis=f"y{j + 1}" if j else "y",
                name=f"{escape_label(name)}, {what}",
                mode="lines" if len(values) > 1 else "markers",
                line={"color": colour, "dash": dash, "width": 2.5 if i else 5},
                showlegend=j == 0,
                hovertemplate=f"step %{{x}}: %{{y:.4g}}<br>measured<extra>{escape_label(name)}</extra>",
            )
    own = figure.layout.xaxis.to_plotly_json(), figure.layout.yaxis.to_plotly_json()
    shown = list(histories.values())
    steps = max((len(history.losses) for history in shown), default=0)
    # in a widget, a range that is left out would keep its last value
    across = {"range": [0.8, max(steps, 2) + 0.2]} | ticks_at(range(1, steps + 1))
    axes: list[tuple[str, dict[str, Any]]] = [
        ("test loss", {"range": [0, _top([v for h in shown for v in h.losses], 3.0)], "tickformat": "~g"}),
        ("test accuracy", accuracy_axis(v for h in shown for v in h.accuracies)),
        ("replica drift", {"range": [0, _top([v for h in shown for v in h.drifts], 0.01)], "tickformat": ".3~%"}),
    ]
    for j, (what, down) in enumerate(axes):
        number = str(j + 1) if j else ""
        is_last = j == len(axes) - 1
        hidden = {} if is_last else {"title": {"text": ""}, "showticklabels": False}
        figure.layout[f"xaxis{number}"] = own[0] | across | {"anchor": f"y{number}"} | hidden
        figure.layout[f"yaxis{number}"] = own[1] | down | {"domain": _DOMAINS[j], "anchor": f"x{number}", "nticks": 4}
        place = {"x": 0, "y": _DOMAINS[j][1], "xref": "paper", "yref": "paper", "xanchor": "left", "yanchor": "bottom"}
        figure.add_annotation(text=what, name="", showarrow=False, yshift=2, **place)
    figure.update_layout(margin_t=figure.layout.margin.t + 20)  # for the name of the first plot
    add_key(figure, [(_STROKES[style(i)[1]], style(i)[0], name) for i, name in enumerate(histories)])
    figure.layout.annotations[-1].yshift = 24
    return figure


def _top(values: Sequence[float], least: float) -> float:
    return max(least, 1.1 * max((value for value in values if math.isfinite(value)), default=0.0))
