"""What all figures share: the layout, names at the ends of curves, a key of colours, lanes, and the trace of one curve.

Backgrounds are transparent, so that a figure can be read on a light page and on a dark one. docs/figures.md has the
grammar that all figures keep.
"""

import html
import itertools
import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import ArrayLike

from d2lite.figures.labels import escape_label
from d2lite.figures.palette import GREY, PALE_GREY, TRANSPARENT

__all__ = [
    "MOST_LABELS", "accuracy_axis", "add_key", "add_lanes", "end_labels", "label_ends", "layout", "line",
    "range_around", "thin", "ticks_at", "title_pad",
]  # fmt: skip

MOST_LABELS = 6  # curves with their names at their ends; more have a legend
_MAX_POINTS = 2000  # points of one trace; more cannot be seen, and each point must be sent to the page
_MOST_TICKS = 10  # places that were measured, each with a tick
_HEIGHT = 370  # pixels, fixed: a figure that grows moves the page
_SIZE = 14  # of all texts, in pixels
_LABEL = 18  # pixels between two labels at the ends of curves
_CHARACTER = 7.6  # pixels
_LINE = 19  # pixels between two lines of the title or the key
_TITLE, _KEY, _NAME = 44, 46, 16  # characters of a line: a narrow notebook has 360 pixels
_LANE_NAME = 26  # pixels between the bars of two lanes, for the name of the lower one


def layout(
    xlabel: str | None = None,
    ylabel: str | None = None,
    title: str | None = None,
    height: int = _HEIGHT,
    bottom: int = 120,
) -> dict[str, Any]:
    """Return the plotly layout (dict) of all figures: transparent, grey, the legend in a `bottom` margin (pixels)."""
    axis = {"gridcolor": PALE_GREY, "zeroline": False, "linecolor": GREY, "automargin": True}
    lines = _wrapped(title or "", _TITLE)
    return {
        "template": "none",
        "height": height,
        "autosize": True,
        "paper_bgcolor": TRANSPARENT,
        "plot_bgcolor": TRANSPARENT,
        "font": {"color": GREY, "size": _SIZE},
        "title": {"text": "<br>".join(lines), "x": 0, "xref": "container", "y": 1, "yref": "container"}
        | {"yanchor": "top", "pad": {"l": 8, "t": title_pad(len(lines))}, "font": {"size": _SIZE}},
        "margin": {"l": 60, "r": 16, "t": 36 + _LINE * (len(lines) - 1), "b": bottom},
        "legend": {"orientation": "h", "x": 0, "xanchor": "left", "yref": "container"} | _below(height, bottom),
        "xaxis": axis | {"title": {"text": escape_label(xlabel or ""), "standoff": 6, "font": {"size": _SIZE}}},
        "yaxis": axis | {"title": {"text": escape_label(ylabel or ""), "standoff": 6, "font": {"size": _SIZE}}},
        "hovermode": "closest",
    }


def title_pad(num_lines: int) -> int:
    """Return the pixels above a title of so many lines: plotly moves it up by half a line for each further one."""
    return 10 + _LINE * (num_lines - 1) // 2


def _below(height: int, bottom: int) -> dict[str, Any]:
    """Return the place of a legend beneath the x axis, in a margin of `bottom` pixels; a higher one scrolls."""
    return {"y": (bottom - 42) / height, "yanchor": "top", "maxheight": bottom - 44}


def line(name: str, x: np.ndarray, y: np.ndarray, style: tuple[str, str, str], width: float = 2.5) -> dict[str, Any]:
    """Return a plotly trace in a `style` (colour, dash, marker) and `width` (pixels), with marks on points if few."""
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


def _wrapped(text: str, width: int) -> list[str]:
    """Return the lines of a text for plotly, escaped; there is one line at least."""
    return [escape_label(line) for line in textwrap.wrap(text, width, break_long_words=False)] or [""]


def accuracy_axis(values: Iterable[float]) -> dict[str, Any]:
    """Return plotly's settings of an axis for accuracies (0 to 1); its ends are whole tenths, at least two apart."""
    seen = [value for value in values if math.isfinite(value)]
    low, high = 0, 10
    if seen:
        low, high = max(0, math.floor(10 * min(seen) - 0.1)), min(10, math.ceil(10 * max(seen) + 0.1))
        high = max(high, low + 2) if low < 9 else 10
        low = min(low, high - 2)
    axis = {"range": [low / 10, high / 10], "autorange": False, "tickformat": ".0%"}
    return axis | {"dtick": 0.2 if high - low > 6 else 0.1}


def ticks_at(values: Iterable[float]) -> dict[str, Any]:
    """Return plotly's settings of an axis with a tick at each of these values, if they are ten or fewer, else none."""
    places = sorted(set(values))
    if not 0 < len(places) <= _MOST_TICKS:
        return {}
    return {"tickmode": "array", "tickvals": places, "ticktext": [f"{place:,g}" for place in places]}


