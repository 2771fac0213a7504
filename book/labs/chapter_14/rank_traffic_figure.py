"""Which ranks send to each other, and how many bytes: a table of ranks, from their recorded collectives."""

from collections.abc import Sequence

from d2lite.figures.figure import Figure
from d2lite.figures.figure_layout import layout
from d2lite.profiling import CollectiveCall
from notebook_ranks.shared.format import format_bytes

__all__ = ["rank_traffic_figure"]

# nothing, up to half of the most, more
_SCALE = [
    [0.0, "#bdbdbd"],
    [0.001, "#bdbdbd"],
    [0.001, "#8fbfe0"],
    [0.5, "#8fbfe0"],
    [0.5, "#4a97cc"],
    [1.0, "#4a97cc"],
]
_ROW = 46  # pixels


def rank_traffic_figure(calls_of_ranks: Sequence[Sequence[CollectiveCall]], title: str = "") -> Figure:
    """Return a figure with a row per rank and a cell per other rank: the bytes sent in collectives that both are in.

    What a rank sends in a group of more than two is shared evenly among the others, since it depends on the algorithm
    who is the neighbour. `calls_of_ranks` holds what `recorded_collectives` has recorded on each rank.
    """
    k = len(calls_of_ranks)
    z = [[0.0] * k for _ in range(k)]
    for rank, calls in enumerate(calls_of_ranks):
        for call in calls:
            others = [other for other in call.ranks if other != rank]
            for other in others:
                z[rank][other] += call.sent_n_bytes / len(others)
    texts = [["" if i == j else format_bytes(n) if n else "0" for j, n in enumerate(row)] for i, row in enumerate(z)]
    names = [f"rank {rank}" for rank in range(k)]
    said = [
        f"{names[i]} sends {texts[i][j]} in collectives with {names[j]}" for i in range(k) for j in range(k) if z[i][j]
    ]
    figure = Figure(layout=layout(None, None, title, 96 + _ROW * k, bottom=46))
    figure.add_heatmap(
        x=[i - 0.5 for i in range(k + 1)],  # edges
        y=list(range(k)),
        z=z,
        text=texts,
        customdata=[names for _ in range(k)],
        texttemplate="%{text}",
        textfont={"color": "black", "size": 14},
        colorscale=_SCALE,
        zmin=0,
        zmax=max(max(row) for row in z) or 1.0,
        showscale=False,
        xgap=3,
        ygap=3,
        hovertemplate="rank %{y} sends %{text} in collectives with %{customdata}<extra></extra>",
        meta={"words": said or ["no rank has sent anything"]},
    )
    figure.update_xaxes(
        tickvals=list(range(k)), ticktext=[f"with {name}" for name in names], range=[-0.5, k - 0.5], showgrid=False
    )
    figure.update_yaxes(tickvals=list(range(k)), ticktext=names, range=[k - 0.5, -0.5], showgrid=False)
    return figure
