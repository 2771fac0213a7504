"""What all figures share: the layout, the place of a legend, and the trace of one curve.

Backgrounds are transparent, so that a figure can be read on a light page and on a dark one.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from d2lite.figures.labels import escape_label
from d2lite.figures.palette import GREY, PALE_GREY, TRANSPARENT

__all__ = ["below", "layout", "line", "thin"]

_MAX_POINTS = 2000  # points of one trace; more cannot be seen, and each point must be sent to the page
_HEIGHT = 370  # pixels, fixed: a figure that grows moves the page


def layout(
    xlabel: str | None = None, ylabel: str | None = None, title: str | None = None, height: int = _HEIGHT
) -> dict[str, Any]:
    """Return the plotly layout (dict) of all figures: transparent, grey, the legend beneath the curves."""
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
        "margin": {"l": 60, "r": 16, "t": 36, "b": 120},
        "legend": {"orientation": "h", "x": 0, "xanchor": "left", "yref": "container"} | below(height, 120),
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
