"""A plotly figure of this room as an SVG picture, for pages without plotly, such as exported ones.

It draws the parts that the room's figures consist of: curves, marks, horizontal bars, cells, boxes, arrows and notes.
"""

import html
import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from plotly.basedatatypes import BaseFigure

from d2lite.figures.palette import DASHES, GREY, INK, TRANSPARENT
from d2lite.figures.svg_bars import bars, thickness
from d2lite.figures.ticks import ticks

__all__ = ["figure_svg"]

_WIDTH = 760
_MOST_TICKS = 20
_ROW, _TEXT = 18, 6.6  # pixels: height of a legend's row, width of a character
_SPAN = re.compile(r'<span style="color:(#\w{6})">(.*?)</span>')  # a mark of a key, or before a name
_MARKUP = re.compile(r"<(?!br)[^<>]*>")
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # a picture with these is not drawn
_Scale = Callable[[Any], float]  # a value -> pixels; NaN without a place


def figure_svg(figure: BaseFigure, width: int = _WIDTH) -> str:
    """Return the SVG text of a figure, as wide as the figure says, else `width` pixels."""
    layout = figure.layout
    width = int(layout.width or width)
    traces = [t for t in figure.data if t.visible is not False and getattr(t, "opacity", 1) != 0]
    named = [t for t in traces if t.showlegend is not False and t.name and (t.x is not None and len(t.x))]
    named = named if layout.showlegend is not False else []
    top, bottom = int(layout.margin.t or 36), 46 if layout.xaxis.visible is not False else 10
    height = int(layout.height or 370)
    full = height if not named else height + _ROW * len(named) - min(int(layout.margin.b or 0), 80)
    title_y = 20 + 7 * (len(_lines(layout.title.text)) - 1)  # of the middle of its lines
    parts = [_text(8, title_y, layout.title.text, anchor="start", size=15, bold=True)]
    pairs = list(dict.fromkeys((t.xaxis or "x", t.yaxis or "y") for t in traces)) or [("x", "y")]
    base = full - _ROW * len(named) - bottom
    for xname, yname in pairs:
        mine = [t for t in traces if (t.xaxis or "x", t.yaxis or "y") == (xname, yname)]
        xaxis, yaxis = (layout[name.replace("x", "xaxis").replace("y", "yaxis")] for name in (xname, yname))
        left = 12 + max([_TEXT * len(w) for label in _labels(yaxis, mine, "y") for w in _lines(label)] or [40])
        left = int(layout.margin.l or 0) if yaxis.showticklabels is False and layout.margin.l is not None else left
        left += 22 if yaxis.title.text else 0
        x0, x1 = (int(d * width) for d in xaxis.domain or (0, 1))
        left = 0 if x0 else left  # beside another plot the labels stand in the gap
        right = x1 - max(18, int(layout.margin.r or 0))
        low, high = (base - part * (base - top - 8) for part in yaxis.domain or (0, 1))
        across = _scale(xaxis, mine, "x", x0 + left, right)
        down = _scale(yaxis, mine, "y", low, high)
        frame = (x0 + left, right, high, low)
        parts += _axis(xaxis, mine, across, frame, vertical=False)
        parts += _axis(yaxis, mine, down, frame, vertical=True)
        if (xname, yname) == pairs[0]:
            parts += _boxes(layout, across, down)
        ends: dict[Any, float] | None = {} if layout.barmode == "stack" else None
        thick = thickness(mine, down, layout.bargap, low - high)
        for trace in mine:
            parts += _trace(trace, across, down, ends, thick)
        if (xname, yname) == pairs[0]:
            parts += _notes(layout, across, down, (x0 + left, right, top + 8, base))
    for row, trace in enumerate(named):
        y = full - _ROW * (len(named) - row) + 8
        if trace.type == "scatter" and "lines" not in (trace.mode or "lines"):
            parts.append(f'<circle cx="33" cy="{y}" r="4.5" fill="{_colour(trace)}"/>')
        else:
            parts.append(f'<path d="M16 {y}h34" stroke="{_colour(trace)}" stroke-width="4"{_dash(trace)}/>')
        parts.append(_text(58, y + 4, trace.name, anchor="start"))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {full}" width="{width}" height="{full}" '
        f'font-family="sans-serif" font-size="12" fill="none">'
        f'<rect width="{width}" height="{full}" fill="white"/>{"".join(parts)}</svg>'
    )


