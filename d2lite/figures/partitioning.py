"""Pictures of the three ways to cut a training, pure: every number in them comes from splits.py.

Backgrounds are transparent. No grey has 4.5:1 on white and on JupyterLab's dark #111111 as well, so small text
stands on a plate of its own; only the titles, large and bold, are grey on the page.
"""

import math

from d2lite._checks import positive_int
from d2lite._format import format_bytes
from d2lite.costs.partitioning import WAYS, bytes_sent, messages, stages

__all__ = ["COLOURS", "MOST", "partition_figure", "traffic_bars"]

MOST = 8  # columns of a picture
GREY = "#797979"  # 4.35:1 on both pages, where large bold text wants 3:1
PLATE = ("#E6E6E6", "black")
# fill and ink, at least 4.5:1; the arrows have Okabe and Ito's colours, 3:1 to both pages
COLOURS = {
    "activations": ("#0072B2", "white"),
    "gradients": ("#D55E00", "black"),
    "parameters": ("#CFE8DF", "black"),
    "inputs": PLATE,
}
_WAY_COLOURS = {"data": "#D55E00", "layers": "#009E73", "network": "#CC79A7"}
_ROW, _TOP, _COLUMN = 30, 58, 220  # pixels: height of a row, of the title, width of a column
_LOWEST, _HIGHEST = 4, 12  # bars go from 10 KB to 1 TB


def partition_figure(way, layers, k):
    """Return a plotly figure of one iteration over k devices, cut in one way: time goes down, devices side by side.

    A box is a layer with what follows it, labelled with the bytes of its parameters or with the channels it keeps; an
    arrow is a message, or, with two heads, all the messages of an exchange in which each device sends to each other.
    `layers` comes from layers_of. Raises like `messages`, and ValueError for more than 8 devices.
    """
    import plotly.graph_objects as go

    positive_int("k", k, MOST, "More columns cannot be read; traffic_bars() draws more devices.")
    sent = messages(way, layers, k)
    units = stages(layers, sum(layer.n_macs > 0 for layer in layers))
    steps = {"data": _data_steps, "layers": _layers_steps, "network": _network_steps}[way](layers, units, sent, k)
    notes, shapes, traces = [], [], []
    for i in range(k):
        shapes.append(
            dict(type="line", x0=i, x1=i, y0=0, y1=len(steps) + 0.5, line=dict(color=GREY, dash="dot", width=1))
        )
        notes.append(_plate(f"<b>device {i}</b>", i, 0, *PLATE))
    for y, (kind, what) in enumerate(steps, 1):
        if kind == "arrow":
            traces.append(_arrow(notes, y, what, k))
            continue
        fill, ink = COLOURS[kind]
        for i, text in what.items():
            box = dict(type="rect", x0=i - 0.42, x1=i + 0.42, y0=y - 0.46, y1=y + 0.46)
            shapes.append(box | dict(fillcolor=fill, line=dict(color=GREY, width=1)))
            notes.append(dict(x=i, y=y, text=text, showarrow=False, font=dict(color=ink, size=12)))
    layout = _layout(max(640, _COLUMN * k), _TOP + _ROW * (len(steps) + 2), _title(way, layers, k))
    layout["annotations"] += notes
    layout["xaxis"] = dict(range=[-0.5, k - 0.5], visible=False)
    layout["yaxis"] = dict(range=[len(steps) + 0.6, -0.7], visible=False)
    return go.Figure(traces, layout | dict(shapes=shapes))


def _data_steps(layers, units, sent, k):
    n = layers[-1].output_shape[0]
    examples = {i: f"{n // k + (i < n % k)} of {n} examples" for i in range(k)}
    boxes = [("parameters", dict.fromkeys(range(k), _parameters(unit))) for unit in units]
    return [("inputs", examples), *boxes, *(("arrow", [message]) for message in sent)]


def _layers_steps(layers, units, sent, k):
    runs, steps = stages(layers, k), []
    for i, run in enumerate(runs):
        steps += [("parameters", {i: _parameters(unit)}) for unit in units if unit[0] in run]
        steps += [("arrow", [message]) for message in sent[i : i + 1] if message.kind == "activations"]
    return steps + [("arrow", [message]) for message in sent if message.kind == "gradients"]


