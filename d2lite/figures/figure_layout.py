"""What all figures share: the layout, the place of a legend, and the trace of one curve.

Backgrounds are transparent, so that a figure can be read on a light page and on a dark one.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from d2lite.figures.labels import escape_label
from d2lite.figures.palette import GREY, PALE_GREY, TRANSPARENT

__all__ = ["below", "end_labels", "layout", "line", "thin"]

_MAX_POINTS = 2000  # points of one trace; more cannot be seen, and each point must be sent to the page
_HEIGHT = 370  # pixels, fixed: a figure that grows moves the page
_LABEL = 16  # pixels between two labels at the ends of curves
_CHARACTER = 7  # pixels


def layout(
    xlabel: str | None = None,
    ylabel: str | None = None,
    title: str | None = None,
    height: int = _HEIGHT,
    bottom: int = 120,
) -> dict[str, Any]:
    """Return the plotly layout (dict) of all figures: transparent, grey, the legend in a `bottom` margin (pixels)."""
    axis = {"gridcolor": PALE_GREY, "zeroline": False, "linecolor": GREY, "automargin": True}
    return {
        "template": "none",
        "height": height,
        "autosize": True,
        "paper_bgcolor": TRANSPARENT,
        "plot_bgcolor": TRANSPARENT,
        "font": {"color": GREY, "size": 13},
        "title": {"text": escape_label(title or ""), "x": 0, "xref": "container", "font": {"size": 14}, "y": 0.97}
        | {"pad": {"l": 8}},
        "margin": {"l": 60, "r": 16, "t": 36, "b": bottom},
        "legend": {"orientation": "h", "x": 0, "xanchor": "left", "yref": "container"} | below(height, bottom),
        "xaxis": axis | {"title": {"text": escape_label(xlabel or ""), "standoff": 6, "font": {"size": 13}}},
        "yaxis": axis | {"title": {"text": escape_label(ylabel or ""), "standoff": 6, "font": {"size": 13}}},
        "hovermode": "closest",
    }


def below(height: int, bottom: int) -> dict[str, Any]:
    """Return the place of a legend: right beneath the title of the x axis, in a bottom margin of `bottom` pixels.

    A legend that is higher than the margin scrolls, so that it never covers the curves.
    """
    return {"y": (bottom - 42) / height, "yanchor": "top", "maxheight": bottom - 44}


def line(name: str, x: np.ndarray, y: np.ndarray, style: tuple[str, str, str], width: float = 2.5) -> dict[str, Any]:
    """Return one plotly trace; its points are marked while they can be told apart.

    `style` is (colour, dash, marker), as `palette.style` returns it; `width` is that of the line in pixels.
    """
    colour, dash, marker = style
    return {
        "type": "scatter",
        "name": escape_label(name),
        "x": x,
        "y": y,
        "mode": "lines+markers" if len(x) <= 60 else "lines",
        "line": {"color": colour, "dash": dash, "width": width},
        "marker": {"color": colour, "symbol": marker, "size": 4 + 1.4 * width},
        "cliponaxis": False,
        "showlegend": True,
    }


def thin(x: ArrayLike, y: ArrayLike, most: int = _MAX_POINTS) -> tuple[np.ndarray, np.ndarray]:
    """Return x and y as float arrays of at most `most` points, evenly picked, the first and the last among them."""
    xs, ys = np.asarray(x, float), np.asarray(y, float)
    if len(xs) > most:
        keep = np.linspace(0, len(xs) - 1, most).round().astype(int)
        xs, ys = xs[keep], ys[keep]
    return xs, ys


def end_labels(
    traces: Sequence[dict[str, Any]], names: Sequence[str], ends: Sequence[float] | None, height: int
) -> tuple[list[dict[str, Any]], int]:
    """Return the names of curves as plotly annotations at their ends, and the right margin that they need (pixels).

    `ends` is the range of the y axis, which is `height` pixels long; names that would lie on each other are moved
    apart. Without a range they stay where they are.
    """
    low, high = ends or (0.0, 1.0)
    per_pixel = (high - low) / height
    found = [
        (float(trace["y"][-1]), name, trace)
        for trace, name in zip(traces, names, strict=True)
        if len(trace["y"]) and np.isfinite(trace["y"][-1])
    ]
    notes, last = [], -np.inf
    for y, name, trace in sorted(found, key=lambda each: each[0]):
        last = at = max(y, last + _LABEL * per_pixel) if ends else y
        dot = f'<span style="color:{trace["line"]["color"]}">●</span> '
        note: dict[str, Any] = {"x": float(trace["x"][-1]), "y": y, "yshift": (at - y) / per_pixel, "xshift": 6}
        note |= {"text": dot + escape_label(name), "name": "", "showarrow": False}
        notes.append(note | {"xanchor": "left", "yanchor": "middle", "align": "left"})
    longest = max((len(name) for _, name, _ in found), default=0)
    return notes, min(16 + _CHARACTER * (longest + 3), 220) if notes else 16