def _values(traces: Sequence[Any], letter: str) -> list[Any]:
    found = []
    for t in traces:
        given = [] if t[letter] is None else list(t[letter])
        if t.type == "bar" and letter == "x":
            bases = t.base if isinstance(t.base, (list, tuple)) else [0] * len(given)
            given = [*bases, *(b + x for b, x in zip(bases, given, strict=True) if x is not None)]
        found += given
    return [v for v in found if v is not None and (isinstance(v, str) or math.isfinite(v))]


def _categories(axis: Any, traces: Sequence[Any], letter: str) -> list[str]:
    return list(axis.categoryarray if axis.categoryarray is not None else dict.fromkeys(_values(traces, letter)))


def _is_category(axis: Any, traces: Sequence[Any], letter: str) -> bool:
    return axis.type == "category" or any(isinstance(v, str) for v in _values(traces, letter))


def _scale(axis: Any, traces: Sequence[Any], letter: str, start: float, end: float) -> _Scale:
    """Return the scale of an axis between two pixels."""
    if _is_category(axis, traces, letter):
        names = _categories(axis, traces, letter)
        low, high = axis.range or (-0.5, len(names) - 0.5)
        low, high = (high, low) if axis.autorange == "reversed" else (low, high)
        return lambda v: (
            start + (names.index(v) - low) / ((high - low) or 1) * (end - start) if v in names else math.nan
        )
    low, high = axis.range or _range_of(axis, _values(traces, letter))

    def place(value: Any) -> float:
        if value is None or (axis.type == "log" and not value > 0):
            return math.nan
        value = math.log10(value) if axis.type == "log" else value
        return start + (value - low) / ((high - low) or 1) * (end - start)

    return place


def _range_of(axis: Any, values: Sequence[float]) -> tuple[float, float]:
    values = [math.log10(v) for v in values if v > 0] if axis.type == "log" else list(values)
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    low = min(low, 0.0) if axis.rangemode == "tozero" else low
    pad = 0.04 * (high - low) or 0.5
    return low - (pad if low else 0), high + pad


def _marks(axis: Any, traces: Sequence[Any], letter: str) -> list[tuple[Any, str]]:
    """Return the places of an axis that have a label, with their labels."""
    if axis.visible is False:
        return []
    if _is_category(axis, traces, letter):
        return [(name, name) for name in _categories(axis, traces, letter)]
    if axis.tickvals is not None:
        texts = axis.ticktext if axis.ticktext is not None else [_tick_label(v, axis.tickformat) for v in axis.tickvals]
        return list(zip(axis.tickvals, texts, strict=True))
    low, high = sorted(axis.range or _range_of(axis, _values(traces, letter)))
    if axis.type == "log":
        return [(10.0**p, _tick_label(10.0**p, "")) for p in range(math.ceil(low), math.floor(high) + 1)]
    return [(v, _tick_label(v, axis.tickformat)) for v in _places(axis, low, high)]


def _places(axis: Any, low: float, high: float) -> list[float]:
    """Return where the ticks of a linear axis are: at the steps that it says, if it says some."""
    step, start = axis.dtick, axis.tick0 or 0
    if not isinstance(step, (int, float)) or not 0 < (high - low) / step <= _MOST_TICKS:
        return ticks(low, high)
    first, last = (round((end - start) / step, 6) for end in (low, high))
    return [round(start + i * step, 12) for i in range(math.ceil(first), math.floor(last) + 1)]


def _labels(axis: Any, traces: Sequence[Any], letter: str) -> list[str]:
    return [] if axis.showticklabels is False else [text for _, text in _marks(axis, traces, letter)]


def _tick_label(value: float, form: str | None) -> str:
    return f"{value:.0%}" if form == ".0%" else f"{value:,g}"