def _network_steps(layers, units, sent, k):
    steps = []

    def exchange(kind, names):
        found = [m for m in sent if m.kind == kind and m.what in names]
        return [("arrow", found)] if found else []

    reads = [{f"input of {layer.name}" for layer in unit} for unit in units]
    for names, unit in zip(reads, units, strict=True):
        steps += exchange("activations", names)
        shape = next(layer for layer in unit if layer.n_macs).output_shape
        parts = {i: shape[1] // k + (i < shape[1] % k) for i in range(k)}
        text = f"of {shape[1]} " + ("channels" if len(shape) == 4 else "outputs")
        steps.append(("parameters", {i: f"{_name(unit)}: {part} {text}" for i, part in parts.items()}))
    steps += exchange("activations", {"logits"})
    for names in reads[::-1]:
        steps += exchange("gradients", names)
    return steps


def _name(unit):
    layer = next(layer for layer in unit if layer.n_macs)
    return f"{layer.kind} {layer.name}" if layer.name.isdigit() else layer.name


def _parameters(unit):
    return f"{_name(unit)} · {format_bytes(sum(layer.params_n_bytes for layer in unit))}"


def _title(way, layers, k):
    total = bytes_sent(way, layers, k).n_bytes
    devices = f"{k} device" + ("s" if k > 1 else "")
    small = f"an iteration of {layers[-1].output_shape[0]} examples on {devices}; computed from shapes"
    return f"Cut: {WAYS[way]}. Sent: {format_bytes(total)}", small


def _arrow(notes, y, sent, k):
    """Note one message, or an exchange of all with all, at row y; return the trace that tells its bytes on hover."""
    n_bytes, kind = sum(m.n_bytes for m in sent), sent[0].kind
    src, dst = (sent[0].src, sent[0].dst) if len(sent) == 1 else (0, k - 1)
    colour, ink = COLOURS[kind]
    heads = dict(arrowcolor=colour, arrowwidth=2.5, arrowhead=2, arrowside="end" if len(sent) == 1 else "end+start")
    notes.append(dict(x=dst, y=y, ax=src, ay=y, axref="x", ayref="y", text="", showarrow=True) | heads)
    notes.append(_plate(f"{kind} {format_bytes(n_bytes)}", (src + dst) / 2, y, colour, ink))
    what = "<br>".join(dict.fromkeys(m.what for m in sent)) + (f"<br>{len(sent)} messages" if len(sent) > 1 else "")
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


def traffic_bars(traffics, title="", subtitle="computed from shapes"):
    """Return a plotly figure with one bar a way: bytes sent in one iteration, on a logarithmic axis that stays put.

    `traffics` is what all_ways(layers, k) returned; a way that cannot be has no bar and says so, nor has 0 bytes.
    """
    import plotly.graph_objects as go

    sizes = [traffic.n_bytes if traffic else 0 for traffic in traffics.values()]
    figure = go.Figure(layout=_layout(None, 260, (title, subtitle)))
    figure.update_layout(margin=dict(l=110, r=100, b=40))
    figure.update_xaxes(
        type="log", range=[_LOWEST, _HIGHEST], dtick=1, showticklabels=False, gridcolor="rgba(121,121,121,0.35)"
    )
    figure.update_yaxes(range=[2.5, -0.5], showticklabels=False, showgrid=False, zeroline=False)
    figure.add_bar(
        orientation="h",
        x=[size or None for size in sizes],
        y=list(range(len(traffics))),
        width=0.6,
        customdata=sizes,
        hovertemplate="%{customdata:,} bytes<extra></extra>",
        marker_color=[_WAY_COLOURS[way] for way in traffics],
    )
    for row, (way, traffic) in enumerate(traffics.items()):
        figure.add_annotation(**_plate(f"cut {WAYS[way]}", 0, row, *PLATE, xref="paper", xanchor="right", xshift=-6))
        if traffic is None:
            text = "not with so many devices"
        else:
            text = format_bytes(traffic.n_bytes) if traffic.n_bytes else "nothing"
        x = max(_LOWEST, math.log10(sizes[row] or 1))
        figure.add_annotation(**_plate(text, x, row, *PLATE, xanchor="left", xshift=6))
    for power in range(_LOWEST, _HIGHEST + 1, 2):
        text = format_bytes(10**power).replace(".00", "").replace(".0", "")
        figure.add_annotation(**_plate(text, power, 0, *PLATE, yref="paper", yanchor="top", yshift=-6))
    return figure


def _plate(text, x, y, fill, ink, **more):
    """A label with a ground of its own, legible on any page."""
    return dict(x=x, y=y, text=text, bgcolor=fill, font=dict(color=ink, size=12), borderpad=2, showarrow=False) | more


def _layout(width, height, title):
    large, small = title
    plate = _plate(small, 0, 1, *PLATE, xref="paper", yref="paper", xanchor="left", yanchor="bottom", yshift=8)
    return dict(
        template="none",
        width=width,
        height=height,
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        margin=dict(l=8, r=8, t=_TOP, b=8),
        title=dict(
            text=f"<b>{large}</b>", x=0, xref="container", y=1, yref="container", yanchor="top", pad=dict(l=8, t=8)
        ),
        title_font=dict(color=GREY, size=19),
        annotations=[plate] if small else [],
        showlegend=False,
        hovermode="closest",
    )
