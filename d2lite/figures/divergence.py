"""Pictures of runs that diverge: loss, accuracy and replica drift per step, differences per step, and small tensors."""

import html
import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from d2lite.bugs import Comparison, History
from d2lite.figures.figure import Figure
from d2lite.figures.figure_layout import below, layout
from d2lite.figures.labels import escape_label
from d2lite.figures.palette import GREY, PALETTE, style

__all__ = ["divergence_figure", "drift_figure", "tensor_picture"]

HEIGHT = 330
CELLS = 24  # the largest number of cells of a tensor's picture, in each direction
FLOOR = 1e-17  # a difference of 0 is drawn here: below the rounding of float64
DOMAINS = ((0.0, 0.28), (0.36, 0.64), (0.72, 1.0))


def drift_figure(histories: Mapping[str, History], title: str = "") -> Figure:
    """Return a figure with three plots over the steps: test loss, test accuracy and replica drift, measured.

    `histories` is {name of a run: History}; each run has one colour.
    """
    figure = Figure(layout=layout("step", None, title, HEIGHT))
    for i, (name, history) in enumerate(histories.items()):
        colour, dash, _ = style(i)
        for j, values in enumerate((history.losses, history.accuracies, history.drifts)):
            figure.add_scatter(
                x=np.arange(1, len(values) + 1),
                y=np.array(values, float),
                xaxis=f"x{j + 1}" if j else "x",
                yaxis=f"y{j + 1}" if j else "y",
                name=escape_label(name),
                mode="lines",
                line={"color": colour, "dash": dash, "width": 2.5 if i else 5},
                showlegend=j == 0,
                hovertemplate=f"step %{{x}}: %{{y:.4g}}<br>measured<extra>{escape_label(name)}</extra>",
            )
    own = figure.layout.xaxis.to_plotly_json(), figure.layout.yaxis.to_plotly_json()
    drifts = [drift for history in histories.values() for drift in history.drifts if math.isfinite(drift)]
    most = max(0.01, 1.1 * max(drifts, default=0.0))  # in a widget, a range that is left out would keep its last value
    plots = (("test loss", "", 3.0), ("test accuracy", ".0%", 1.0), ("replica drift", ".3~%", most))
    for j, (words, form, top) in enumerate(plots):
        number = str(j + 1) if j else ""
        title_of = {"text": f"{words}, by step", "standoff": 6, "font": {"size": 13}}
        figure.layout[f"xaxis{number}"] = own[0] | {"domain": DOMAINS[j], "anchor": f"y{number}", "title": title_of}
        figure.layout[f"yaxis{number}"] = own[1] | {"tickformat": form, "anchor": f"x{number}", "range": [0, top]}
    return figure.update_layout(margin={"b": 96, "t": 40}, legend=below(HEIGHT, 96))


def divergence_figure(comparison: Comparison, step: int | None = None) -> Figure:
    """Return a figure of the largest differences of each step: gradients and weights of each replica, logarithmic.

    The differences are those of the Comparison, relative to the largest value of the tensor. A difference of 0 is drawn
    at the lower edge. A line marks `step`.
    """
    title = "largest difference of each step, over the largest value"
    figure = Figure(layout=layout("step", "difference", title, HEIGHT))
    num_steps = len(comparison.weights)
    for i, (name, rows) in enumerate((("gradients", comparison.gradients), ("weights", comparison.weights))):
        for rank in range(max(map(len, rows), default=0)):
            values = [row[rank] if rank < len(row) else math.nan for row in rows]
            figure.add_scatter(
                x=np.arange(1, num_steps + 1),
                y=np.array([min(max(v, FLOOR), 1e3) if v == v else math.nan for v in values]),
                name=f"{name}, replica {rank}",
                mode="lines+markers",
                line={"color": PALETTE[(2 * rank + i) % len(PALETTE)], "dash": ("solid", "dot")[i], "width": 2.5},
                marker={"symbol": ("circle", "square")[i], "size": 7},
                hovertemplate=f"step %{{x}}, {name}, replica {rank}: %{{y:.2g}}<extra></extra>",
            )
    if comparison.first is not None:
        text = f"first: step {comparison.first.step}"
        figure.add_annotation(x=comparison.first.step, y=1, yref="paper", text=text, showarrow=False, yanchor="bottom")
    if step is not None:
        figure.add_shape(type="line", x0=step, x1=step, y0=FLOOR, y1=1e3, line={"color": GREY, "dash": "dot"})
    figure.update_xaxes(range=[0.5, num_steps + 0.5], dtick=max(1, num_steps // 10), tick0=1)
    figure.update_yaxes(type="log", range=[math.log10(FLOOR), 3], dtick=4, exponentformat="power")
    return figure.update_layout(margin={"b": 116, "t": 56}, legend=below(HEIGHT, 116))


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
    size = 6
    parts = [
        f'<rect x="{size * x}" y="{size * y + 18}" width="{size}" height="{size}" fill="{_colour(value / most)}"/>'
        for y, row in enumerate(cells)
        for x, value in enumerate(row)
    ]
    width, height = max(size * max(map(len, cells), default=1), 190), size * len(cells) + 20
    said = html.escape(words)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{said}" width="{width}" height="{height}" '
        f'font-family="sans-serif" font-size="12"><text x="0" y="12" fill="currentColor">{said}</text>'
        f"{''.join(parts)}</svg>"
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
