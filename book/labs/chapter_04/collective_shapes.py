"""A Trace in the shape of its algorithm, as SVG: a ring, a tree, a star or hosts, and chunks that glide in a step."""

import html
import math
from collections.abc import Iterator, Sequence

from d2lite.figures.palette import GREY, PALETTE
from d2lite.trace import Send, Trace
from notebook_ranks.shared.format import format_bytes

from .collective_steps import cell_colour, require_step

__all__ = ["MOST_IN_SHAPE", "collective_shape", "shape_words"]

MOST_IN_SHAPE = 8  # devices; more do not fit beside each other
_WIDTH = 420  # pixels of the drawing, as wide as half a screen of 800
_BOX, _HIGH = 118, 62  # of a device
_CENTRE, _RADIUS_X = _WIDTH / 2, 148
_ADDED, _KEPT = PALETTE[1], PALETTE[3]
_MANY_ARROWS = 16  # arrows in a step; more are thin lines with one label
Point = tuple[float, float]
# Inside a page the colours are the page's; in a file or an image they are the system's.
_STYLE = f"""<style>
.d2lite-shape {{ color-scheme: light dark; max-width: 560px; width: 100%; height: auto; }}
.d2lite-shape text {{ font: 14px sans-serif; fill: var(--jp-ui-font-color1, CanvasText); }}
.d2lite-shape .cell {{ font-size: 13px; fill: #000; }}
.d2lite-shape .device {{ fill: var(--colab-primary-surface-color, var(--jp-layout-color0, Canvas)); stroke: {GREY}; }}
.d2lite-shape .glide {{ animation: d2lite-glide 0.35s ease-in-out backwards, d2lite-gone 0.2s 0.4s forwards; }}
.d2lite-shape .after {{ animation: d2lite-come 0.1s 0.35s backwards; }}
@keyframes d2lite-glide {{ from {{ transform: translate(var(--x), var(--y)); }} }}
@keyframes d2lite-gone {{ to {{ opacity: 0; }} }}
@keyframes d2lite-come {{ from {{ opacity: 0; }} }}
@media (prefers-reduced-motion: reduce) {{
.d2lite-shape .glide {{ display: none; }} .d2lite-shape .after {{ animation: none; }} }}
</style>"""


def collective_shape(trace: Trace, step: int) -> str:
    """Return a drawing (SVG) of a Trace after `step` of its steps: the devices, and the messages of the last step.

    Each device shows one cell per chunk, with the number of contributions that it holds, and the bytes that it has sent
    so far. Devices stand in the shape of the algorithm: a tree, a star around the device that adds, the devices of each
    host together, or a ring. In a page each chunk glides from its sender to its receiver, except for readers who want
    reduced motion.

    Raises:
        ValueError: for a step that the Trace does not have, for an empty Trace, and for more than 8 devices.
    """
    require_step(trace, step)
    if trace.world_size > MOST_IN_SHAPE:
        raise ValueError(f"trace: expected at most {MOST_IN_SHAPE} devices, got {trace.world_size}. Draw the grid.")
    places, hosts = _centres(trace)
    height = max(y for _, y in places) + _HIGH / 2 + 12
    sends = trace.steps[step - 1] if step else []
    is_many = len({(send.src, send.dst) for send in sends}) > _MANY_ARROWS
    parts = [*_host_frames(places, hosts), *_ways(trace, places, sends), *_arrows(places, sends, is_many)]
    states, sent = trace.replay(), trace.sent_n_bytes(step)
    for i, place in enumerate(places):
        parts += _drawn_device(i, place, states[max(step - 1, 0)][i], states[step][i], trace.world_size, sent[i])
    if is_many:
        parts.append(f'<text x="4" y="18">{len(sends)} messages</text>')
    else:
        parts += _gliding(places, sends, len(trace.chunk_n_bytes))
    words = html.escape(shape_words(trace, step))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="d2lite-shape" viewBox="0 0 {_WIDTH} {height:g}" '
        f'width="{_WIDTH}" height="{height:g}" role="img" aria-label="{words}">{_STYLE}{_ARROW_HEADS}'
        f"{''.join(parts)}</svg>"
    )


def shape_words(trace: Trace, step: int) -> str:
    """Return what `collective_shape` draws, in words."""
    what = f"{trace.algorithm} {trace.collective.replace('_', '-')}".strip() or "steps"
    sends = trace.steps[step - 1] if step else []
    moves = [
        f"device {s.src} sends chunk {s.chunk} to device {s.dst}" + (", which adds it" if s.adds else "") for s in sends
    ]
    held = [f"device {i}: {', '.join(str(len(chunk)) for chunk in row)}" for i, row in enumerate(trace.replay()[step])]
    return ". ".join(
        [f"{what} on {trace.world_size} devices, step {step} of {len(trace.steps)}", *moves]
        + ["Contributions held, chunk by chunk: " + "; ".join(held)]
    )


