"""Pictures of a comparison: bands over seeds, differences with intervals, accuracy over learning rate and minibatch."""

from collections.abc import Mapping, Sequence

import numpy as np

from d2lite.figures.figure import Figure
from d2lite.figures.figure_layout import accuracy_axis, add_key, add_lanes, label_ends, layout
from d2lite.figures.labels import escape_label
from d2lite.figures.palette import GREY, PALETTE, pale, style

from .comparison import Trial
from .significance import CONFIDENCE, compare_arms

__all__ = ["bands_figure", "heat_map_figure", "intervals_figure"]

HEIGHT = 360
# of the cells, by the points that they are below the best; black text is legible on all of them
_SCALE = {1: "#56B4E9", 2: "#8CCBF0", 4: "#B5DDF5", 8: "#D6ECF9", 100: "#EEEEEE"}
_FARTHEST = 16  # points; what is further below has the last colour, too


def bands_figure(trials: Mapping[str, Sequence[Trial]], budget: float, unit: str, title: str = "") -> Figure:
    """Return a figure of the test accuracy of each arm: the mean over its seeds, and a band from lowest to highest.

    Args:
        trials: {name of the arm: its trials}; an arm without a trial has an empty curve.
        budget: What each trial has spent at its last measurement.
        unit: Of the budget, for example "examples seen".
        title: Shown above the figure.
    """
    figure = Figure(layout=layout(unit, "test accuracy", title, HEIGHT, bottom=56))
    for i, (name, some) in enumerate(trials.items()):
        colour, dash, symbol = style(i)
        num_points = min((len(trial.accuracies) for trial in some), default=0)
        x = budget * np.arange(1, num_points + 1) / max(num_points, 1)
        y = np.array([trial.accuracies[:num_points] for trial in some]).reshape(len(some), num_points)
        low, mean, high = (y.min(0), y.mean(0), y.max(0)) if num_points else (np.array([]),) * 3
        for edge, fill, which in ((low, None, "lowest"), (high, "tonexty", "highest")):
            figure.add_scatter(
                x=x,
                y=edge,
                mode="lines",
                line={"color": colour, "width": 0.5, "dash": "dot"},
                fill=fill,
                fillcolor=pale(colour),
                name=escape_label(f"{name}, {which} of the seeds"),
                showlegend=False,
                hoverinfo="skip",
            )
        figure.add_scatter(
            x=x,
            y=mean,
            mode="lines+markers",
            name=escape_label(f"{name} ({len(some)} seed{'s' * (len(some) != 1)})"),
            line={"color": colour, "dash": dash, "width": 3},
            marker={"color": colour, "symbol": symbol, "size": 8},
            hovertemplate="%{x:,.4g}: %{y:.3f}, mean of the seeds<extra></extra>",
            cliponaxis=False,
        )
    figure.update_yaxes(
        accuracy_axis(value for some in trials.values() for trial in some for value in trial.accuracies)
    )
    figure.update_xaxes(range=[0, 1.03 * budget], nticks=6, tickformat=",")
    label_ends(figure, list(trials))
    return figure


def intervals_figure(pairs: Mapping[str, tuple[Sequence[float], Sequence[float]]], title: str = "") -> Figure:
    """Return a figure with a lane per pair of arms: their difference at each seed, its mean, and its 99% interval.

    Args:
        pairs: {name of the lane: (accuracies of one arm, accuracies of the other)}, from 0 to 1, one per seed; both
            arms have the same seeds. The difference is the other minus the one, in percentage points.
        title: Shown above the figure.

    Raises:
        ValueError: if `compare_arms` cannot compare a pair.

    Example:
        >>> figure = intervals_figure({"128, lr 0.2": ([0.70, 0.72, 0.71], [0.65, 0.66, 0.67])}, "against 64, lr 0.1")
        >>> figure.data[2].x[0]
        -5.0
    """
    figure = Figure(layout=layout("difference, in percentage points", None, title, HEIGHT, bottom=56))
    add_key(figure, [("●", GREY, "one seed"), ("◆", GREY, f"mean, with its {CONFIDENCE:.0%} interval")])
    lanes = []
    for name, (one, other) in pairs.items():
        result = compare_arms(one, other, paired=True)
        low, mean, high = (round(100 * value, 1) for value in (result.low, result.difference, result.high))
        gains = [round(100 * (b - a), 2) for a, b in zip(one, other, strict=True)]
        verdict = "shown" if result.is_shown else "not shown"
        lanes.append(escape_label(f"{name}: {mean:+.1f}, {verdict}"))
        said = f"{mean:+.1f} points, {CONFIDENCE:.0%} interval {low:+.1f} to {high:+.1f}, {verdict}"
        colour = PALETTE[0] if result.is_shown else GREY
        lane = {"showlegend": False, "cliponaxis": False, "hoverinfo": "text"}
        dots = {"symbol": "circle", "color": colour, "size": 8}
        figure.add_scatter(
            x=[low, high], y=lanes[-1:] * 2, mode="lines", line={"color": colour, "width": 3}, hovertext=said, **lane
        )
        figure.add_scatter(
            x=gains,
            y=lanes[-1:] * len(gains),
            mode="markers",
            marker=dots,
            hovertext=[f"{g:+.1f}" for g in gains],
            **lane,
        )
        figure.add_scatter(
            x=[mean],
            y=lanes[-1:],
            mode="markers",
            marker=dots | {"symbol": "diamond", "size": 14},
            hovertext=said,
            **lane,
        )
        words = [
            f"{CONFIDENCE:.0%} interval {low:+.1f} to {high:+.1f}; seed by seed "
            + ", ".join(f"{gain:+.1f}" for gain in gains)
        ]
        for trace, told in zip(figure.data[-3:], (words, [], []), strict=True):
            trace.update(name=lanes[-1], meta={"words": told})
    ends = [0.0, *(x for trace in figure.data for x in trace.x)]
    pad = 0.06 * (max(ends) - min(ends)) or 1.0
    figure.update_xaxes(
        range=[min(ends) - pad, max(ends) + pad], nticks=6, zeroline=True, zerolinecolor=GREY, zerolinewidth=2
    )
    add_lanes(figure, lanes, bar=22)
    return figure