def _axis(
    axis: Any, traces: Sequence[Any], scale: _Scale, frame: tuple[float, float, float, float], vertical: bool
) -> Iterator[str]:
    if axis.visible is False:
        return
    x0, x1, top, base = frame
    letter = "y" if vertical else "x"
    category = _is_category(axis, traces, letter)
    for value, label in _marks(axis, traces, letter):
        at = scale(value)
        if axis.showgrid is not False and not category:
            path = f"M{x0:.1f} {at:.1f}H{x1:.1f}" if vertical else f"M{at:.1f} {top:.1f}V{base:.1f}"
            yield f'<path d="{path}" stroke="{GREY}" stroke-opacity=".3"/>'
        if axis.showticklabels is not False:
            yield _text(x0 - 6, at + 4, label, anchor="end") if vertical else _text(at, base + 17, label)
    title = axis.title.text
    if title and vertical:
        yield f'<g transform="rotate(-90 12 {(top + base) / 2:.1f})">{_text(12, (top + base) / 2, title)}</g>'
    elif title:
        yield _text((x0 + x1) / 2, base + 36, title)


def _trace(trace: Any, across: _Scale, down: _Scale, ends: dict[Any, float] | None, thick: float) -> Iterator[str]:
    """The bars, cells or curve of a trace; `ends` holds the ends of the bars that are stacked so far."""
    colour = _colour(trace)
    if trace.type == "bar":
        outside = trace.text if trace.textposition == "outside" else None
        for i, drawn, end, middle in bars(trace, across, down, thick, ends):
            yield drawn
            if outside is not None and not isinstance(outside, str):
                yield _text(end + 6, middle + 4, outside[i], anchor="start")
    elif trace.type == "heatmap":
        places = list(down(y) for y in trace.y)
        tall = abs(places[1] - places[0]) - 5 if len(places) > 1 else 60
        texts = trace.z if trace.text is None else trace.text
        for row, words, y in zip(trace.z, texts, places, strict=True):
            for i, value in enumerate(row):
                if value is None:
                    continue
                a, b = across(trace.x[i]), across(trace.x[i + 1])
                part = (value - trace.zmin) / (trace.zmax - trace.zmin)
                fill = next((c for p, c in reversed(trace.colorscale) if p <= part), "#E6E6E6")
                yield f'<rect x="{a:.1f}" y="{y - tall / 2:.1f}" width="{b - a:.1f}" height="{tall:.1f}" '
                yield f'fill="{fill}"/>'
                word = words[i] if isinstance(words[i], str) else f"{words[i]:g}"
                yield _text((a + b) / 2, y + 4, word, fill="black")
    elif trace.x is not None and trace.y is not None:
        points = [(across(x), down(y)) for x, y in zip(trace.x, trace.y, strict=False)]
        yield from _curve(trace, points, colour)


def _curve(trace: Any, points: Sequence[tuple[float, float]], colour: str) -> Iterator[str]:
    path, drawing = "", False
    symbols = trace.marker.symbol
    for i, (x, y) in enumerate(points):
        seen = math.isfinite(x) and math.isfinite(y)
        if seen:
            path += f"{'L' if drawing else 'M'}{x:.1f} {y:.1f}"
        if seen and ("markers" in (trace.mode or "") or len(points) == 1):
            each = symbols[i] if isinstance(symbols, (list, tuple)) and i < len(symbols) else symbols or ""
            if each == "arrow":
                turn = 180 if trace.marker.angle[i] else 0
                place = f"translate({x:.1f} {y:.1f}) rotate({turn})"
                yield f'<path d="M-6 10L0 0L6 10Z" transform="{place}" fill="{colour}"/>'
            else:
                fill = "none" if "open" in each else colour
                yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{fill}" stroke="{colour}"/>'
        if seen and trace.text is not None and "text" in (trace.mode or ""):
            yield _text(x + 8, y - 8, trace.text if isinstance(trace.text, str) else trace.text[i], anchor="start")
        drawing = seen
    if "lines" in (trace.mode or "lines") and path:
        yield f'<path d="{path}" stroke="{colour}" stroke-width="2.5"{_dash(trace)}/>'