def _centres(trace: Trace) -> tuple[list[Point], list[list[int]]]:
    """Return the centre of each device, and the devices of each host if the algorithm knows hosts."""
    k = trace.world_size
    if trace.algorithm == "tree":
        return _tree_places(trace), []
    if trace.algorithm in ("naive", "parameter server") and k > 3:
        hub = _hub(trace)
        others = [i for i in range(k) if i != hub]
        around = dict(zip(others, _circle(len(others)), strict=True))
        middle = (_CENTRE, sum(y for _, y in around.values()) / len(others))
        return [around.get(i, middle) for i in range(k)], []
    hosts = _hosts(trace) if trace.algorithm == "two-level" else []
    if hosts:
        found: dict[int, Point] = {}
        across, top = _WIDTH / 2, 70.0
        for first in range(0, len(hosts), 2):  # two hosts beside each other
            for column, host in enumerate(hosts[first : first + 2]):
                for row, device in enumerate(host):
                    found[device] = (across * (column + 0.5), top + row * 92)
            top += 92 * len(hosts[first]) + 40
        return [found[i] for i in range(k)], hosts
    return _circle(k), []


def _circle(k: int) -> list[Point]:
    """The places of k devices on an ellipse, the first on top; it is as high as k boxes need."""
    if k == 1:
        return [(_CENTRE, 48.0)]
    radius_y = 84.0 if k == 2 else max(90.0, 0.5 * (_HIGH + 14) / (1 - math.cos(2 * math.pi / k)) + 40 + 14 * k)
    turns = [2 * math.pi * i / k for i in range(k)]
    return [(_CENTRE + _RADIUS_X * math.sin(a), 44 + radius_y * (1 - math.cos(a))) for a in turns]


def _tree_places(trace: Trace) -> list[Point]:
    """The device with most neighbours on top, and each other one a level below the neighbour that leads there."""
    level = [[_hub(trace)]]
    left = set(range(trace.world_size)) - set(level[0])
    while level[-1]:
        level.append(sorted(i for i in left if any(_meet(trace, i, above) for above in level[-1])))
        left -= set(level[-1])
    found = {}
    for depth, devices in enumerate(level):
        for n, device in enumerate(devices):
            found[device] = (_WIDTH * (n + 0.5) / len(devices), 44.0 + 112 * depth)
    return [found[i] for i in range(trace.world_size)]


def _meet(trace: Trace, i: int, j: int) -> bool:
    """Whether there is a message between two devices."""
    return any({send.src, send.dst} == {i, j} for send in trace.sends)


def _hub(trace: Trace) -> int:
    """The device with most neighbours, the first one of several."""
    k = trace.world_size
    return max(range(k), key=lambda i: sum(_meet(trace, i, j) for j in range(k)))


def _hosts(trace: Trace) -> list[list[int]]:
    """The devices that are linked in the first step of a two-level collective that begins inside hosts."""
    groups = [{i} for i in range(trace.world_size)]
    for send in trace.steps[0] if trace.steps else []:
        together = set().union(*(group for group in groups if send.src in group or send.dst in group))
        groups = [group for group in groups if not group & together] + [together]
    hosts = sorted(sorted(group) for group in groups)
    return hosts if 1 < len(hosts) < trace.world_size and len(hosts) % 2 == 0 else []


def _host_frames(places: Sequence[Point], hosts: Sequence[Sequence[int]]) -> Iterator[str]:
    for n, host in enumerate(hosts):
        x, top, low = places[host[0]][0], places[host[0]][1], places[host[-1]][1]
        box = f'x="{x - 98:g}" y="{top - 62:g}" width="196" height="{low - top + 106:g}"'
        yield f'<rect {box} rx="8" fill="none" stroke="{GREY}" stroke-dasharray="6 4"/>'
        yield f'<text x="{x - 88:g}" y="{top - 43:g}">host {n}</text>'


_ARROW_HEADS = "<defs>" + "".join(
    f'<marker id="d2lite-{name}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="13" markerHeight="13" '
    f'markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0L10 5L0 10z" fill="{colour}"/></marker>'
    for name, colour in (("added", _ADDED), ("kept", _KEPT))
) + "</defs>"  # fmt: skip


def _ways(trace: Trace, places: Sequence[Point], now: Sequence[Send]) -> Iterator[str]:
    """Pale lines where messages go in any other step: the shape of the algorithm."""
    busy = {frozenset((send.src, send.dst)) for send in now}
    for src, dst in sorted({(min(s.src, s.dst), max(s.src, s.dst)) for s in trace.sends}):
        if frozenset((src, dst)) not in busy:
            way = _curved_path(places, src, dst, 0)
            yield f'<path d="{way}" fill="none" stroke="{GREY}" opacity="0.35"/>'


