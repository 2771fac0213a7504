"""Pictures of how training scales, pure; each title and hover text says whether a number is predicted or measured."""

from collections.abc import Mapping
from typing import Any

from d2lite.figures.figure import Figure
from d2lite.figures.figure_layout import add_key, add_lanes, label_ends, layout, ticks_at
from d2lite.figures.palette import COLOURS, GREY, PALETTE, TRANSPARENT, style

from .scaling import ScalingPrediction
from .step import StepPrediction

__all__ = ["STEP_PARTS", "efficiency_figure", "predicted_and_measured", "step_figure"]

HEIGHT = 330
# what a step consists of -> colour, as in a timeline; waiting is hatched there and here
STEP_PARTS = {
    "overhead": PALETTE[3],
    "computing": COLOURS["forward"],
    "sending, not hidden": COLOURS["all_reduce"],
    "waiting for the slowest": GREY,
}
_HATCHED = "waiting for the slowest"


def efficiency_figure(predictions: Mapping[int, ScalingPrediction | None], k: int) -> Figure:
    """Return a figure of the predicted efficiency over the number of GPUs, with a mark at k.

    `predictions` is {number of GPUs: ScalingPrediction or None}, with k among them; the curve has a gap at a None.
    """
    figure = Figure(layout=layout("GPUs", None, "efficiency, predicted", HEIGHT))
    hover = "%{x:,} GPUs: %{y:.1%}<br>predicted<extra></extra>"
    figure.add_scatter(
        x=list(predictions),
        y=[o and o.efficiency for o in predictions.values()],
        name="efficiency",
        mode="lines",
        line={"color": PALETTE[0], "width": 3},
        hovertemplate=hover,
        showlegend=False,
    )
    here = predictions[k]
    figure.add_scatter(
        x=[k],
        y=[here and here.efficiency],
        name="the chosen number of GPUs",
        mode="markers+text",
        marker={"color": PALETTE[0], "size": 13, "symbol": "diamond", "line": {"color": GREY, "width": 1}},
        text=[f"{here.efficiency:.0%}" if here else ""],
        textposition="top right" if k <= 1000 else "top left",  # the curve falls, so there is room above it
        hovertemplate=hover,
        showlegend=False,
        cliponaxis=False,
    )
    figure.update_xaxes(
        type="log", range=[-0.05, 4.05], tickvals=[1, 10, 100, 1000, 10_000], tickformat=",d", tickangle=0
    )
    figure.update_yaxes(range=[0, 1.12], tickvals=[0, 0.2, 0.4, 0.6, 0.8, 1], tickformat=".0%")
    return figure.update_layout(margin={"b": 50, "t": 40, "r": 30})  # else plotly leaves out the label at the end


def step_figure(one: ScalingPrediction | None, many: ScalingPrediction | None) -> Figure:
    """Return a figure of the parts of a predicted step, in milliseconds, for one GPU and for many.

    The time of the whole step stands above its bar. There is no bar for a prediction that is None; one of the two at
    least must be there.
    """
    figure = Figure(layout=layout("milliseconds of a step", None, "where a step goes, predicted", bottom=50))
    shown = [o for o in (one, many) if o]
    if len({o.k for o in shown}) < len(shown):
        shown = shown[:1]
    gpus = [f"{o.k:,} GPU" + ("s" if o.k > 1 else "") for o in shown]
    names = [f"{name}: {1e3 * o.step.seconds:.3g} ms" for name, o in zip(gpus, shown, strict=True)]
    for part, colour in STEP_PARTS.items():
        figure.add_bar(
            orientation="h",
            name=part,
            y=names,
            x=[1e3 * _part(o.step, part) for o in shown],
            marker=_part_marker(part, colour),
            meta={
                "words": [f"{1e3 * _part(o.step, part):.4g} ms on {name}" for name, o in zip(gpus, shown, strict=True)]
            },
            hovertemplate=f"%{{y}}<br>{part}: %{{x:.4g}} ms<br>predicted<extra></extra>",
        )
    figure.update_xaxes(range=[0, 1.02e3 * max(o.step.seconds for o in shown)])
    add_key(figure, [("▨" if part == _HATCHED else "■", colour, part) for part, colour in STEP_PARTS.items()])
    add_lanes(figure, names)
    for note in figure.layout.annotations[-len(names) :]:
        note.name = note.text  # the alternative text tells the time of the whole step as well
    return figure.update_layout(barmode="stack")


def _part_marker(part: str, colour: str) -> dict[str, Any]:
    if part != _HATCHED:
        return {"color": colour}
    return {"color": TRANSPARENT, "pattern": {"shape": "/", "fgcolor": colour, "size": 6}, "line": {"color": colour}}


def _part(step: StepPrediction, part: str) -> float:
    return dict(zip(STEP_PARTS, (step.overhead_s, step.compute_s, step.exposed_s, step.wait_s), strict=True))[part]


def predicted_and_measured(
    predicted: Mapping[tuple[int, int], float], measured: Mapping[tuple[int, int], float], title: str
) -> Figure:
    """Return a figure of the time of a step over the size of the minibatch, one colour per number of ranks.

    Both are {(examples of the minibatch, ranks): seconds}; predicted times are a dashed line, measured ones marks.
    """
    figure = Figure(
        layout=layout("examples of a minibatch, all ranks together", "milliseconds of a step", title, bottom=56)
    )
    counts = sorted({k for _, k in {**predicted, **measured}})
    for i, k in enumerate(counts):
        colour, _, symbol = style(i)
        ranks = f"{k} rank" + ("s" if k > 1 else "")
        for what, times in (("predicted", predicted), ("measured", measured)):
            points = sorted((size, 1e3 * seconds) for (size, n), seconds in times.items() if n == k)
            figure.add_scatter(
                name=f"{ranks}, {what}",
                x=[size for size, _ in points],
                y=[ms for _, ms in points],
                mode="lines" if what == "predicted" and len(points) > 1 else "markers",
                line={"color": colour, "dash": "dash", "width": 2},
                marker={"color": colour, "size": 10, "symbol": symbol + ("-open" if what == "predicted" else "")},
                hovertemplate=f"%{{x}} examples, {ranks}: %{{y:.1f}} ms<br>{what}<extra></extra>",
                cliponaxis=False,
                showlegend=bool(points) and (what == "predicted" or not any(n == k for _, n in predicted)),
            )
    figure.update_yaxes(rangemode="tozero")
    figure.update_xaxes({"rangemode": "tozero"} | ticks_at(size for size, _ in {**predicted, **measured}))
    add_key(figure, [("╌○", GREY, "predicted"), ("●", GREY, "measured")])
    label_ends(figure, [f"{k} rank" + ("s" if k > 1 else "") for k in counts])
    return figure
