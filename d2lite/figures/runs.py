"""Runs -> plotly figures, pure: every number in a figure comes from the records it is given.

Backgrounds are transparent, so that a figure stands on a light page and on a dark one; each run differs from its
neighbours in colour, dash and marker.
"""

import html

import numpy as np
import plotly.graph_objects as go

from d2lite.training.run import legends

__all__ = [
    "GREY",
    "MAX_POINTS",
    "PALETTE",
    "axes",
    "curve_traces",
    "curves",
    "curves_of",
    "is_accuracy",
    "layout",
    "seconds_per_epoch",
    "style",
    "thin",
]

MAX_POINTS = 2000  # points of one trace; more cannot be seen, and must be sent
GREY = "#797979"  # 4.35:1 on white and on JupyterLab's dark #111111: no grey does better on both
# Of Okabe and Ito's colours those with 3:1 on white and on #111111; their black is grey here.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", GREY)
DASHES = ("solid", "dash", "dot", "dashdot")
MARKERS = ("circle", "square", "diamond", "triangle-up", "x", "star")
_WIDTHS = (5.0, 3.5, 2.0)  # equal curves lie on each other: the lower ones show at the sides
_HEIGHT = 370  # pixels, fixed: a figure that grows moves the page


def style(i):
    """Return (colour, dash, marker) of the i-th run; the first twenty differ in colour or dash, most in both."""
    return PALETTE[i % len(PALETTE)], DASHES[i % len(DASHES)], MARKERS[i % len(MARKERS)]


def thin(x, y, most=MAX_POINTS):
    """Return x and y as float arrays of at most `most` points, evenly picked, the first and the last among them."""
    x, y = np.asarray(x, float), np.asarray(y, float)
    if len(x) > most:
        keep = np.linspace(0, len(x) - 1, most).round().astype(int)
        x, y = x[keep], y[keep]
    return x, y


def is_accuracy(name):
    """Return whether a curve of that name is an accuracy, from 0 to 1."""
    return "acc" in name.lower()


def curves_of(run):
    """Return {name: (x, y)} of a run: what an animator was given, else its test accuracy after each epoch."""
    if run.curves:
        # y may grow while we look: no longer than x
        return {name: (list(c["x"]), list(c["y"])[: len(c["x"])]) for name, c in run.curves.items()}
    return {"test accuracy": (list(range(1, len(run.accuracies) + 1)), list(run.accuracies))}


def curve_traces(runs, names=None, first=0):
    """Return plotly traces (dicts), one a curve of each run; `first` is the place of runs[0] among all runs.

    A run has a colour; its curves, if they are several, differ in dash. `names` are the runs' legends.
    """
    traces = []
    for i, (run, label) in enumerate(zip(runs, names or legends(runs), strict=True), first):
        own = curves_of(run)
        for j, (name, (x, y)) in enumerate(own.items()):
            n = min(len(x), len(y))
            colour, dash, marker = style(i)
            text = label if len(own) == 1 else f"{label} · {name}"
            about = "<br>".join(html.escape(part) for part in (run.devices, run.dataset) if part)
            traces.append(
                line(
                    text, *thin(x[:n], y[:n]), colour, dash if len(own) == 1 else DASHES[j % 4], marker, _WIDTHS[i % 3]
                )
                | {"hovertemplate": f"%{{x:.4g}}: %{{y:.4f}}<br>{about}<extra>{html.escape(text)}</extra>"}
            )
    return traces


def line(name, x, y, colour, dash, marker, width=2.5):
    """Return one plotly trace; its points are marked while they can be told apart."""
    return {
        "type": "scatter",
        "name": html.escape(name),
        "x": x,
        "y": y,
        "mode": "lines+markers" if len(x) <= 60 else "lines",
        "line": {"color": colour, "dash": dash, "width": width},
        "marker": {"color": colour, "symbol": marker, "size": 4 + 1.4 * width},
        "cliponaxis": False,
        "showlegend": True,
    }


