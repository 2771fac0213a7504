"""The alternative text of a plotly figure, made from its data, for readers who do not see the figure."""

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

    A curve has its first and last point and its extremes, a bar its label and length. The code that draws a figure can
    choose better words: `meta={"words": [...]}` of a trace, and the `name` of a note (annotation); "" leaves it out.
    """
    title = _words(figure.layout.title.text) or "Figure"
    axes = [_words(axis.title.text) for axis in (figure.layout.xaxis, figure.layout.yaxis)]
    named = [f"{letter} axis: {text}" for letter, text in zip("xy", axes, strict=True) if text]
    parts = [part for trace in figure.data for part in _trace_in_words(trace, figure.layout)]
    said = [note.text if note.name is None else note.name for note in figure.layout.annotations or ()]
    notes = [_words(text) for text in said if text]
    text = ". ".join([title, *named, *_few(parts or ([] if notes else ["No data yet"])), *_few(notes)])
    return text + ("" if text.endswith(".") else ".")


def _trace_in_words(trace: Any, layout: Any) -> Iterator[str]:
    """Yield the descriptions of one trace; an empty trace has none."""
    # a page gives a trace without a name one of its own, "trace 0", and sends it back
    name = "" if re.fullmatch(r"trace \d+", trace.name or "") else _words(trace.name)
    if isinstance(trace.meta, dict) and "words" in trace.meta:
        words = "; ".join(_few(_words(text) for text in trace.meta["words"]))
        if words:
            yield ": ".join(filter(None, [name, words]))
    elif trace.type == "bar":
        yield from _bars_in_words(trace, name, _ticks(layout, trace, "y" if trace.orientation == "h" else "x"))
    elif trace.type == "heatmap":
        ticks = _ticks(layout, trace, "y")
        labels = [ticks.get(y, "") for y in (trace.y if trace.y is not None else range(len(trace.z)))]
        rows = [" ".join(f"{v:g}" for v in row if v is not None) for row in trace.z]
        told = (": ".join(filter(None, pair)) for pair in zip(labels, rows, strict=False))
        yield "Cells, row by row: " + "; ".join(told)
    elif trace.x is not None and trace.y is not None and getattr(trace, "opacity", None) != 0:
        points = _points(trace.x, trace.y)
        if points:
            yield f"{name or 'curve'}: {_curve_in_words(points)}"


def _points(xs: Any, ys: Any) -> list[tuple[Any, Any]]:
    """Return the points of a curve that have two finite numbers. Long arrays are filtered by NumPy, in no loop."""
    if all(isinstance(values, np.ndarray) and values.dtype.kind in "fiu" for values in (xs, ys)):
        n = min(len(xs), len(ys))
        x, y = xs[:n], ys[:n]
        finite = np.isfinite(x) & np.isfinite(y)
        return list(zip(x[finite].tolist(), y[finite].tolist(), strict=True))
    return [(x, y) for x, y in zip(xs, ys, strict=False) if _is_number(x) and _is_number(y)]


def _curve_in_words(points: list[tuple[Any, Any]]) -> str:
    (x0, y0), (x1, y1) = points[0], points[-1]
    if len(points) == 1:
        return f"{_digits(y0)} at {_digits(x0)}"
    words = f"{len(points)} points, from {_digits(y0)} at {_digits(x0)} to {_digits(y1)} at {_digits(x1)}"
    low, high = min(y for _, y in points), max(y for _, y in points)
    if low < min(y0, y1) or high > max(y0, y1):
        words += f", lowest {_digits(low)}, highest {_digits(high)}"
    return words


def _ticks(layout: Any, trace: Any, letter: str) -> dict[Any, str]:
    """Return {place: label} of the axis of a trace if the axis has labels of its own."""
    axis = layout[(trace[f"{letter}axis"] or letter).replace(letter, f"{letter}axis", 1)]
    return {} if axis.ticktext is None else dict(zip(axis.tickvals, map(_words, axis.ticktext), strict=False))


def _bars_in_words(trace: Any, name: str, ticks: dict[Any, str]) -> Iterator[str]:
    across = trace.orientation == "h"
    lengths, places = (trace.x, trace.y) if across else (trace.y, trace.x)
    texts = trace.text if isinstance(trace.text, (list, tuple, np.ndarray)) else [""] * len(lengths or ())
    if lengths is None or places is None:
        return
    for place, length, text in zip(places, lengths, [*texts, *[""] * len(lengths)], strict=False):
        if _is_number(length):
            label = ticks.get(place) or _words(place if isinstance(place, str) else _digits(place))
            what = " ".join(filter(None, [name, label]))
            own = _words(text)
            yield f"{what}: {own if any(c.isdigit() for c in own) else ' '.join(filter(None, [own, _digits(length)]))}"


def _few(parts: Iterable[str]) -> list[str]:
    parts = list(parts)
    return parts[:_MOST] + ([f"And {len(parts) - _MOST} more"] if len(parts) > _MOST else [])


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.number)) and bool(np.isfinite(value))


def _digits(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, (float, np.floating)) else str(value)


def _words(text: Any) -> str:
    """Return a text of plotly's without its markup."""
    return html.unescape(_TAGS.sub(" ", str(text or ""))).strip()
