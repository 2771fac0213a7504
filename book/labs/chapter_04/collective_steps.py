"""A Trace as a picture of each of its steps: which part of each chunk a device holds, what is sent, how much so far.

Text on the page is grey, legible on a light page and on a dark one; text on a cell is black or white.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import plotly.graph_objects as go

from d2lite.costs.alpha_beta import lower_bound_n_bytes
from d2lite.figures.figure import Figure
from d2lite.figures.figure_layout import add_key, layout, title_pad
from d2lite.figures.labels import escape_label
from d2lite.figures.palette import GREY, PALETTE, TRANSPARENT
from d2lite.trace import Send, Trace
from notebook_ranks.shared.format import format_bytes

__all__ = ["MOST_DEVICES", "cell_colour", "collective_figure", "least_n_bytes", "require_step"]

MOST_DEVICES = 16  # devices; more rows cannot be read
NONE, SOME, MORE, WHOLE = (
    "#E6E6E6",
    (214, 230, 242),
    (76, 148, 200),
    "#66C2A4",
)  # cells: how much they hold
_CELL = 0.6  # of the width of a column; the arrows run in the rest
_MANY_CHUNKS = 8  # chunks; more have no numbers, and smaller arrows
_HEIGHT = 440  # pixels, for any number of devices: a figure that grows moves the page
_MOVES = {True: ("sent and added", PALETTE[1]), False: ("sent and kept", PALETTE[3])}  # whether a Send adds


def least_n_bytes(trace: Trace) -> float | None:
    """Return the least bytes that the busiest device must send, with any algorithm; None for an unknown collective.

    2 (k - 1) / k of the tensor for an all-reduce (see lower_bound_n_bytes), half of that for a reduce-scatter or an
    all-gather; the complete tensor for a broadcast, in which the source must send it once, and for a reduce.
    """
    k, n_bytes = trace.world_size, sum(trace.chunk_n_bytes)
    if trace.collective == "all_reduce":
        return lower_bound_n_bytes(k, n_bytes)
    if trace.collective in ("reduce_scatter", "all_gather"):
        return lower_bound_n_bytes(k, n_bytes) / 2
    if trace.collective in ("broadcast", "reduce"):
        return n_bytes if k > 1 else 0
    return None


def collective_figure(trace: Trace, step: int, shows_least: bool = True) -> Figure:
    """Return a plotly figure of a Trace after `step` of its steps, with the messages of the last of them as arrows.

    On the left each row is a device and each column a chunk; the number and the colour of a cell show how many
    devices' contributions it holds. More than 8 chunks have no numbers: they would not fit on a narrow page. On the
    right are the bytes that each device has sent so far and, with `shows_least`, the lower bound.
    The figures of all steps of a Trace have the same axes and the same plotly traces.

    Raises:
        ValueError: for a step that the Trace does not have, for an empty Trace, and for more than 16 devices.
    """
    require_step(trace, step)
    least = least_n_bytes(trace) if shows_least else None
    figure = Figure([_cells(trace, step), *_arrows(trace, step), *_bars(trace, step, least)], layout(height=_HEIGHT))
    margin = {"l": 8, "b": 56, "t": 50}  # a title of two lines
    figure.update_layout(_axes(trace, step, least), title_text=_title(trace, step), bargap=0.45, margin=margin)
    figure.update_layout(title_pad_t=title_pad(2))
    add_key(figure, _key(trace, least), most=30)
    return figure


def require_step(trace: Trace, step: int) -> None:
    """Raise ValueError if a Trace is empty, has too many devices to draw, or does not have this step."""
    k, num_steps = trace.world_size, len(trace.steps)
    if k == 0:
        raise ValueError("trace: expected a Trace that a collective has filled, got an empty one. Pass it as trace=...")
    if k > MOST_DEVICES:
        raise ValueError(f"trace: expected at most {MOST_DEVICES} devices, got {k}. More rows cannot be read.")
    if step not in range(num_steps + 1):
        raise ValueError(f"step: expected a whole number from 0 to {num_steps}, got {step!r}.")


def _title(trace: Trace, step: int) -> str:
    what = escape_label(f"{trace.algorithm} {trace.collective.replace('_', '-')}".strip() or "steps")
    devices = f"{trace.world_size} device" + ("s" if trace.world_size > 1 else "")
    return f"{what} on {devices}<br>step {step} of {len(trace.steps)}"


def _key(trace: Trace, least: float | None) -> Iterator[tuple[str, str, str]]:
    """What the cells, the arrows and the line mean: the same in all steps, so that nothing jumps."""
    yield "■", GREY, "contributions that a cell holds"
    for adds, (name, colour) in _MOVES.items():
        if any(send.adds == adds for send in trace.sends):
            yield "➞", colour, name
    if least is not None:
        yield "╎", PALETTE[2], _bound(least)


def _bound(least: float) -> str:
    return f"busiest: at least {format_bytes(least)}"


def _cells(trace: Trace, step: int) -> go.Heatmap:
    """A heat map with two columns per chunk: a cell, and a gap for the arrows."""
    held, wholes = trace.replay()[step], trace.whole()
    k, most = trace.world_size, max(len(whole) for whole in wholes)
    counts = [[n for chunk in row for n in (len(chunk), None)] for row in held]
    about = [[text for c, chunk in enumerate(row) for text in (_about(i, c, chunk), "")] for i, row in enumerate(held)]
    colours = [cell_colour(n, most) for n in range(most + 1)]
    return go.Heatmap(
        z=counts,
        x=[edge for c in range(len(wholes)) for edge in (c, c + _CELL)] + [len(wholes)],
        y=list(range(k)),
        zmin=-0.5,
        zmax=most + 0.5,
        colorscale=[[(n + end) / (most + 1), colour] for n, colour in enumerate(colours) for end in (0, 1)],
        text=[["" if n is None or len(wholes) > _MANY_CHUNKS else n for n in row] for row in counts],
        texttemplate="%{text}",
        textfont={"size": 14, "color": "black"},
        customdata=about,
        meta={"words": [f"device {i}: {' '.join(str(len(c)) for c in row)}" for i, row in enumerate(held)]},
        hovertemplate="%{customdata}<extra></extra>",
        hoverongaps=False,
        showscale=False,
        ygap=5,
    )


def _about(device: int, chunk: int, held: frozenset[int]) -> str:
    whose = "the contributions of devices" if len(held) > 1 else "the contribution of device"
    what = f"{whose} {', '.join(map(str, sorted(held)))}" if held else "nothing yet"
    return f"device {device}, chunk {chunk}: {what}"


def cell_colour(n: int, most: int) -> str:
    """Return the colour of a cell that holds n of `most` contributions: blue, the darker the more; green when whole."""
    if n in (0, most):
        return WHOLE if n else NONE
    return "#" + "".join(f"{round(a + n / most * (b - a)):02x}" for a, b in zip(SOME, MORE, strict=True))


def _arrows(trace: Trace, step: int) -> Iterator[go.Scatter]:
    """Two plotly traces of arrows, for added and for copied chunks: for each Send a dot, a head, and a gap."""
    sends = trace.steps[step - 1] if step else []
    columns, small = _arrow_columns(sends), len(trace.chunk_n_bytes) > _MANY_CHUNKS
    for adds, (name, colour) in _MOVES.items():
        x: list[float | None] = []
        y: list[int | None] = []
        angles: list[int] = []
        about: list[str] = []
        for send in (send for send in sends if send.adds == adds):
            x += [columns[send], columns[send], None]
            y += [send.src, send.dst, None]
            angles += [0, 180 if send.dst > send.src else 0, 0]
            text = f"device {send.src} to device {send.dst}: chunk {send.chunk}, {format_bytes(send.n_bytes)}"
            about += [text, text, ""]
        yield go.Scatter(
            x=x,
            y=y,
            name=name,
            mode="lines+markers",
            line={"color": colour, "width": 2 if small else 2.5},
            marker={"color": colour, "angle": angles, "symbol": ["circle", "arrow", "circle"] * (len(x) // 3)}
            | {"size": ([5, 9, 1] if small else [7, 13, 1]) * (len(x) // 3), "line": {"width": 0}},
            customdata=about,
            meta={"words": [text for text in about[::3]]},
            hovertemplate="%{customdata}<extra></extra>",
            cliponaxis=False,
            showlegend=True,
        )


def _arrow_columns(sends: Sequence[Send]) -> dict[Send, float]:
    """The x of the arrow of each Send; arrows that have a common end or do not overlap are drawn in one column."""
    lanes: dict[int, list[list[Send]]] = {}
    for send in sends:
        mine = lanes.setdefault(send.chunk, [])
        lane = next((lane for lane in mine if all(_fit(send, other) for other in lane)), None)
        if lane is None:
            mine.append(lane := [])
        lane.append(send)
    return {
        send: chunk + _CELL + (1 - _CELL) * (n + 1) / (len(mine) + 1)
        for chunk, mine in lanes.items()
        for n, lane in enumerate(mine)
        for send in lane
    }


def _fit(a: Send, b: Send) -> bool:
    if a.src == b.src or a.dst == b.dst:
        return True
    return max(a.src, a.dst) < min(b.src, b.dst) or max(b.src, b.dst) < min(a.src, a.dst)


def _bars(trace: Trace, step: int, least: float | None) -> Iterator[go.Bar | go.Scatter]:
    """One bar per device with the bytes that it has sent, and a line at the lower bound."""
    sent, k = trace.sent_n_bytes(step), trace.world_size
    yield go.Bar(
        orientation="h",
        x=sent,
        y=list(range(k)),
        xaxis="x2",
        yaxis="y2",
        marker={"color": PALETTE[0]},
        meta={"words": [f"device {i} has sent {format_bytes(n_bytes)}" for i, n_bytes in enumerate(sent)]},
        hovertemplate="device %{y} has sent %{x:,} bytes<extra></extra>",
        showlegend=False,
    )
    yield go.Scatter(
        x=[] if least is None else [least, least],
        y=[] if least is None else [-0.5, k - 0.5],
        xaxis="x2",
        yaxis="y2",
        name="" if least is None else _bound(least),
        meta={"words": ["" if least is None else "a line"]},
        mode="lines",
        line={"color": PALETTE[2], "dash": "dash", "width": 2.5},
        hoverinfo="skip",
        showlegend=least is not None,
    )


def _axes(trace: Trace, step: int, least: float | None) -> dict[str, Any]:
    k, num_chunks = trace.world_size, len(trace.chunk_n_bytes)
    every = -(-num_chunks // 6) if num_chunks > _MANY_CHUNKS else 1  # more labels of two digits would overlap
    longest = max([*trace.sent_n_bytes(), least or 0]) or 1
    plain = {"showgrid": False, "zeroline": False, "fixedrange": True, "color": GREY, "showline": False}
    title = {"font": {"size": 14}, "standoff": 6}
    sent = [format_bytes(n_bytes) for n_bytes in trace.sent_n_bytes(step)]
    gap = {"ticks": "outside", "ticklen": 4, "tickcolor": TRANSPARENT}  # room between an axis label and its row
    devices = plain | gap | {"range": [k - 0.5, -0.5], "tickvals": list(range(k))}
    return {
        "xaxis": plain
        | {"domain": [0, 0.56], "range": [-0.05, num_chunks], "ticks": ""}
        | {"tickvals": [c + _CELL / 2 for c in range(0, num_chunks, every)], "tickangle": 0}
        | {"ticktext": [str(c) for c in range(0, num_chunks, every)]}
        | {"title": title | {"text": "chunk"}},
        "yaxis": devices | {"automargin": True, "title": title | {"text": "device"}},
        "xaxis2": plain
        | {"domain": [0.83, 1], "range": [0, 1.04 * longest], "anchor": "y2", "showticklabels": False, "ticks": ""}
        | {"title": title | {"text": "sent"}},
        "yaxis2": devices | {"anchor": "x2", "ticktext": sent},
    }