def heat_map_figure(
    batch_sizes: Sequence[int], lrs: Sequence[float], accuracies: Mapping[tuple[int, float], float], title: str = ""
) -> Figure:
    """Return a figure with a cell per minibatch and learning rate: its accuracy in percent; a star marks the best lr.

    The closer a cell is to the best of all, the darker it is.

    Args:
        batch_sizes: The columns.
        lrs: The rows, the smallest at the bottom.
        accuracies: {(batch size, learning rate): accuracy from 0 to 1}; a cell without one stays empty.
        title: Shown above the figure.
    """
    figure = Figure(layout=layout("examples per minibatch", "learning rate", title, HEIGHT, bottom=56))
    z = [[_percent(accuracies.get((size, lr))) for size in batch_sizes] for lr in lrs]
    known = [value for row in z for value in row if value is not None] or [0.0]
    high = max(known)
    stops = [0.0, *(1 - min(points, _FARTHEST) / _FARTHEST for points in list(_SCALE)[::-1][1:]), 1.0]
    colours = list(_SCALE.values())[::-1]
    colorscale = [[edge, colour] for i, colour in enumerate(colours) for edge in stops[i : i + 2]]
    figure.add_heatmap(
        x=[i - 0.5 for i in range(len(batch_sizes) + 1)],  # edges
        y=list(range(len(lrs))),
        z=z,
        customdata=[[f"{lr:g}"] * len(batch_sizes) for lr in lrs],
        zmin=high - _FARTHEST,
        zmax=high,
        colorscale=colorscale,
        showscale=False,
        xgap=2,
        ygap=2,
        texttemplate="%{z:.1f}",
        textfont={"color": "black", "size": 14},
        hovertemplate="learning rate %{customdata}: %{z:.1f}%<extra></extra>",
        hoverongaps=False,
    )
    best = [_best(size, lrs, accuracies) for size in batch_sizes]
    places = [(i, lr) for i, lr in enumerate(best) if lr is not None]
    figure.add_scatter(
        x=[i + 0.34 for i, _ in places],  # beside the number
        y=[list(lrs).index(lr) for _, lr in places],
        mode="markers",
        name="the best learning rate of each minibatch",
        marker={"symbol": "star", "size": 13, "color": "black"},
        showlegend=False,
        hoverinfo="skip",
    )
    words = ["less than 1 point below the best", "2", "4", "8", "more"]
    key = [("■", colour, text) for colour, text in zip(_SCALE.values(), words, strict=True)]
    add_key(figure, [*key, ("★", GREY, "the best of its minibatch")])
    figure.update_xaxes(
        tickvals=list(range(len(batch_sizes))),
        ticktext=[f"{size:,}" for size in batch_sizes],
        range=[-0.5, len(batch_sizes) - 0.5],
        showgrid=False,
    )
    return figure.update_yaxes(
        tickvals=list(range(len(lrs))),
        ticktext=[f"{lr:g}" for lr in lrs],
        range=[-0.5, len(lrs) - 0.5],
        showgrid=False,
    )


def _best(size: int, lrs: Sequence[float], accuracies: Mapping[tuple[int, float], float]) -> float | None:
    """The learning rate with the highest accuracy; None until all of the column are known."""
    if any((size, lr) not in accuracies for lr in lrs):
        return None
    return max(lrs, key=lambda lr: accuracies[size, lr])


def _percent(value: float | None) -> float | None:
    return None if value is None else round(100 * value, 1)
