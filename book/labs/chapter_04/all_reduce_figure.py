"""A picture of how long an all-reduce is predicted to take, over the size of its tensor."""

from collections.abc import Callable, Mapping

from d2lite.figures.figure import Figure
from d2lite.figures.figure_layout import label_ends, layout
from d2lite.figures.labels import escape_label
from d2lite.figures.palette import style

__all__ = ["all_reduce_figure"]

DRAWN_SIZES = tuple(2**i for i in range(8, 31))  # bytes: 256 B to 1 GB


def all_reduce_figure(formulas: Mapping[str, Callable[[float], float]], where: str) -> Figure:
    """Return a figure with one curve per formula: predicted milliseconds over bytes, both axes logarithmic.

    Args:
        formulas: {name of the algorithm: a function of bytes that returns predicted seconds}.
        where: The devices and their link, for the title.
    """
    title = f"all-reduce, {where}: predicted"
    figure = Figure(layout=layout("bytes of the tensor", "milliseconds, predicted", title, bottom=56))
    for i, (name, formula) in enumerate(formulas.items()):
        colour, dash, _ = style(i)
        milliseconds = [1e3 * formula(n_bytes) for n_bytes in DRAWN_SIZES]
        line = {"color": colour, "dash": dash, "width": 2.5}
        figure.add_scatter(x=list(DRAWN_SIZES), y=milliseconds, name=escape_label(name), mode="lines", line=line)
    figure.update_xaxes(type="log", tickvals=[1e3, 1e6, 1e9], ticktext=["1 KB", "1 MB", "1 GB"])
    figure.update_yaxes(type="log", dtick=1, tickformat=",~r")
    label_ends(figure)
    return figure
