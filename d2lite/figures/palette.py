"""The colours, dashes and markers of all figures: legible on a light page, on a dark one, and for the colour-blind."""

__all__ = ["DASHES", "GREY", "INK", "PALETTE", "PALE_GREY", "TRANSPARENT", "style"]

GREY = "#797979"  # 4.35:1 on white and on JupyterLab's dark #111111: no grey does better on both
INK = "#444444"  # of text on white: 9.7:1
PALE_GREY = "rgba(121,121,121,0.35)"  # grid lines
TRANSPARENT = "rgba(0,0,0,0)"
# Of Okabe and Ito's colours those with 3:1 on white and on #111111; their black is grey here.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", GREY)
DASHES = {"solid": "none", "dash": "8 5", "dot": "2 4", "dashdot": "8 4 2 4"}  # plotly's name -> SVG's dash array
MARKERS = ("circle", "square", "diamond", "triangle-up", "x", "star")


def style(i: int) -> tuple[str, str, str]:
    """Return (colour, dash, marker) of the i-th run; the first twenty differ in colour or dash, most in both."""
    return PALETTE[i % len(PALETTE)], list(DASHES)[i % len(DASHES)], MARKERS[i % len(MARKERS)]