def end_labels(
    traces: Sequence[Mapping[str, Any]], names: Sequence[str], y_range: Sequence[float] | None, height: int
) -> tuple[list[dict[str, Any]], int]:
    """Return the names of curves as plotly annotations at their ends, and the right margin that they need (pixels).

    With the range of the y axis, which is `height` pixels long, names that would overlap are moved apart. Long ones
    wrap.
    """
    low, high = y_range or (0.0, 1.0)
    per_pixel = (high - low) / height
    found = [
        (float(trace["y"][-1]), _wrapped(name, _NAME), trace)
        for trace, name in zip(traces, names, strict=True)
        if len(trace["y"]) and np.isfinite(trace["y"][-1])
    ]
    found.sort(key=lambda each: each[0])
    places = [y for y, *_ in found]
    if y_range and found:  # upwards from the lowest, then down from the upper end
        places[0] = max(places[0], low + _LABEL * per_pixel * (len(found[0][1]) - 1) / 2)  # above the ticks
        gaps = [_LABEL * per_pixel * (len(a) + len(b)) / 2 for (_, a, _), (_, b, _) in itertools.pairwise(found)]
        for i, gap in enumerate(gaps, 1):
            places[i] = max(places[i], places[i - 1] + gap)
        top = high
        for i in reversed(range(len(places))):
            places[i] = min(places[i], top)
            top = places[i] - (gaps[i - 1] if i else 0)
    notes = []
    for at, (y, lines, trace) in zip(places, found, strict=True):
        note: dict[str, Any] = {"x": float(trace["x"][-1]), "y": y, "yshift": (at - y) / per_pixel, "xshift": 6}
        text = _spot("●", trace["line"]["color"]) + " " + "<br>\u2003 ".join(lines)
        note |= {"text": text, "name": "", "showarrow": False}
        notes.append(note | {"xanchor": "left", "yanchor": "middle", "align": "left"})
    longest = max((len(line) for _, lines, _ in found for line in lines), default=0)
    return notes, round(16 + _CHARACTER * (longest + 3)) if notes else 16


def label_ends(figure: go.Figure, names: Sequence[str] | None = None) -> None:
    """Write the names of curves, by default the legend's, at their ends in its place; more than six keep the legend."""
    curves = [trace for trace in figure.data if trace.showlegend is not False and trace.name]
    if not 0 < len(curves) <= MOST_LABELS:
        return
    axes = {"x": figure.layout.xaxis, "y": figure.layout.yaxis}

    def drawn(trace: Any, letter: str) -> np.ndarray:
        values = np.asarray([] if trace[letter] is None else trace[letter], float)
        return np.log10(values) if axes[letter].type == "log" else values

    for letter, axis in axes.items():
        if axis.range is None:  # the page's own range would make room for the names once more
            values = np.concatenate([drawn(trace, letter) for trace in figure.data])
            axis.range = range_around(values, axis.rangemode == "tozero")
    drawn_curves = [
        {"x": drawn(trace, "x"), "y": drawn(trace, "y"), "line": {"color": trace.line.color or trace.marker.color}}
        for trace in curves
    ]
    margin = figure.layout.margin
    names = names or [html.unescape(trace.name) for trace in curves]
    height = figure.layout.height - margin.t - margin.b
    notes, right = end_labels(drawn_curves, names, figure.layout.yaxis.range, height)
    figure.update_layout(annotations=[*figure.layout.annotations, *notes], margin_r=right, showlegend=False)


def range_around(values: np.ndarray, with_zero: bool = False) -> list[float]:
    """Return the ends of an axis around the finite ones of the values."""
    seen = [*values[np.isfinite(values)], *([0.0] if with_zero else [])] or [0.0, 1.0]
    low, high = float(min(seen)), float(max(seen))
    pad = 0.04 * (high - low) or 0.5
    return [low - (0 if with_zero and low == 0 else pad), high + pad]


def _spot(mark: str, colour: str) -> str:
    return f'<span style="color:{colour}">{mark}</span>'


def add_key(figure: go.Figure, entries: Iterable[tuple[str, str, str]], most: int = _KEY) -> None:
    """Write what marks and colours mean, as (mark, colour, meaning), above the plot in lines of `most` characters."""
    lines, used = [""], 0
    for mark, colour, name in entries:
        if used and used + len(name) + 4 > most:
            lines, used = [*lines, ""], 0
        lines[-1] += ("\u2003" if used else "") + f"{_spot(mark, colour)} {escape_label(name)}"
        used += len(name) + 4
    note = {"text": "<br>".join(lines), "name": "", "showarrow": False, "align": "left", "yshift": 4}
    note |= {"x": 0, "xref": "paper", "xanchor": "left", "y": 1, "yref": "paper", "yanchor": "bottom"}
    top = figure.layout.margin.t + _LINE * len(lines) + 4
    figure.update_layout(annotations=[*figure.layout.annotations, note], showlegend=False, margin_t=top)


def add_lanes(figure: go.Figure, lanes: Sequence[str], bar: int = 32) -> None:
    """Give each lane of bars, `bar` pixels high, its room from the top down, and write its name above its bars.

    Beside the bars, the names would take half of a narrow page.
    """
    place = {"x": 0, "xref": "paper", "xanchor": "left", "yanchor": "middle", "yshift": bar / 2 + 11}
    lane = bar + _LANE_NAME
    notes = [{"y": name, "text": name, "name": "", "showarrow": False} | place for name in lanes]
    figure.update_yaxes(
        categoryorder="array",
        categoryarray=list(lanes)[::-1],
        type="category",
        range=[-0.5, len(lanes) - 0.5 + 10 / lane],
        showticklabels=False,
        showgrid=False,
        automargin=False,
    )
    margin = figure.layout.margin
    figure.update_layout(
        annotations=[*figure.layout.annotations, *notes],
        barmode="overlay",
        bargap=_LANE_NAME / lane,
        height=margin.t + margin.b + lane * len(lanes) + 10,
        margin_l=8,
    )