def layout(xlabel=None, ylabel=None, title=None, height=_HEIGHT):
    """Return the plotly layout (dict) of all figures: transparent, grey, the legend beneath the curves."""
    axis = {"gridcolor": "rgba(121,121,121,0.35)", "zeroline": False, "linecolor": GREY, "automargin": True}
    return {
        "template": "none",
        "height": height,
        "autosize": True,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"color": GREY, "size": 13},
        "title": {"text": html.escape(title or ""), "x": 0, "xref": "paper", "font": {"size": 14}, "y": 0.97},
        "margin": {"l": 60, "r": 16, "t": 36, "b": 120},
        "legend": {"orientation": "h", "x": 0, "xanchor": "left", "y": 0, "yref": "container", "yanchor": "bottom"}
        | {"maxheight": 80},  # four rows; more scroll, so that they never cover the curves
        "xaxis": axis | {"title": {"text": html.escape(xlabel or ""), "standoff": 6, "font": {"size": 13}}},
        "yaxis": axis | {"title": {"text": html.escape(ylabel or ""), "standoff": 6, "font": {"size": 13}}},
        "hovermode": "closest",
    }


def axes(runs):
    """Return (title, labels and ranges of both axes as plotly's `xaxis` and `yaxis`) for the curves of `runs`.

    Accuracies have a fixed axis from 0% to 100%, and epochs one as long as was asked for, so that nothing jumps.
    """
    data = sorted({run.dataset for run in runs if run.dataset})
    found = dict.fromkeys(name for run in runs for name in curves_of(run)) or ["test accuracy"]
    title = " and ".join(data) or ("data not named" if runs else "no run yet")
    if len(found) == 1:
        title = f"{next(iter(found))}, {title}"
    quantity = {name: curve.get("quantity", name) for run in runs for name, curve in run.curves.items()}
    quantities = dict.fromkeys(quantity.get(name, name) for name in found)  # the legend names the ranks
    yaxis = {"title": {"text": html.escape(" · ".join(quantities))}, "range": None, "autorange": True, "tickformat": ""}
    if all(is_accuracy(name) for name in found):
        yaxis |= {"range": [0, 1], "autorange": False, "tickformat": ".0%"}
    ends = [run.settings.get("num_epochs") for run in runs]
    xaxis = {"title": {"text": "epoch"}, "range": None, "autorange": True, "dtick": None}
    if ends and all(isinstance(n, int) for n in ends):
        seen = [v for run in runs for x, _ in curves_of(run).values() for v in x]
        low, high = min([1, *seen]), max([*ends, *seen])
        pad = max(0.02 * (high - low), 0 if high > low else 0.5)
        xaxis |= {"range": [low - pad, high + pad], "autorange": False, "tickformat": ",d"}
        xaxis |= {"dtick": 1, "tick0": 0} if high <= 20 else {}
    return title, xaxis, yaxis


def _lines(name, width=24):
    """Cut the name of a run at its dots, the first part alone, so that it leaves room for a bar."""
    lines = []
    for part in name.split(" · "):
        if len(lines) > 1 and len(lines[-1]) + len(part) + 3 <= width:
            lines[-1] += f" · {part}"
        else:
            lines.append(part)
    return lines


def curves(runs):
    """Return a figure with the curves of `runs` over each other, legends beneath."""
    title, xaxis, yaxis = axes(runs)
    figure = go.Figure(curve_traces(runs), layout(title=title))
    return figure.update_layout(xaxis=xaxis, yaxis=yaxis)


def seconds_per_epoch(runs, names=None, first=0):
    """Return a figure with one bar a run: the median of its measured seconds an epoch.

    A run without a whole epoch has no bar. `names` and `first` are as in `curve_traces`.
    """
    timed = [
        (i, run, name)
        for i, (run, name) in enumerate(zip(runs, names or legends(runs), strict=True), first)
        if run.seconds
    ]
    figure = go.Figure(layout=layout(title="seconds an epoch, measured"))
    figure.add_bar(
        orientation="h",
        x=np.array([run.seconds_per_epoch for _, run, _ in timed]),
        y=["<br>".join(html.escape(line) for line in _lines(name)) for _, _, name in timed],
        text=[f"{run.seconds_per_epoch:.3g} s" for _, run, _ in timed],
        customdata=[html.escape(f"{run.devices}; {run.dataset}") for _, run, _ in timed],
        hovertemplate="%{x:.4g} s an epoch<br>%{customdata}<extra></extra>",
        marker={"color": [style(i)[0] for i, _, _ in timed]},
        textposition="outside",
        cliponaxis=False,
        showlegend=False,
    )
    figure.update_yaxes(autorange="reversed", type="category", showgrid=False)  # the first run on top
    longest = max((run.seconds_per_epoch for _, run, _ in timed), default=1.0)
    # the title ends where the bars may end: beside long names there is little room from their beginning
    figure.update_layout(title_x=1, title_xanchor="right")
    return figure.update_layout(margin_b=40, xaxis_range=[0, 1.25 * longest], bargap=0.35)  # room for the words
