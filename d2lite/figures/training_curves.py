"""Training runs -> their curves, and the seconds per epoch of each run, as plotly figures.

Every number comes from the runs that are given. Each run differs from its neighbours in colour, dash and marker.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from d2lite.figures.figure import Figure
from d2lite.figures.figure_layout import layout, line, thin
from d2lite.figures.labels import escape_label
from d2lite.figures.palette import DASHES, style
from d2lite.figures.ticks import tick_step
from d2lite.training.run import Run, legends

__all__ = ["axes", "curves", "is_accuracy", "seconds_per_epoch"]

_WIDTHS = (5.0, 3.5, 2.0)  # equal curves lie on each other: the lower ones show at the sides
_NO_RUN = 10  # epochs that an axis without a run has room for


def is_accuracy(name: str) -> bool:
    """Return whether a curve of that name is an accuracy, from 0 to 1."""
    return "acc" in name.lower()


def _curves_of(run: Run) -> dict[str, tuple[list[float], list[float]]]:
    """Return {name: (x, y)} of a run: what an Animator was given, else the run's test accuracy after each epoch."""
    if run.curves:
        # y may grow while it is read: no longer than x
        return {name: (list(c["x"]), list(c["y"])[: len(c["x"])]) for name, c in run.curves.items()}
    return {"test accuracy": (list(range(1, len(run.accuracies) + 1)), list(run.accuracies))}


def _curve_traces(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return plotly traces (dicts), one per curve of each run.

    A run has one colour; if it has several curves, they differ in dash.
    """
    traces = []
    for i, (run, legend) in enumerate(zip(runs, legends(runs), strict=True)):
        colour, dash, marker = style(i)
        about = "<br>".join(escape_label(part) for part in (run.devices, run.dataset) if part)
        own = _curves_of(run)
        for j, (name, (x, y)) in enumerate(own.items()):
            n = min(len(x), len(y))
            several = len(own) > 1
            text = f"{legend} · {name}" if several else legend
            dash = list(DASHES)[j % len(DASHES)] if several else dash
            hover = f"%{{x:.4g}}: %{{y:.4f}}<br>{about}<extra>{escape_label(text)}</extra>"
            trace = line(text, *thin(x[:n], y[:n]), (colour, dash, marker), _WIDTHS[i % len(_WIDTHS)])
            traces.append(trace | {"hovertemplate": hover})
    return traces


def axes(runs: Sequence[Run]) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Return plotly's text of the title, and its `xaxis` and `yaxis` with titles and ranges, for the curves of `runs`.

    Accuracies have a fixed axis from 0% to 100%, and epochs one that is as long as the runs will be: nothing jumps.
    """
    data = sorted({run.dataset for run in runs if run.dataset})
    found = list(dict.fromkeys(name for run in runs for name in _curves_of(run))) or ["test accuracy"]
    title = " and ".join(data) or ("data not named" if runs else "no run yet")
    if len(found) == 1:
        title = f"{found[0]}, {title}"
    quantity = {name: curve.get("quantity", name) for run in runs for name, curve in run.curves.items()}
    quantities = dict.fromkeys(quantity.get(name, name) for name in found)  # the legend names the ranks
    seen = [v for run in runs for x, _ in _curves_of(run).values() for v in x]
    xaxis: dict[str, Any] = {"title": {"text": "epoch"}, "range": None, "autorange": True, "tick0": 0}
    yaxis: dict[str, Any] = {"title": {"text": escape_label(" · ".join(quantities))}, "range": None, "autorange": True}
    yaxis |= {"tickformat": ""}
    if all(is_accuracy(name) for name in found):
        yaxis |= {"range": [0, 1], "autorange": False, "tickformat": ".0%"}
    xaxis["dtick"] = tick_step(min(seen, default=0), max(seen, default=1))
    ends: list[Any] = [run.settings.get("num_epochs") for run in runs] or [_NO_RUN]
    if all(isinstance(n, int) for n in ends):
        low, high = min([1, *seen]), max([*ends, *seen])
        pad = max(0.02 * (high - low), 0 if high > low else 0.5)
        xaxis |= {"range": [low - pad, high + pad], "autorange": False, "tickformat": ",d"}
        xaxis["dtick"] = 1 if high <= 20 else tick_step(low, high)
    return escape_label(title), xaxis, yaxis


def curves(runs: Sequence[Run]) -> Figure:
    """Return a figure with the curves of all `runs` on the same axes, legends beneath."""
    title, xaxis, yaxis = axes(runs)
    figure = Figure(_curve_traces(runs), layout())
    return figure.update_layout(title_text=title, xaxis=xaxis, yaxis=yaxis)


def seconds_per_epoch(runs: Sequence[Run], names: Sequence[str] | None = None, first: int = 0) -> Figure:
    """Return a figure with one bar per run: the median of its measured seconds per epoch.

    A run without a complete epoch has no bar. `names` are the legends of the runs, and `first` is the place of runs[0]
    among all runs, which decides the colours.
    """
    timed = [
        (i, run, name)
        for i, (run, name) in enumerate(zip(runs, names or legends(runs), strict=True), first)
        if run.seconds
    ]
    figure = Figure(layout=layout(title="seconds per epoch, measured"))
    figure.add_bar(
        orientation="h",
        x=np.array([run.seconds_per_epoch for _, run, _ in timed]),
        y=["<br>".join(escape_label(line) for line in _wrap(name)) for _, _, name in timed],
        text=[f"{run.seconds_per_epoch:.3g} s" for _, run, _ in timed],
        customdata=[escape_label(f"{run.devices}; {run.dataset}") for _, run, _ in timed],
        hovertemplate="%{x:.4g} s per epoch<br>%{customdata}<extra></extra>",
        marker={"color": [style(i)[0] for i, _, _ in timed]},
        textposition="outside",
        cliponaxis=False,
        showlegend=False,
    )
    # the first run on top; where there are no names plotly would put numbers
    figure.update_yaxes(autorange="reversed", type="category", showgrid=False, showticklabels=bool(timed))
    longest = max((run.seconds_per_epoch for _, run, _ in timed), default=1.0)
    gap = 1 - 0.65 * min(1, len(timed) / 3)  # a bar among few is no thicker than among three
    return figure.update_layout(margin_b=40, xaxis_range=[0, 1.25 * longest], bargap=gap)  # room for the texts


def _wrap(name: str, width: int = 24) -> list[str]:
    """Cut the name of a run at its dots, the first part on a line of its own, so that it leaves room for a bar."""
    lines: list[str] = []
    for part in name.split(" · "):
        if len(lines) > 1 and len(lines[-1]) + len(part) + 3 <= width:
            lines[-1] += f" · {part}"
        else:
            lines.append(part)
    return lines
