"""Pictures of the three ways to split training, pure: every number in them is computed by costs.partitioning.

Backgrounds are transparent. In the picture of a way the texts lie on boxes and arrows: each has a plate behind it, in a
colour of its own. Only the title, large and bold, is grey on the page.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from d2lite._checks import positive_int
from d2lite._format import format_bytes
from d2lite.costs.partitioning import WAYS, Layer, Message, Traffic, bytes_sent, messages, stages
from d2lite.figures.figure import Figure
from d2lite.figures.figure_layout import layout
from d2lite.figures.labels import escape_label
from d2lite.figures.palette import GREY, PALETTE, TRANSPARENT

__all__ = ["COLOURS", "partition_figure", "traffic_bars"]

MOST = 8  # columns of a picture
PLATE = ("#E6E6E6", "black")
# fill and ink, at least 4.5:1; the arrows have 3:1 to both pages
COLOURS = {
    "activations": (PALETTE[0], "white"),
    "gradients": (PALETTE[1], "black"),
    "parameters": ("#CFE8DF", "black"),
    "inputs": PLATE,
}
_WAY_COLOURS = dict(zip(WAYS, PALETTE[1:4], strict=True))
_WHAT = {"data": "the examples", "pipeline": "the layers", "tensor": "inside the layers"}  # what a way divides
_ROW, _TOP, _COLUMN = 30, 58, 230  # pixels: height of a row, of the title, width of a column

# one row of a picture: boxes of a kind, {device: text}, or an arrow of a kind, the messages that it stands for
_Row = tuple[str, dict[int, str] | list[Message]]


def partition_figure(way: str, layers: Sequence[Layer], k: int) -> Figure:
    """Return a plotly figure of one iteration over k devices, split in one way: time goes down, devices side by side.

    A box is a layer and the layers without weights that follow it, with the bytes of its parameters or the channels
    that the device computes. An arrow is a message or, with two heads, an exchange in which each device sends to each
    other. `layers` comes from layers_of. Raises like `messages`, and ValueError for more than 8 devices.
    """
    positive_int("k", k, MOST, "More columns cannot be read; traffic_bars() draws more devices.")
    sent = messages(way, layers, k)
    units = stages(layers, sum(layer.n_macs > 0 for layer in layers))
    rows = {"data": _data_rows, "pipeline": _pipeline_rows, "tensor": _tensor_rows}[way](layers, units, sent, k)
    notes: list[dict[str, Any]] = []
    shapes: list[dict[str, Any]] = []
    traces: list[dict[str, Any]] = []
    for i in range(k):
        line = dict(color=GREY, dash="dot", width=1)
        shapes.append(dict(type="line", x0=i, x1=i, y0=0, y1=len(rows) + 0.5, line=line))
        notes.append(_plate(f"<b>device {i}</b>", i, 0, *PLATE))
    for y, (kind, what) in enumerate(rows, 1):
        if isinstance(what, list):
            traces.append(_arrow(notes, y, what, k))
            continue
        fill, ink = COLOURS[kind]
        for i, text in what.items():
            box = dict(type="rect", x0=i - 0.42, x1=i + 0.42, y0=y - 0.46, y1=y + 0.46)
            shapes.append(box | dict(fillcolor=fill, line=dict(color=GREY, width=1)))
            notes.append(dict(x=i, y=y, text=text, showarrow=False, font=dict(color=ink, size=12)))
    page = _page(max(640, _COLUMN * k), _TOP + _ROW * (len(rows) + 2), *_title(way, layers, k))
    page["annotations"] += notes
    page["xaxis"] = dict(range=[-0.5, k - 0.5], visible=False)
    page["yaxis"] = dict(range=[len(rows) + 0.6, -0.7], visible=False)
    return Figure(traces, page | dict(shapes=shapes))


def _data_rows(layers: Sequence[Layer], units: list[list[Layer]], sent: list[Message], k: int) -> list[_Row]:
    n = layers[-1].output_shape[0]
    rows: list[_Row] = [("inputs", {i: f"{n // k + (i < n % k)} of {n} examples" for i in range(k)})]
    rows += [("parameters", dict.fromkeys(range(k), _parameters(unit))) for unit in units]
    return rows + [(message.kind, [message]) for message in sent]


def _pipeline_rows(layers: Sequence[Layer], units: list[list[Layer]], sent: list[Message], k: int) -> list[_Row]:
    rows: list[_Row] = []
    for i, run in enumerate(stages(layers, k)):
        rows += [("parameters", {i: _parameters(unit)}) for unit in units if unit[0] in run]
        rows += [(message.kind, [message]) for message in sent[i : i + 1] if message.kind == "activations"]
    return rows + [(message.kind, [message]) for message in sent if message.kind == "gradients"]


def _tensor_rows(layers: Sequence[Layer], units: list[list[Layer]], sent: list[Message], k: int) -> list[_Row]:
    rows: list[_Row] = []

    def exchange(kind: str, names: set[str]) -> list[_Row]:
        found = [m for m in sent if m.kind == kind and m.what in names]
        return [(kind, found)] if found else []

    reads = [{f"input of {layer.name}" for layer in unit} for unit in units]
    for names, unit in zip(reads, units, strict=True):
        rows += exchange("activations", names)
        shape = next(layer for layer in unit if layer.n_macs).output_shape
        parts = {i: shape[1] // k + (i < shape[1] % k) for i in range(k)}
        text = f"of {shape[1]} " + ("channels" if len(shape) == 4 else "outputs")
        rows.append(("parameters", {i: f"{_name(unit)}: {part} {text}" for i, part in parts.items()}))
    rows += exchange("activations", {"logits"})
    for names in reads[::-1]:
        rows += exchange("gradients", names)
    return rows


def _name(unit: list[Layer]) -> str:
    layer = next(layer for layer in unit if layer.n_macs)
    return escape_label(f"{layer.kind} {layer.name}" if layer.name.isdigit() else layer.name)


def _parameters(unit: list[Layer]) -> str:
    return f"{_name(unit)} · {format_bytes(sum(layer.params_n_bytes for layer in unit))}"


def _title(way: str, layers: Sequence[Layer], k: int) -> tuple[str, str]:
    total = bytes_sent(way, layers, k).n_bytes
    devices = f"{k} device" + ("s" if k > 1 else "")
    small = f"one iteration of {layers[-1].output_shape[0]} examples on {devices}; computed from shapes"
    return f"{WAYS[way].capitalize()} ({_WHAT[way]}): {format_bytes(total)} sent", small


def _arrow(notes: list[dict[str, Any]], y: int, sent: list[Message], k: int) -> dict[str, Any]:
    """Draw one message, or an exchange of all with all, at row y; return the trace that shows its bytes on hover."""
    n_bytes, kind = sum(m.n_bytes for m in sent), sent[0].kind
    src, dst = (sent[0].src, sent[0].dst) if len(sent) == 1 else (0, k - 1)
    colour, ink = COLOURS[kind]
    heads = dict(arrowcolor=colour, arrowwidth=2.5, arrowhead=2, arrowside="end" if len(sent) == 1 else "end+start")
    notes.append(dict(x=dst, y=y, ax=src, ay=y, axref="x", ayref="y", text="", showarrow=True) | heads)
    notes.append(_plate(f"{kind} {format_bytes(n_bytes)}", (src + dst) / 2, y, colour, ink))
    what = "<br>".join(dict.fromkeys(escape_label(m.what) for m in sent)) + (
        f"<br>{len(sent)} messages" if len(sent) > 1 else ""
    )
    return dict(
        type="scatter",
        x=[(src + dst) / 2],
        y=[y],
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
    texts = [_sent(traffic, least) for traffic in traffics.values()]
    figure = Figure(layout=layout(xlabel, None, title, 230))
    room = 1.6 * max([*sizes, 1])  # for the words after the longest bar
    figure.update_xaxes(range=[0, room], showticklabels=False, showgrid=False, ticks="")
    names = [WAYS[way] for way in traffics]
    figure.update_yaxes(range=[2.5, -0.5], tickvals=list(range(len(names))), ticktext=names, showgrid=False)
    figure.add_bar(
        orientation="h",
        x=[size or None for size in sizes],
        y=list(range(len(traffics))),
        width=0.6,
        customdata=sizes,
        meta={"words": [f"{name}: {text}" for name, text in zip(names, texts, strict=True)]},
        hovertemplate="%{customdata:,} bytes<extra></extra>",
        marker_color=[_WAY_COLOURS[way] for way in traffics],
        showlegend=False,
    )
    for row, text in enumerate(texts):
        # the bars' own words say the text
        figure.add_annotation(text=text, name="", x=sizes[row], y=row, xanchor="left", xshift=6, showarrow=False)
    return figure.update_layout(margin={"t": 40, "b": 40})


def _sent(traffic: Traffic | None, least: int) -> str:
    if traffic is None:
        return "not possible with so many devices"
    if not traffic.n_bytes:
        return "nothing"
    times = traffic.n_bytes / least
    return format_bytes(traffic.n_bytes) + (f", {times:.3g} times the least" if times >= 1.005 else ", the least")


def _plate(text: str, x: float, y: float, fill: str, ink: str, **more: Any) -> dict[str, Any]:
    """Text with a background of its own, legible on any page."""
    return dict(x=x, y=y, text=text, bgcolor=fill, font=dict(color=ink, size=12), borderpad=2, showarrow=False) | more


def _page(width: int, height: int, large: str, small: str) -> dict[str, Any]:
    plate = _plate(small, 0, 1, *PLATE, xref="paper", yref="paper", xanchor="left", yanchor="bottom", yshift=8)
    return dict(
        template="none",
        width=width,
        height=height,
        paper_bgcolor=TRANSPARENT,
        plot_bgcolor=TRANSPARENT,
        margin=dict(l=8, r=8, t=_TOP, b=8),
        title=dict(
            text=f"<b>{large}</b>", x=0, xref="container", y=1, yref="container", yanchor="top", pad=dict(l=8, t=8)
        ),
        title_font=dict(color=GREY, size=19),
        annotations=[plate],
        showlegend=False,
        hovermode="closest",
    )
