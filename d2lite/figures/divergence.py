"""Pictures of runs that diverge: loss, accuracy and replica drift per step, differences per step, and small tensors."""

import html
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from d2lite.bugs import Comparison, History
from d2lite.figures.figure import Figure
from d2lite.figures.figure_layout import accuracy_axis, add_key, label_ends, layout, ticks_at
from d2lite.figures.labels import escape_label
from d2lite.figures.palette import GREY, style

__all__ = ["divergence_figure", "drift_figure", "tensor_picture"]

HEIGHT = 330
CELLS = 24  # the largest number of cells of a tensor's picture, in each direction
_SIDE = 168  # pixels of a tensor's picture: two stand beside each other on a narrow page
_DOMAINS = ((0.74, 1.0), (0.37, 0.63), (0.0, 0.26))
_STROKES = {"solid": "━", "dash": "╍", "dot": "┅", "dashdot": "┉"}
_EQUAL = "equal"  # a difference of 0 has no place on a logarithmic axis: it is drawn on a line of its own
_MISSING = "not written"
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


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


def divergence_figure(comparison: Comparison, step: int | None = None) -> Figure:
    """Return a figure of the largest differences of each step, logarithmic: of all gradients, and of all weights.

    A difference is that of the Comparison, relative to the largest value of the tensor, and the largest of all
    replicas; hovering over a point tells which one. Tensors that are equal in both runs, bit for bit, and tensors that
    were not written have a line of their own, below and above the others. A dotted line marks `step`.
    """
    title = "largest difference of each step, over the largest value"
    figure = Figure(layout=layout("step", None, title, HEIGHT, bottom=50))
    curves = {"gradients": comparison.gradients, "weights": comparison.weights}
    measured = [v for rows in curves.values() for row in rows for v in row if 0 < v < math.inf]
    low = math.floor(math.log10(min(measured, default=1.0)))
    high = max(math.ceil(math.log10(max(measured, default=1.0))), low + 1)
    is_missing = any(v == math.inf for rows in curves.values() for row in rows for v in row)
    bottom, top = low - 1, high + is_missing
    for i, (name, rows) in enumerate(curves.items()):
        largest = [_largest(row) for row in rows]
        colour, dash, marker = style(i)
        figure.add_scatter(
            x=np.arange(1, len(rows) + 1),
            y=np.array([10.0**bottom if v == 0 else 10.0**top if v == math.inf else v for v, _ in largest]),
            name=name,
            mode="lines+markers",
            line={"color": colour, "dash": dash, "width": 2.5},
            marker={"symbol": marker, "size": 8, "color": colour},
            text=[f"{_said(v)}, replica {rank}" for v, rank in largest],
            hovertemplate=f"step %{{x}}, {name}: %{{text}}<extra></extra>",
            cliponaxis=False,
            meta={"words": [_told(comparison, largest)]},
        )
    num_steps = len(comparison.weights)
    every = max(1, math.ceil((high - low) / 4))
    ticks = {10.0**power: "10" + str(power).translate(_SUPERSCRIPTS)
             for power in range(low, high + 1, every)}  # fmt: skip
    ticks = {10.0**bottom: _EQUAL} | ticks | ({10.0**top: _MISSING} if is_missing else {})
    figure.update_yaxes(
        type="log", range=[bottom - 0.3, top + 0.3], tickvals=list(ticks), ticktext=list(ticks.values())
    )
    figure.update_xaxes({"range": [0.7, max(num_steps, 2) + 0.3], "dtick": max(1, num_steps // 5), "tick0": 1})
    figure.update_xaxes(ticks_at(range(1, num_steps + 1)))
    label_ends(figure)
    if comparison.first is not None:
        place = {"x": comparison.first.step, "y": 1, "yref": "paper", "yanchor": "bottom"}
        figure.add_annotation(text="first", showarrow=False, **place)
        figure.update_layout(margin_t=figure.layout.margin.t + 18)
    if step is not None:
        ends = {"y0": 10.0 ** (bottom - 0.3), "y1": 10.0 ** (top + 0.3)}
        figure.add_shape(type="line", x0=step, x1=step, line={"color": GREY, "dash": "dot"}, layer="below", **ends)
    return figure


def _largest(row: Sequence[float]) -> tuple[float, int]:
    """Return the largest difference of a step and its replica; NaN if no replica has values."""
    known = [(value, -rank) for rank, value in enumerate(row) if not math.isnan(value)]
    value, rank = max(known, default=(math.nan, 0))
    return value, -rank


def _said(value: float) -> str:
    return {0.0: _EQUAL, math.inf: _MISSING}.get(value, f"{value:.2g}")


def _told(comparison: Comparison, largest: Sequence[tuple[float, int]]) -> str:
    """Return the differences in words: of the first step, of the step before the first difference, and so on."""
    steps = {1, len(largest)}
    if comparison.first is not None:
        steps |= {comparison.first.step - 1, comparison.first.step}
    return ", ".join(
        f"{_said(largest[step - 1][0])} in step {step}" for step in sorted(steps) if 0 < step <= len(largest)
    )


def tensor_picture(tensor: torch.Tensor, words: str, most: float | None = None) -> str:
    """Return a small picture of a tensor as SVG text: values below 0 are blue, above 0 orange, near 0 pale.

    The picture has 24 by 24 cells at most. Each cell shows the element of its part of the tensor that is farthest from
    0. `words` are the title and the alternative text. `most` is the value of the strongest colour, by default the
    largest absolute value of the tensor.
    """
    flat = tensor.detach().double().cpu()
    rows = flat.reshape(flat.shape[0], -1) if flat.dim() > 1 else flat.reshape(1, -1)
    cells = [[_farthest(part) for part in _cut(row, 1)] for row in _cut(rows, 0)]
    most = most or max((abs(value) for row in cells for value in row if math.isfinite(value)), default=1.0) or 1.0
    across, down = max(map(len, cells), default=1), max(len(cells), 1)
    wide, high = min(_SIDE // max(across, 1), 2 * CELLS), min(_SIDE // down, CELLS)
    parts = [
        f'<rect x="{wide * x}" y="{high * y + 22}" width="{wide}" height="{high}" fill="{_colour(value / most)}"/>'
        for y, row in enumerate(cells)
        for x, value in enumerate(row)
    ]
    said = html.escape(words)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{said}" width="{_SIDE}" '
        f'height="{high * down + 24}" font-family="sans-serif" font-size="14">'
        f'<text x="0" y="15" fill="currentColor">{said}</text>{"".join(parts)}</svg>'
    )


def _cut(tensor: torch.Tensor, dim: int) -> Sequence[torch.Tensor]:
    return tensor.tensor_split(min(CELLS, tensor.shape[dim]), dim) if tensor.numel() else []


def _farthest(part: torch.Tensor) -> float:
    return float(part.flatten()[part.abs().argmax()])


def _colour(value: float) -> str:
    """Return a mixture of light grey with blue (-1) or orange (1); black for what is no finite number."""
    if not math.isfinite(value):
        return "#000000"
    strength, end = min(1.0, abs(value)), (0, 114, 178) if value < 0 else (213, 94, 0)
    return "#" + "".join(f"{round(225 + strength * (part - 225)):02x}" for part in end)