def _arrows(places: Sequence[Point], sends: Sequence[Send], is_many: bool) -> Iterator[str]:
    ends = {(send.src, send.dst) for send in sends}
    for src, dst, adds in sorted({(send.src, send.dst, send.adds) for send in sends}):
        colour, name = (_ADDED, "added") if adds else (_KEPT, "kept")
        if is_many:  # one thin line for both directions
            (x0, y0), (x1, y1) = places[src], places[dst]
            look = f'd="M{x0:g} {y0:g}L{x1:g} {y1:g}" stroke-width="1.2" opacity="0.6"'
        else:
            way = _curved_path(places, src, dst, 14 if (dst, src) in ends else 0)
            look = f'd="{way}" stroke-width="2.5" marker-end="url(#d2lite-{name})"'
        yield f'<path class="move" {look} fill="none" stroke="{colour}"/>'


def _curved_path(places: Sequence[Point], src: int, dst: int, bulge: float) -> str:
    """A path from box to box, at the side of the boxes that stand between them in one column."""
    (x0, y0), (x1, y1) = places[src], places[dst]
    if abs(x0 - x1) < 1 and any(abs(x - x0) < 1 and min(y0, y1) < y < max(y0, y1) for x, y in places):
        side = 1 if y1 > y0 else -1
        x, bend = x0 + side * _BOX / 2, x0 + side * (_BOX / 2 + 34)
        return f"M{x:g} {y0:g}C{bend:g} {y0:g} {bend:g} {y1:g} {x:g} {y1:g}"
    length = math.hypot(x1 - x0, y1 - y0)
    middle = ((x0 + x1) / 2 + bulge * 2 * (y0 - y1) / length, (y0 + y1) / 2 + bulge * 2 * (x1 - x0) / length)
    (a, b), (c, d) = _border((x0, y0), middle), _border((x1, y1), middle)
    return f"M{a:g} {b:g}Q{middle[0]:g} {middle[1]:g} {c:g} {d:g}"


def _border(centre: Point, towards: Point) -> Point:
    """Where the line from the centre of a box to a point leaves the box."""
    dx, dy = towards[0] - centre[0], towards[1] - centre[1]
    part = min((_BOX / 2 + 2) / abs(dx) if dx else math.inf, (_HIGH / 2 + 2) / abs(dy) if dy else math.inf, 1.0)
    return centre[0] + part * dx, centre[1] + part * dy


def _cell_places(place: Point, num_chunks: int) -> tuple[float, float, float]:
    """The left edge of the first cell of a device, the top of all, and the width of each."""
    return place[0] - _BOX / 2 + 6, place[1] - 11, (_BOX - 12) / num_chunks


def _drawn_device(
    i: int, place: Point, before: Sequence[frozenset[int]], held: Sequence[frozenset[int]], most: int, sent: int
) -> Iterator[str]:
    x, y = place[0] - _BOX / 2, place[1] - _HIGH / 2
    yield f'<rect class="device" x="{x:g}" y="{y:g}" width="{_BOX}" height="{_HIGH}" rx="6"/>'
    yield f'<text x="{place[0]:g}" y="{y + 16:g}" text-anchor="middle">device {i}</text>'
    yield f'<text x="{place[0]:g}" y="{y + _HIGH - 5:g}" text-anchor="middle">{_sent_text(sent)}</text>'
    left, top, width = _cell_places(place, len(held))
    for c, chunk in enumerate(held):
        if before[c] != chunk:
            yield _cell(left + c * width, top, width, len(before[c]), most)
        yield _cell(left + c * width, top, width, len(chunk), most, "after" if before[c] != chunk else "")


def _sent_text(n_bytes: int) -> str:
    return f"sent {format_bytes(n_bytes)}" if n_bytes else "sent nothing"


def _cell(x: float, y: float, width: float, n: int, most: int, kind: str = "") -> str:
    inner = f'<rect x="{x + 0.5:g}" y="{y:g}" width="{max(width - 1, 1):g}" height="20" fill="{cell_colour(n, most)}"/>'
    if width >= 10:
        inner += f'<text class="cell" x="{x + width / 2:g}" y="{y + 15:g}" text-anchor="middle">{n}</text>'
    return f'<g class="{kind}">{inner}</g>' if kind else inner


def _gliding(places: Sequence[Point], sends: Sequence[Send], num_chunks: int) -> Iterator[str]:
    for send in sends:
        (x0, y0, width), (x1, y1, _) = (_cell_places(places[i], num_chunks) for i in (send.src, send.dst))
        x, colour = x1 + send.chunk * width, _ADDED if send.adds else _KEPT
        box = f'x="{x:g}" y="{y1:g}" width="{max(width - 1, 2):g}" height="20" rx="3"'
        yield f'<rect class="glide" {box} fill="{colour}" style="--x: {x0 - x1:g}px; --y: {y0 - y1:g}px"/>'