def _boxes(layout: Any, across: _Scale, down: _Scale) -> Iterator[str]:
    for shape in layout.shapes or ():
        a, b, c, d = across(shape.x0), down(shape.y0), across(shape.x1), down(shape.y1)
        if shape.type == "rect":
            yield f'<rect x="{min(a, c):.1f}" y="{min(b, d):.1f}" width="{abs(c - a):.1f}" height="{abs(d - b):.1f}" '
            yield f'fill="{shape.fillcolor or "none"}" stroke="{GREY}"/>'
        else:
            yield f'<path d="M{a:.1f} {b:.1f}L{c:.1f} {d:.1f}" stroke="{GREY}" stroke-dasharray="2 4"/>'


def _notes(layout: Any, across: _Scale, down: _Scale, box: tuple[float, float, float, float]) -> Iterator[str]:
    x0, x1, top, base = box
    for note in layout.annotations or ():
        # on a logarithmic axis plotly takes the exponent for the place of a note
        x = x0 + note.x * (x1 - x0) if note.xref == "paper" else across(_axis_value(note.x, layout.xaxis))
        y = base + note.y * (top - base) if note.yref == "paper" else down(_axis_value(note.y, layout.yaxis))
        if note.showarrow and note.axref == "x":
            a, colour = across(note.ax), note.arrowcolor or GREY
            way = 1 if x > a else -1
            yield f'<path d="M{a:.1f} {y:.1f}H{x:.1f}" stroke="{colour}" stroke-width="2.5"/>'
            for end, to in ((x, way), *(((a, -way),) if "start" in (note.arrowside or "") else ())):
                yield f'<path d="M{end:.1f} {y:.1f}l{-9 * to} -5v10Z" fill="{colour}"/>'
        if not note.text:
            continue
        x, y = x + (note.xshift or 0), y - (note.yshift or 0)
        y -= 7 * len(_lines(note.text)) if note.yanchor == "bottom" else 0
        anchor = {"left": "start", "right": "end"}.get(note.xanchor or "", "middle")
        long = _TEXT * max(len(line) for line in _lines(note.text))
        if note.bgcolor:
            left = x - {"start": 3, "end": long + 3, "middle": long / 2 + 3}[anchor]
            yield f'<rect x="{left:.1f}" y="{y - 10:.1f}" width="{long + 6:.1f}" height="18" fill="{note.bgcolor}"/>'
        yield _text(
            x, y + 4, note.text, anchor=anchor, fill=INK if note.font.color in (None, GREY) else note.font.color
        )


def _axis_value(place: Any, axis: Any) -> Any:
    return 10.0**place if axis.type == "log" else place


def _colour(trace: Any) -> str:
    line = getattr(trace, "line", None)
    if line is not None and line.color:
        return str(line.color)
    colour = getattr(trace, "marker", None) and trace.marker.color
    return colour if isinstance(colour, str) and colour != TRANSPARENT else GREY


def _dash(trace: Any) -> str:
    dash = DASHES.get(getattr(getattr(trace, "line", None), "dash", None) or "solid", "none")
    return "" if dash == "none" else f' stroke-dasharray="{dash}"'


def _lines(text: str) -> list[str]:
    """Plotly's text as lines without markup."""
    lines = re.split("<br ?/?>", str(text or ""))
    return [_NOT_XML.sub("\ufffd", html.unescape(_MARKUP.sub("", line))) for line in lines]


def _text(
    x: float, y: float, text: str | None, *, anchor: str = "middle", size: int = 12, fill: str = INK, bold: bool = False
) -> str:
    weight = ' font-weight="bold"' if bold else ""
    lines = [_SPAN.split(line) for line in re.split("<br ?/?>", str(text or ""))]
    y -= 7 * (len(lines) - 1)
    return "".join(
        f'<text x="{x:.1f}" y="{y + 14 * i:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{fill}"{weight}>'
        f"{''.join(_tspans(line))}</text>"
        for i, line in enumerate(lines)
        if any(line)
    )


def _tspans(parts: Sequence[str]) -> Iterator[str]:
    """Yield the parts of a line: text, and then by turns a colour, text in that colour, and text."""
    for i in range(0, len(parts), 3):
        yield html.escape(_lines(parts[i])[0])
        if i + 2 < len(parts):
            yield f'<tspan fill="{parts[i + 1]}">{html.escape(_lines(parts[i + 2])[0])}</tspan>'
