"""Training runs -> their curves as plotly figures: what was tested after each epoch, and the loss of each step.

Every number comes from the runs that are given. Each run differs from its neighbours in colour, dash and marker. Up to
six curves have their names at their ends; more have a legend.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from d2lite.figures.figure import Figure
from d2lite.figures.figure_layout import MOST_LABELS, accuracy_axis, end_labels, layout, line, range_around, thin
from d2lite.figures.labels import escape_label
from d2lite.figures.palette import DASHES, style
from d2lite.figures.ticks import tick_step
from d2lite.training.run_record import Run, legends, short_legends

__all__ = ["axes", "curves", "is_accuracy", "losses"]

_WIDTHS = (5.0, 3.5, 2.0)  # equal curves lie on each other: the lower ones show at the sides
_NO_RUN = 10  # epochs that an axis without a run has room for
_HEIGHT = 240  # pixels
_LEGEND = 110  # pixels that a legend adds
_LOSS_POINTS = 400  # of one run: all are sent again several times per second


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
    """Return plotly traces (dicts), one per curve, with the text for its end in `meta`: one colour per run."""
    traces = []
    for i, (run, legend, short) in enumerate(zip(runs, legends(runs), short_legends(runs), strict=True)):
        colour, dash, marker = style(i)
        about = "<br>".join(escape_label(part) for part in (run.devices, run.dataset) if part)
        own = _curves_of(run)
        for j, (name, (x, y)) in enumerate(own.items()):
            n = min(len(x), len(y))
            several = len(own) > 1
            text = f"{legend} · {name}" if several else legend
            at_end = " · ".join(([short] if len(runs) > 1 or not several else []) + ([name] if several else []))
            dash = list(DASHES)[j % len(DASHES)] if several else dash
            hover = f"%{{x:.4g}}: %{{y:.4f}}<br>{about}<extra>{escape_label(text)}</extra>"
            trace = line(text, *thin(x[:n], y[:n]), (colour, dash, marker), _WIDTHS[i % len(_WIDTHS)])
            traces.append(trace | {"hovertemplate": hover, "meta": {"label": at_end}})
    return traces


def axes(runs: Sequence[Run]) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Return plotly's text of the title, and its `xaxis` and `yaxis` with titles and ranges, for the curves of `runs`.

    Accuracies have an axis that fits them, in steps of 10%, and epochs one as long as the runs will be, so that the
    axes seldom move.
    """
    data = sorted({run.dataset for run in runs if run.dataset})
    found = list(dict.fromkeys(name for run in runs for name in _curves_of(run))) or ["test accuracy"]
    title = " and ".join(data) or ("data not named" if runs else "no run yet")
    if len(found) == 1:
        title = f"{found[0]}, {title}"
    quantity = {name: curve.get("quantity", name) for run in runs for name, curve in run.curves.items()}
    # 'x, rank 0' and 'x, rank 1' share the axis title x; the ranks are in the legend
    quantities = dict.fromkeys(quantity.get(name, name) for name in found)
    seen = [v for run in runs for x, _ in _curves_of(run).values() for v in x]
    xaxis: dict[str, Any] = {"title": {"text": "epoch"}, "range": None, "autorange": True, "tick0": 0, "tickangle": 0}
    yaxis: dict[str, Any] = {"title": {"text": escape_label(" · ".join(quantities))}, "range": None, "autorange": True}
    yaxis |= {"tickformat": ""}
    values = [v for run in runs for _, y in _curves_of(run).values() for v in y if math.isfinite(v)]
    if all(is_accuracy(name) for name in found):
        yaxis |= accuracy_axis(values)
    elif len(set(values)) > 1:  # with ends that are known, names of curves that end in one place are moved apart
        yaxis |= {"range": range_around(np.asarray(values)), "autorange": False}
    xaxis["dtick"] = tick_step(min(seen, default=0), max(seen, default=1))
    ends: list[Any] = [run.settings.get("num_epochs") for run in runs] or [_NO_RUN]
    if all(isinstance(n, int) for n in ends):
        low, high = min([1, *seen]), max([*ends, *seen])
        pad = max(0.02 * (high - low), 0 if high > low else 0.5)
        xaxis |= {"range": [low - pad, high + pad], "autorange": False, "tickformat": ",d"}
        xaxis["dtick"] = 1 if high <= 10 else tick_step(low, high)
    return escape_label(title), xaxis, yaxis


def curves(runs: Sequence[Run]) -> Figure:
    """Return a figure with the curves of all `runs` on the same axes."""
    title, xaxis, yaxis = axes(runs)
    return _figure(_curve_traces(runs), title, xaxis, yaxis)


def losses(runs: Sequence[Run]) -> Figure:
    """Return a figure with the training loss of each step of all `runs` that have losses."""
    traces = []
    for i, (run, legend, short) in enumerate(zip(runs, legends(runs), short_legends(runs), strict=True)):
        found = run.losses[:]  # it grows while it is read
        if found:
            x, y = thin(range(1, len(found) + 1), found, _LOSS_POINTS)
            trace = line(legend, x, y, style(i), 2.0) | {"mode": "lines" if len(x) > 1 else "markers"}
            hover = f"step %{{x:.0f}}: %{{y:.4f}}<extra>{escape_label(legend)}</extra>"
            traces.append(trace | {"hovertemplate": hover, "meta": {"label": short}})
    last = max((len(run.losses) for run in runs), default=1)
    seen = [v for trace in traces for v in trace["y"] if math.isfinite(v)]
    few = {"nticks": 3, "tickangle": 0}  # the figure is narrow
    xaxis = {"title": {"text": "step"}, "range": [0, max(last, 16)]} | few
    yaxis = {"title": {"text": ""}, "range": [0, 1.05 * max(seen, default=2.4)]}
    return _figure(traces, "training loss per step", xaxis, yaxis)


def _figure(traces: Sequence[dict[str, Any]], title: str, xaxis: dict[str, Any], yaxis: dict[str, Any]) -> Figure:
    with_legend = len(traces) > MOST_LABELS
    at_ends = [trace.pop("meta")["label"] for trace in traces]
    for trace in traces:
        trace["showlegend"] = with_legend
    figure = Figure(traces, layout(height=_HEIGHT + _LEGEND * with_legend, bottom=46 + _LEGEND * with_legend))
    figure.update_layout(title_text=title, xaxis=xaxis, yaxis=yaxis)
    if not with_legend:
        labels, margin = end_labels(traces, at_ends, yaxis["range"], _HEIGHT - 82)
        figure.update_layout(annotations=labels, margin_r=margin)
    return figure
