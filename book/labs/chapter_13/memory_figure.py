"""The predicted memory of a rank as bars: one per stage of ZeRO, and the memory of the device as a line."""

from collections.abc import Mapping

from d2lite.figures.figure import Figure
from d2lite.figures.figure_layout import add_key, layout
from d2lite.figures.palette import GREY, PALETTE
from notebook_ranks.shared.format import format_bytes

from .memory import MemoryPrediction

__all__ = ["memory_bars"]

_KINDS = {
    "parameters": "parameters",
    "gradients": "gradients",
    "optimizer": "state",
    "activations": "activations",
    "moment": "for a moment",
}


def memory_bars(predictions: Mapping[str, MemoryPrediction], device_n_bytes: float, title: str = "") -> Figure:
    """Return a plotly figure with a bar per prediction, from the top, and a line at the memory of a device.

    A bar has four parts: parameters, gradients, state (of the optimizer), activations. A fifth one, what lives for a
    moment (gathered layers, the loss), is there if a prediction counts it. All bytes are predicted.
    """
    kinds = dict(_KINDS)
    if not any(_part(found, "moment") for found in predictions.values()):
        del kinds["moment"]
    totals = [found.total_n_bytes for found in predictions.values()]
    figure = Figure(layout=layout("bytes per rank, predicted", None, title, 300, bottom=50))
    rows = list(range(len(totals)))
    for (kind, name), colour in zip(kinds.items(), PALETTE, strict=False):
        sizes = [_part(found, kind) for found in predictions.values()]
        words = [f"{row}: {name} {format_bytes(size)}" for row, size in zip(predictions, sizes, strict=True)]
        figure.add_bar(
            orientation="h",
            name=name,
            x=sizes,
            y=rows,
            width=0.6,
            customdata=words,
            meta={"words": words},
            hovertemplate="%{customdata}<extra></extra>",
            marker_color=colour,
        )
    most = 1.4 * max([*totals, device_n_bytes])
    for row, total in zip(rows, totals, strict=True):
        # the text never lies on the line
        at = device_n_bytes if total <= device_n_bytes < total + 0.3 * most else total
        fits = ", fits" if total <= device_n_bytes else ""
        figure.add_annotation(
            text=f"{format_bytes(total)}{fits}", name="", x=at, y=row, xanchor="left", xshift=6, showarrow=False
        )
    line = {"color": GREY, "width": 2, "dash": "dash"}
    figure.add_shape(type="line", x0=device_n_bytes, x1=device_n_bytes, y0=-0.5, y1=len(rows) - 0.5, line=line)
    figure.update_xaxes(range=[0, most], showticklabels=False, showgrid=False, ticks="")
    figure.update_yaxes(range=[len(rows) - 0.4, -0.6], tickvals=rows, ticktext=list(predictions), showgrid=False)
    figure.update_layout(barmode="stack")
    key = [("■", colour, name) for name, colour in zip(kinds.values(), PALETTE, strict=False)]
    add_key(figure, [*key, ("╌", GREY, f"{format_bytes(device_n_bytes)} per device")])
    return figure


def _part(found: MemoryPrediction, kind: str) -> float:
    if kind == "moment":
        return found.gathered_n_bytes + found.loss_n_bytes
    return float(getattr(found, f"{kind}_n_bytes"))
