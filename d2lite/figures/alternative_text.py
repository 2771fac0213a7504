"""A plotly figure -> words, made from its data: for readers who do not see it."""

import html
import re
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from plotly.basedatatypes import BaseFigure

__all__ = ["alternative_text"]

_MOST = 12  # bars, curves or notes that are named; more are counted
_TAGS = re.compile(r"<[^<>]*>")


def alternative_text(figure: BaseFigure) -> str:
    """Return what a figure shows, in words: its titles, and of each curve, bar and cell the numbers.

    A curve is told by its first and its last point and its extremes, a bar by its length.
    """
    title = _words(figure.layout.title.text) or "Figure"
    axes = [_words(axis.title.text) for axis in (figure.layout.xaxis, figure.layout.yaxis)]
    named = [f"{letter} axis: {text}" for letter, text in zip("xy", axes, strict=True) if text]
    parts = [part for trace in figure.data for part in _trace(trace)]
    notes = [_words(note.text) for note in figure.layout.annotations or () if note.text]
    text = ". ".join([title, *named, *_few(parts or ([] if notes else ["No data yet"])), *_few(notes)])
    return text + ("" if text.endswith(".") else ".")


def _trace(trace: Any) -> Iterator[str]:
    """What is said of one trace; nothing if it is empty."""
    name = _words(trace.name)
    if trace.type == "bar":
        yield from _bars(trace, name)
    elif trace.type == "heatmap":
        rows = [[f"{v:g}" for v in row if v is not None] for row in trace.z]
        yield "Cells, row by row: " + "; ".join(" ".join(row) for row in rows)
    elif trace.x is not None and trace.y is not None and getattr(trace, "opacity", None) != 0:
        points = [(x, y) for x, y in zip(trace.x, trace.y, strict=False) if _is_number(x) and _is_number(y)]
        if points:
            yield f"{name or 'curve'}: {_curve(points)}"


def _curve(points: list[tuple[Any, Any]]) -> str:
    (x0, y0), (x1, y1) = points[0], points[-1]
    if len(points) == 1:
        return f"{_number(y0)} at {_number(x0)}"
    words = f"{len(points)} points, from {_number(y0)} at {_number(x0)} to {_number(y1)} at {_number(x1)}"
    low, high = min(y for _, y in points), max(y for _, y in points)
    if low < min(y0, y1) or high > max(y0, y1):
        words += f", lowest {_number(low)}, highest {_number(high)}"
    return words


def _bars(trace: Any, name: str) -> Iterator[str]:
    across = trace.orientation == "h"
    lengths, places = (trace.x, trace.y) if across else (trace.y, trace.x)
    texts = trace.text if isinstance(trace.text, (list, tuple, np.ndarray)) else [""] * len(lengths or ())
    if lengths is None or places is None:
        return
    for place, length, text in zip(places, lengths, [*texts, *[""] * len(lengths)], strict=False):
        if _is_number(length):
            what = " ".join(filter(None, [name, _words(place if isinstance(place, str) else _number(place))]))
            own = _words(text)
            yield f"{what}: {own if any(c.isdigit() for c in own) else ' '.join(filter(None, [own, _number(length)]))}"


def _few(parts: Iterable[str]) -> list[str]:
    parts = list(parts)
    return parts[:_MOST] + ([f"And {len(parts) - _MOST} more"] if len(parts) > _MOST else [])


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.number)) and bool(np.isfinite(value))


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, (float, np.floating)) else str(value)


def _words(text: Any) -> str:
    """Plotly's text without its markup."""
    return html.unescape(_TAGS.sub(" ", str(text or ""))).strip()
