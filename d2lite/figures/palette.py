"""The colours, dashes and markers of all figures: legible on a light page, on a dark one, and for the colour-blind.

docs/figures.md says what each colour means.
"""

import re

__all__ = [
    "COLLECTIVE_COLOURS", "COLOURS", "DASHES", "GREY", "INK", "PALETTE", "PALE_GREY", "RED", "TRANSPARENT", "contrast",
    "ink_on", "pale", "stroke", "style",
]  # fmt: skip

GREY = "#797979"  # 4.35:1 on white and on JupyterLab's dark #111111: no grey does better on both
INK = "#444444"  # of text on white: 9.7:1
PALE_GREY = "rgba(121,121,121,0.35)"  # grid lines
TRANSPARENT = "rgba(0,0,0,0)"
RED = "#E0102F"  # what does not match; white text on it has 4.9:1
# Of Okabe and Ito's colours those with 3:1 on white and on #111111; their black is grey here. The i-th is that of
# device, replica or rank i, or of the i-th arm or run.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", GREY)
# of the parts of a step
COLOURS = dict(zip(("forward", "backward", "all_reduce", "update", "data"), PALETTE, strict=True))
COLOURS |= {"backward, input": PALETTE[3], "backward, weights": PALETTE[2]}  # the halves of a backward pass
COLLECTIVE_COLOURS = {  # of the collectives of a job
    "all_reduce": COLOURS["all_reduce"],
    "broadcast": PALETTE[0],
    "all_gather": PALETTE[3],
    "reduce_scatter": PALETTE[3],
    "barrier": GREY,
}
DASHES = {"solid": "none", "dash": "8 5", "dot": "2 4", "dashdot": "8 4 2 4"}  # plotly's name -> SVG's dash array
MARKERS = ("circle", "square", "diamond", "triangle-up", "x", "star")


def style(i: int) -> tuple[str, str, str]:
    """Return (colour, dash, marker) of the i-th run; the first twenty differ in colour or dash, most in both."""
    return PALETTE[i % len(PALETTE)], list(DASHES)[i % len(DASHES)], MARKERS[i % len(MARKERS)]


def stroke(i: int) -> str:
    """Return the stroke of the i-th run's curve as a small picture (HTML)."""
    colour, dash, _ = style(i)
    return (
        '<svg width="30" height="8" aria-hidden="true"><path d="M0 4h30" fill="none" '
        f'stroke="{colour}" stroke-width="3" stroke-dasharray="{DASHES[dash]}"/></svg>'
    )


def pale(colour: str) -> str:
    """Return a colour ("#rrggbb") as a tint of any page: text in the page's own colour is legible on it."""
    red, green, blue = _parts(colour)
    return f"rgba({red},{green},{blue},0.15)"


def ink_on(colour: str) -> str:
    """Return the colour of text on a ground of `colour` ("#rrggbb"): white or black, whichever has more contrast."""
    return max(("white", "black"), key=lambda ink: contrast({"white": "#ffffff", "black": "#000000"}[ink], colour))


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours ("#rrggbb") as WCAG 2 defines it: 1 to 21."""
    low, high = sorted(map(_luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    parts = [part / 255 for part in _parts(colour)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _parts(colour: str) -> list[int]:
    return [int(part, 16) for part in re.findall("[0-9a-fA-F]{2}", colour)]
