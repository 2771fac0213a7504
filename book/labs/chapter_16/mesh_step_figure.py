"""Steps on meshes of ranks as bars, each in its four terms; all times are predicted."""

from collections.abc import Mapping

from d2lite.figures.figure import Figure
from d2lite.figures.figure_layout import add_key, add_lanes, layout
from d2lite.figures.palette import COLOURS, GREY, PALETTE, TRANSPARENT
from notebook_ranks.shared.format import format_seconds

from .mesh_step import MeshStep

__all__ = ["mesh_step_figure"]

# a term -> its colour, and its pattern: dotted is idle, as in a timeline
_TERMS = {
    "computing": (COLOURS["forward"], ""),
    "tensor: all-reduces": (PALETTE[3], ""),
    "pipe: bubble": (GREY, "."),
    "data: gradients": (COLOURS["all_reduce"], ""),
}
_WHOLE = "the whole step"


def mesh_step_figure(steps: Mapping[str, MeshStep | float | None], title: str = "a step, predicted") -> Figure:
    """Return a plotly figure with a lane for each of `steps`, by name: a bar with the four terms of its time.

    A number in place of a step is the time of a step whose terms are not shown; it has one empty bar. For None there is
    none. The time of the whole step stands in the name of the lane.
    """
    figure = Figure(layout=layout("seconds", None, title, bottom=50))
    times = {name: _terms(step) for name, step in steps.items()}
    lanes = {
        name: f"{name}: {format_seconds(sum(terms.values()))}" if terms else f"{name}: none"
        for name, terms in times.items()
    }
    for term, (colour, pattern) in {**_TERMS, _WHOLE: (GREY, "")}.items():
        shown = {lanes[name]: terms[term] for name, terms in times.items() if terms.get(term)}
        marker = {"color": TRANSPARENT if pattern or term == _WHOLE else colour, "line": {"color": colour, "width": 1}}
        if pattern:
            marker |= {"pattern": {"shape": pattern, "fgcolor": colour, "size": 6}}
        figure.add_bar(
            orientation="h",
            name=term,
            x=list(shown.values()),
            y=list(shown),
            marker=marker,
            meta={"words": [f"{format_seconds(seconds)} of {lane}" for lane, seconds in shown.items()]},
            hovertemplate=f"%{{y}}<br>{term}: %{{x:.3g}} s<br>predicted<extra></extra>",
        )
    figure.update_xaxes(range=[0, 1.02 * max([sum(terms.values()) for terms in times.values()] or [1]) or 1])
    marks = [("░" if pattern else "■", colour, term) for term, (colour, pattern) in _TERMS.items()]
    add_key(figure, marks)
    add_lanes(figure, list(lanes.values()))
    return figure.update_layout(barmode="stack")


def _terms(step: MeshStep | float | None) -> dict[str, float]:
    if isinstance(step, MeshStep):
        return dict(zip(_TERMS, (step.compute_s, step.tensor_s, step.bubble_s, step.data_s), strict=True))
    return {} if step is None else {_WHOLE: step}
