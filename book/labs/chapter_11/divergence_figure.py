"""Pictures of two runs that differ: the differences per step, and small tensors of both."""

import html
import math
from collections.abc import Sequence

import numpy as np
import torch

from d2lite.figures.figure import Figure
from d2lite.figures.figure_layout import label_ends, layout, ticks_at
from d2lite.figures.palette import GREY, style

from .divergence import Comparison

__all__ = ["divergence_figure", "tensor_picture"]

HEIGHT = 330
CELLS = 24  # the largest number of cells of a tensor's picture, in each direction
_SIDE = 168  # pixels of a tensor's picture: two stand beside each other on a narrow page
_EQUAL = "equal"  # a difference of 0 has no place on a logarithmic axis: it is drawn on a line of its own
_NOT_WRITTEN = "not written"
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


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
            text=[f"{_number_text(v)}, replica {rank}" for v, rank in largest],
            hovertemplate=f"step %{{x}}, {name}: %{{text}}<extra></extra>",
            cliponaxis=False,
            meta={"words": [_told(comparison, largest)]},
        )
    num_steps = len(comparison.weights)
    every = max(1, math.ceil((high - low) / 4))
    ticks = {10.0**power: "10" + str(power).translate(_SUPERSCRIPTS)
             for power in range(low, high + 1, every)}  # fmt: skip
    ticks = {10.0**bottom: _EQUAL} | ticks | ({10.0**top: _NOT_WRITTEN} if is_missing else {})
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


def _number_text(value: float) -> str:
    return {0.0: _EQUAL, math.inf: _NOT_WRITTEN}.get(value, f"{value:.2g}")


def _told(comparison: Comparison, largest: Sequence[tuple[float, int]]) -> str:
    """Return the differences in words: of the first step, of the step before the first difference, and so on."""
    steps = {1, len(largest)}
    if comparison.first is not None:
        steps |= {comparison.first.step - 1, comparison.first.step}
    return ", ".join(
        f"{_number_text(largest[step - 1][0])} in step {step}" for step in sorted(steps) if 0 < step <= len(largest)
    )


def tensor_picture(tensor: torch.Tensor, words: str, most: float | None = None) -> str:
    """Return a small picture of a tensor as SVG text: values below 0 are blue, above 0 orange, near 0 pale.

    The picture has 24 by 24 cells at most. Each cell shows the element of its part of the tensor that is farthest from
    0. `words` are the title and the alternative text. `most` is the value of the strongest colour, by default the
    largest absolute value of the tensor.
    """
    flat = tensor.detach().double().cpu()
    rows = flat.reshape(flat.shape[0], -1) if flat.dim() > 1 else flat.reshape(1, -1)
    cells = [[_farthest(part) for part in _cut_along(row, 1)] for row in _cut_along(rows, 0)]
    most = most or max((abs(value) for row in cells for value in row if math.isfinite(value)), default=1.0) or 1.0
    across, down = max(map(len, cells), default=1), max(len(cells), 1)
    wide, high = min(_SIDE // max(across, 1), 2 * CELLS), min(_SIDE // down, CELLS)
    parts = [
        f'<rect x="{wide * x}" y="{high * y + 22}" width="{wide}" height="{high}" fill="{_mixture(value / most)}"/>'
        for y, row in enumerate(cells)
        for x, value in enumerate(row)
    ]
    said = html.escape(words)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{said}" width="{_SIDE}" '
        f'height="{high * down + 24}" font-family="sans-serif" font-size="14">'
        f'<text x="0" y="15" fill="currentColor">{said}</text>{"".join(parts)}</svg>'
    )


def _cut_along(tensor: torch.Tensor, dim: int) -> Sequence[torch.Tensor]:
    return tensor.tensor_split(min(CELLS, tensor.shape[dim]), dim) if tensor.numel() else []


def _farthest(part: torch.Tensor) -> float:
    return float(part.flatten()[part.abs().argmax()])


def _mixture(value: float) -> str:
    """Return a mixture of light grey with blue (-1) or orange (1); black for what is no finite number."""
    if not math.isfinite(value):
        return "#000000"
    strength, end = min(1.0, abs(value)), (0, 114, 178) if value < 0 else (213, 94, 0)
    return "#" + "".join(f"{round(225 + strength * (part - 225)):02x}" for part in end)
