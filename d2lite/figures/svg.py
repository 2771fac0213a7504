"""A figure as an SVG picture: what a page without plotly shows, GitHub and nbconvert among them."""

import html
import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from d2lite.figures.palette import DASHES, GREY

__all__ = ["draw", "ticks"]

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # a picture with these is not drawn
_LEFT, _RIGHT, _TOP, _BOTTOM, _ROW = 64, 16, 28, 48, 18  # margins and the height of a legend, in pixels


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Return round numbers from `low` to `high`, at most `most` of them: steps of 1, 2 or 5 times a power of ten."""
    if not high > low:
        return [low]
    step = 10.0 ** math.floor(math.log10((high - low) / most))
    step = next(step * m for m in (1, 2, 5, 10, 20) if (high - low) / (step * m) <= most - 1)
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 12) for i in range(first, math.floor(high / step + 1e-9) + 1)]


def draw(
    traces: Sequence[dict[str, Any]],
    title: str = "",
    xlabel: str | None = "",
    ylabel: str | None = "",
    xlim: Sequence[float] | None = None,
    ylim: Sequence[float] | None = None,
    width: int = 640,
    height: int = 340,
) -> str:
    """Return the SVG text of traces (dicts with name, x, y, line, as plotly's), legends beneath the curves.

    Names and titles stand in the picture as they are given: nothing in them is markup.

    `xlim` and `ylim` are (low, high); by default they hold all finite points. Sizes are in pixels; the legends come on
    top of the height.
    """
    x0, x1 = xlim or _range([t["x"] for t in traces])
    y0, y1 = ylim or _range([t["y"] for t in traces])
    w, h = width - _LEFT - _RIGHT, height - _TOP - _BOTTOM

    def across(x: ArrayLike) -> np.ndarray:
        return _LEFT + (np.asarray(x, float) - x0) / ((x1 - x0) or 1) * w

    def down(y: ArrayLike) -> np.ndarray:
        return _TOP + h - (np.asarray(y, float) - y0) / ((y1 - y0) or 1) * h

    parts = [_text(_LEFT, 18, title, "start"), _text(_LEFT + w / 2, height - 10, xlabel)]
    parts.append(f'<g transform="rotate(-90 14 {_TOP + h / 2})">{_text(14, _TOP + h / 2, ylabel)}</g>')
    for x in ticks(x0, x1):
        parts.append(f'<path d="M{across(x):.1f} {_TOP}v{h}" stroke="{GREY}" stroke-opacity=".3"/>')
        parts.append(_text(float(across(x)), _TOP + h + 18, f"{x:g}"))
    for y in ticks(y0, y1):
        parts.append(f'<path d="M{_LEFT} {down(y):.1f}h{w}" stroke="{GREY}" stroke-opacity=".3"/>')
        parts.append(_text(_LEFT - 6, float(down(y)) + 4, f"{y:g}", "end"))
    named = [t for t in traces if t.get("name")]
    for trace in traces:
        colour, dash = trace["line"]["color"], DASHES[trace["line"]["dash"]]
        parts.append(_curve(across(trace["x"]), down(trace["y"]), colour, dash))
    for row, trace in enumerate(named):
        y = height + row * _ROW
        colour, dash = trace["line"]["color"], DASHES[trace["line"]["dash"]]
        parts.append(_curve([_LEFT, _LEFT + 40], [y + 8, y + 8], colour, dash))
        parts.append(_text(_LEFT + 48, y + 12, trace["name"], "start"))
    full = height + _ROW * len(named)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {full}" width="{width}" height="{full}" '
        f'font-family="sans-serif" font-size="12" fill="none">{"".join(parts)}</svg>'
    )


def _range(columns: Sequence[ArrayLike]) -> tuple[float, float]:
    """Return (low, high) of all finite numbers, one apart if they are all equal."""
    values = np.concatenate([np.asarray(c, float) for c in columns] or [np.zeros(0)])
    values = values[np.isfinite(values)]
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _curve(x: Sequence[float] | np.ndarray, y: Sequence[float] | np.ndarray, colour: str, dash: str) -> str:
    """A polyline with a gap at each missing point; a single point becomes a dot."""
    points = [(a, b) if math.isfinite(a) and math.isfinite(b) else None for a, b in zip(x, y, strict=True)]
    path, drawing = "", False
    for point in points:
        if point:
            path += f"{'L' if drawing else 'M'}{point[0]:.1f} {point[1]:.1f}"
        drawing = point is not None
    if sum(p is not None for p in points) == 1:
        a, b = next(p for p in points if p)
        return f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3.5" fill="{colour}"/>'
    return f'<path d="{path}" stroke="{colour}" stroke-width="2.5" stroke-dasharray="{dash}"/>' if path else ""


def _text(x: float, y: float, text: str | None, anchor: str = "middle") -> str:
    text = html.escape(_NOT_XML.sub("\ufffd", text or ""))
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{GREY}">{text}</text>' if text else ""
