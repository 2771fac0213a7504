"""The bars of a plotly figure in an SVG picture: as thick, hatched and outlined as plotly draws them."""

import html
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from d2lite.figures.palette import GREY, TRANSPARENT

__all__ = ["bars", "thickness"]

_GAP = 0.2  # plotly's: the part of a bar's place that is left empty
_NAME, _CHARACTER, _LINE = 13, 7.2, 16  # pixels: size of a bar's name, width of a character, height of a line
_HATCHES = {  # plotly's name of a pattern -> what is drawn in a square of 6 pixels
    "/": '<path d="M-1 1l2 -2M0 6l6 -6M5 7l2 -2" stroke="{colour}" stroke-width="1.5"/>',
    ".": '<circle cx="3" cy="3" r="1.3" fill="{colour}"/>',
}
_Scale = Callable[[Any], float]  # a value -> pixels; NaN without a place


def thickness(traces: Sequence[Any], down: _Scale, gap: float | None, height: float) -> float:
    """Return how thick plotly draws the bars of a plot: a part of the distance between two places, or of `height`."""
    places = sorted(p for p in {down(y) for t in traces if t.type == "bar" for y in t.y} if math.isfinite(p))
    lane = min((b - a for a, b in zip(places, places[1:], strict=False)), default=height)
    return lane * (1 - (_GAP if gap is None else gap))


def bars(
    trace: Any, across: _Scale, down: _Scale, thick: float, ends: dict[Any, float] | None
) -> Iterator[tuple[int, str, float, float]]:
    """Yield (number, SVG, right end, middle) of each bar that has a length.

    `ends` holds where the bars of the traces before end in each lane, if bars are stacked; else it is None.
    """
    marker, bases = trace.marker, trace.base if isinstance(trace.base, (list, tuple)) else None
    thick = thick if trace.width is None else abs(down(trace.width) - down(0))
    for i, (x, y) in enumerate(zip(trace.x, trace.y, strict=True)):
        if x is None:
            continue
        start = bases[i] if bases else 0 if ends is None else ends.get(y, 0)
        if ends is not None:
            ends[y] = start + x
        a, b, middle = across(start), across(start + x), down(y)
        fill, shape, defined = _of(marker.color, i) or GREY, _of(marker.pattern.shape, i), ""
        fill = "none" if fill == TRANSPARENT else fill
        if shape:
            defined, fill = _hatch(shape, _of(marker.pattern.fgcolor, i) or GREY)
        width, colour = _of(marker.line.width, i), _of(marker.line.color, i) or GREY
        outline = f' stroke="{colour}" stroke-width="{width}"' if width else ""
        drawn = (
            f'{defined}<rect x="{a:.1f}" y="{middle - thick / 2:.1f}" width="{max(b - a, 0.5):.1f}" '
            f'height="{thick:.1f}" fill="{fill}"{outline}/>'
        )
        if trace.textposition == "inside":
            ink = _of(trace.insidetextfont.color, i) or "white"
            drawn += "".join(_name(str(_of(trace.text, i) or ""), (a + b) / 2, middle, b - a, thick, ink))
        yield i, drawn, b, middle


def _name(text: str, x: float, y: float, width: float, height: float, ink: str) -> Iterator[str]:
    """Yield the lines of a bar's name; nothing, as plotly, if they have no room."""
    lines = [html.unescape(line) for line in text.split("<br>")]
    if text and _CHARACTER * max(map(len, lines)) <= width and _LINE * len(lines) <= height:
        for i, line in enumerate(lines):
            at = y + 4.5 + _LINE * (i - (len(lines) - 1) / 2)
            yield f'<text x="{x:.1f}" y="{at:.1f}" text-anchor="middle" font-size="{_NAME}" fill="{ink}">'
            yield f"{html.escape(line)}</text>"


def _of(value: Any, i: int) -> Any:
    """Return what is given for the i-th bar, or for all."""
    return value if value is None or isinstance(value, (str, int, float)) else value[i]


def _hatch(shape: str, colour: str) -> tuple[str, str]:
    """Return (the definition of a pattern, what fills a bar with it)."""
    name = f"hatch{ord(shape)}-{colour.strip('#')}"  # a page may define it again: it is the same
    return (
        f'<defs><pattern id="{name}" width="6" height="6" patternUnits="userSpaceOnUse">'
        f"{_HATCHES.get(shape, '').format(colour=colour)}</pattern></defs>",
        f"url(#{name})",
    )
