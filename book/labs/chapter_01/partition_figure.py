"""Pictures of the three ways to split training, pure: every number in them is computed by `partitioning`.

Backgrounds are transparent. Only the texts of boxes lie on a colour; those of arrows stand above them, on the page.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from d2lite.figures.figure import Figure
from d2lite.figures.figure_layout import add_key, add_lanes, layout
from d2lite.figures.labels import escape_label
from d2lite.figures.palette import GREY, PALE_GREY, PALETTE
from notebook_ranks.shared.checks import positive_int
from notebook_ranks.shared.format import format_bytes

from .partitioning import WAYS, Layer, PlannedMessage, Traffic, bytes_sent, messages, stages

__all__ = ["COLOURS", "partition_figure", "traffic_bars"]

MOST_COLUMNS = 8  # of a picture
_NARROW = 4  # columns that fit on a narrow page, where a figure has 360 pixels; each is 84 pixels wide there
_COLUMN = 84
# fill and ink, at least 4.5:1; the arrows have 3:1 to both pages
COLOURS = {
    "activations": (PALETTE[0], "white"),
    "gradients": (PALETTE[1], "black"),
    "parameters": ("#CFE8DF", "black"),
    "inputs": ("#E6E6E6", "black"),
}
_WAY_COLOURS = dict(zip(WAYS, PALETTE[1:4], strict=True))
_WHAT = {"data": "the examples", "pipeline": "the layers", "tensor": "inside the layers"}  # what a way divides
_BOXES = {  # what is written in a box, beneath the name of a layer
    "data": "a layer and the bytes of its parameters",
    "pipeline": "a layer and the bytes of its parameters",
    "tensor": "a layer: channels or outputs here, of all",
}
_ROW = 40  # pixels: height of a row

# one row of a picture: boxes of a kind, {device: text}, or an arrow of a kind, the messages that it stands for
_Row = tuple[str, dict[int, str] | list[PlannedMessage]]


def partition_figure(way: str, layers: Sequence[Layer], k: int) -> Figure:
    """Return a plotly figure of one iteration over k devices, split in one way: time goes down, devices side by side.

    A box is a layer and the layers without weights that follow it, with the bytes of its parameters or the channels
    that the device computes. An arrow is a message or, with two heads, an exchange in which each device sends to each
    other. Up to 4 devices fit on a narrow page; a picture of more is wider than that. `layers` comes from layers_of.
    Raises like `messages`, and ValueError for more than 8 devices.
    """
    positive_int("k", k, MOST_COLUMNS, "More columns cannot be read; traffic_bars() draws more devices.")
    sent = messages(way, layers, k)
    units = stages(layers, sum(layer.n_macs > 0 for layer in layers))
    rows = {"data": _data_rows, "pipeline": _pipeline_rows, "tensor": _tensor_rows}[way](layers, units, sent, k)
    notes: list[dict[str, Any]] = []
    shapes: list[dict[str, Any]] = []
    traces: list[dict[str, Any]] = []
    for i in range(k):
        line = dict(color=PALE_GREY, dash="dot", width=1)
        shapes.append(dict(type="line", x0=i, x1=i, y0=0.5, y1=len(rows) + 0.5, line=line, layer="below"))
        notes.append(dict(x=i, y=0, text=f"device {i}", showarrow=False))
    for y, (kind, what) in enumerate(rows, 1):
        if isinstance(what, list):
            traces.append(_arrow(notes, y, what, k))
            continue
        fill, ink = COLOURS[kind]
        for i, text in what.items():
            box = dict(type="rect", x0=i - 0.47, x1=i + 0.47, y0=y - 0.45, y1=y + 0.45)
            shapes.append(box | dict(fillcolor=fill, line=dict(color=GREY, width=1)))
            notes.append(dict(x=i, y=y, text=text, showarrow=False, bgcolor=fill, font=dict(color=ink, size=13)))
    figure = Figure(traces, layout(title=_title(way, layers, k)))
    figure.update_xaxes(range=[-0.5, k - 0.5], visible=False)
    figure.update_yaxes(range=[len(rows) + 0.6, -0.5], visible=False)
    add_key(figure, [("□", GREY, _BOXES[way])])
    height = figure.layout.margin.t + _ROW * (len(rows) + 1) + 12
    width = None if k <= _NARROW else max(640, _COLUMN * k + 16)
    notes = [*figure.layout.annotations, *notes]
    margin = dict(l=8, r=8, b=8)
    return figure.update_layout(annotations=notes, shapes=shapes, height=height, width=width, margin=margin)


def _data_rows(layers: Sequence[Layer], units: list[list[Layer]], sent: list[PlannedMessage], k: int) -> list[_Row]:
    n = layers[-1].output_shape[0]
    rows: list[_Row] = [("inputs", {i: f"{n // k + (i < n % k)} of {n}<br>examples" for i in range(k)})]
    rows += [("parameters", dict.fromkeys(range(k), _unit_text(unit))) for unit in units]
    return rows + [(message.kind, [message]) for message in sent]


def _pipeline_rows(layers: Sequence[Layer], units: list[list[Layer]], sent: list[PlannedMessage], k: int) -> list[_Row]:
    rows: list[_Row] = []
    for i, run in enumerate(stages(layers, k)):
        rows += [("parameters", {i: _unit_text(unit)}) for unit in units if unit[0] in run]
        rows += [(message.kind, [message]) for message in sent[i : i + 1] if message.kind == "activations"]
    return rows + [(message.kind, [message]) for message in sent if message.kind == "gradients"]


def _tensor_rows(layers: Sequence[Layer], units: list[list[Layer]], sent: list[PlannedMessage], k: int) -> list[_Row]:
    rows: list[_Row] = []

    def exchange(kind: str, names: set[str]) -> list[_Row]:
        found = [m for m in sent if m.kind == kind and m.what in names]
        return [(kind, found)] if found else []

    reads = [{f"input of {layer.name}" for layer in unit} for unit in units]
    for names, unit in zip(reads, units, strict=True):
        rows += exchange("activations", names)
        shape = next(layer for layer in unit if layer.n_macs).output_shape
        parts = {i: shape[1] // k + (i < shape[1] % k) for i in range(k)}
        rows.append(("parameters", {i: f"{_unit_name(unit)}<br>{part} of {shape[1]}" for i, part in parts.items()}))
    rows += exchange("activations", {"logits"})
    for names in reads[::-1]:
        rows += exchange("gradients", names)
    return rows


def _unit_name(unit: list[Layer]) -> str:
    layer = next(layer for layer in unit if layer.n_macs)
    return escape_label(f"{layer.kind} {layer.name}" if layer.name.isdigit() else layer.name)


def _unit_text(unit: list[Layer]) -> str:
    return f"{_unit_name(unit)}<br>{format_bytes(sum(layer.params_n_bytes for layer in unit))}"


def _title(way: str, layers: Sequence[Layer], k: int) -> str:
    total = bytes_sent(way, layers, k).n_bytes
    devices = f"{k} device" + ("s" if k > 1 else "")
    size = format_bytes(total).replace(" ", "\u00a0")  # a line does not end between a number and its unit
    what = f"{WAYS[way].capitalize()} ({_WHAT[way]}): {size} sent"
    return f"{what}, one iteration of {layers[-1].output_shape[0]} examples on {devices}, computed from shapes"


def _arrow(notes: list[dict[str, Any]], y: int, sent: list[PlannedMessage], k: int) -> dict[str, Any]:
    """Draw one message, or an exchange of all with all, at row y; return the trace that shows its bytes on hover."""
    n_bytes, kind = sum(m.n_bytes for m in sent), sent[0].kind
    src, dst = (sent[0].src, sent[0].dst) if len(sent) == 1 else (0, k - 1)
    colour, middle = COLOURS[kind][0], (src + dst) / 2
    heads = dict(arrowcolor=colour, arrowwidth=2.5, arrowhead=2, arrowside="end" if len(sent) == 1 else "end+start")
    at = y + 0.2  # its words stand above it
    notes.append(dict(x=dst, y=at, ax=src, ay=at, axref="x", ayref="y", text="", showarrow=True) | heads)
    beside = 0 if middle % 1 else 0.5 * (k > 1)  # not on the line of the device in the middle
    notes.append(dict(x=middle - beside, y=y, yshift=4, text=f"{kind} {format_bytes(n_bytes)}", showarrow=False))
    what = "<br>".join(dict.fromkeys(escape_label(m.what) for m in sent)) + (
        f"<br>{len(sent)} messages" if len(sent) > 1 else ""
    )
    return dict(
        type="scatter",
        x=[middle],
        y=[at],
        customdata=[n_bytes],
        name=kind,
        mode="markers",
        opacity=0,
        marker=dict(size=18),
        hovertemplate=f"{what}<br>%{{customdata:,}} bytes<extra>{kind}</extra>",
    )


def traffic_bars(
    traffics: Mapping[str, Traffic | None], title: str = "", xlabel: str = "bytes, computed from shapes"
) -> Figure:
    """Return a plotly figure with one bar per way: the bytes sent in one iteration, and how many times the least.

    `traffics` is what all_ways(layers, k) returned. A way that is not possible, or that sends 0 bytes, has words in
    place of a bar.
    """
    sizes = [traffic.n_bytes if traffic else 0 for traffic in traffics.values()]
    least = min((size for size in sizes if size), default=0)
    names = [
        WAYS[way] + (f", {_times_the_least(size / least)}" if size else "")
        for way, size in zip(traffics, sizes, strict=True)
    ]
    texts = [_traffic_text(traffic) for traffic in traffics.values()]
    figure = Figure(layout=layout(xlabel, None, title, bottom=46))
    room = 1.3 * max([*sizes, 1])  # for the bytes after the longest bar
    figure.update_xaxes(range=[0, room], showticklabels=False, showgrid=False, ticks="")
    figure.add_bar(
        orientation="h",
        x=[size or None for size in sizes],
        y=names,
        customdata=sizes,
        meta={"words": [f"{name}: {text}" for name, text in zip(names, texts, strict=True)]},
        hovertemplate="%{customdata:,} bytes<extra></extra>",
        marker_color=[_WAY_COLOURS[way] for way in traffics],
        showlegend=False,
    )
    add_lanes(figure, names)
    for name, size, text in zip(names, sizes, texts, strict=True):
        # the bars' own words say the text
        figure.add_annotation(text=text, name="", x=size, y=name, xanchor="left", xshift=6, showarrow=False)
    return figure


def _times_the_least(times: float) -> str:
    return f"{times:.3g} × the least" if times >= 1.005 else "the least"


def _traffic_text(traffic: Traffic | None) -> str:
    if traffic is None:
        return "not possible with so many devices"
    return format_bytes(traffic.n_bytes) if traffic.n_bytes else "nothing"
