"""Write the drawings of the chapters: `python -m tools.drawings` makes the SVG files of book/images.

They stand in Markdown, so that a page which runs nothing has them: GitHub, a print, an export. The words for screen
readers are in the file (`<title>`, `<desc>`) and in the Markdown. A ground of its own makes a drawing legible on any
page; it is dark where the reader's system asks for a dark one.
"""

import html
import textwrap
from collections.abc import Sequence
from pathlib import Path

from d2lite.costs import Device, Link
from d2lite.exercises import EXHIBITS
from d2lite.figures import COLOURS, GREY, PALETTE, RED, ink_on
from d2lite.labs.chapter_04 import collective_shape, trace_collective
from d2lite.labs.chapter_08 import Workload, predict_step
from d2lite.labs.chapter_09 import compare_arms

__all__ = ["DRAWINGS", "FOLDER", "main"]

FOLDER = Path(__file__).resolve().parents[1] / "book" / "images"
# In a drawing `.ink` is text and outline, `.soft` the ground of a box, `.page` the ground of all.
_STYLE = """<style>
text { font: 14px sans-serif; fill: #333; } .bold { font-weight: 600; }
.page { fill: #fff; } .soft { fill: #f1f1f1; } .line { stroke: #333; stroke-width: 1.5; fill: none; }
.head { fill: #333; } .on { fill: #fff; } .under { fill: #000; }
@media (prefers-color-scheme: dark) {
text { fill: #e4e4e4; } .page { fill: #1b1b1b; } .soft { fill: #2d2d2d; } .line { stroke: #e4e4e4; }
.head { fill: #e4e4e4; } .on { fill: #fff; } .under { fill: #000; } }
</style>"""
_HEAD = (
    '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" '
    'orient="auto-start-reverse"><path class="head" d="M0 0L10 5L0 10z"/></marker></defs>'
)


def _svg(title: str, words: str, width: int, height: int, parts: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-labelledby="t d"><title id="t">{html.escape(title)}</title><desc id="d">{html.escape(words)}'
        f'</desc>{_STYLE}{_HEAD}<rect class="page" width="{width}" height="{height}" rx="8"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _text(x: float, y: float, words: str, anchor: str = "middle", kind: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" class="{kind}">{html.escape(words)}</text>'


def _box(x: float, y: float, width: float, height: float, words: str = "", colour: str = "") -> str:
    """A box; the words on a colour are white or black, whichever has more contrast."""
    ground = f'fill="{colour}"' if colour else 'class="soft"'
    box = f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5" {ground}/>'
    lines = words.split("\n") if words else []
    first = y + height / 2 + 5 - 9 * (len(lines) - 1)
    return box + "".join(
        _text(
            x + width / 2,
            first + 18 * i,
            line,
            kind={"white": "on", "black": "under"}[ink_on(colour)] if colour else "",
        )
        for i, line in enumerate(lines)
    )


def _frame(x: float, y: float, width: float, height: float, words: str) -> str:
    frame = (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="8" class="line" stroke-dasharray="5 4"/>'
    )
    return frame + _text(x + 10, y + 20, words, "start", "bold")


def _arrow(*points: tuple[float, float], both: bool = False) -> str:
    way = "L".join(f"{x:g} {y:g}" for x, y in points)
    return (
        f'<path class="line" d="M{way}" marker-end="url(#head)"' + (' marker-start="url(#head)"' if both else "") + "/>"
    )


def _cross(x: float, y: float, width: float, height: float) -> str:
    """Two lines through a box: what is in it does not answer any more."""
    return f'<path class="line" d="M{x:g} {y:g}l{width:g} {height:g}m0 {-height:g}l{-width:g} {height:g}"/>'


def columns_then_rows() -> str:
    """The standard pair of chapter 1: linear1 cut by its outputs, linear2 by its inputs."""
    columns = ((129, "linear1,", "cut by outputs"), (345, "linear2,", "cut by inputs"), (466, "", "all-reduce"))
    parts = [_text(x, 26 + 18 * i, line, kind="bold") for x, *lines in columns for i, line in enumerate(lines) if line]
    for i, y in enumerate((78, 164)):
        parts += [
            _text(14, y - 8, f"device {i}", "start", "bold"),
            _box(14, y, 30, 44, "h"),
            _box(76, y, 106, 44, f"half {i} of its\noutputs", PALETTE[i]),
            _box(212, y, 50, 44, "ReLU"),
            _box(292, y, 106, 44, f"part {i} of all\noutputs", PALETTE[i]),
        ]
        parts += [_arrow((x, y + 22), (x + 28, y + 22)) for x in (46, 182, 262)]
        parts.append(_arrow((398, y + 22), (424, 131 + 24 * i)))
    parts += [
        _box(426, 113, 80, 60, "Σ, then\nthe bias", COLOURS["all_reduce"]),
        _text(260, 234, "h is complete on both devices;"),
        _text(260, 252, "nothing is sent until the parts are added"),
    ]
    words = (
        "Each of two devices has the complete input h. It computes its half of the outputs of linear1, then ReLU, and "
        "from this half its part of all outputs of linear2. Until then nothing is sent. One all-reduce adds the two "
        "parts, and then the bias is added."
    )
    return _svg("Two layers on two devices: columns, then rows", words, 520, 268, parts)


def five_phases() -> str:
    """One step of chapter 2 on two devices."""
    columns = ((60, "1 scatter"), (180, "2 compute"), (292, "3 add"), (376, "4 send back"), (469, "5 update"))
    parts = [_text(x, 28, name, kind="bold") for x, name in columns]
    parts += [
        _text(14, 52, "device 0", "start", "bold"),
        _text(14, 198, "device 1", "start", "bold"),
        _box(14, 106, 54, 30, "batch"),
    ]
    for y in (62, 136):
        parts += [
            _box(50, y + 5, 52, 34, "shard"),
            _box(112, y, 66, 44, "forward", COLOURS["forward"]),
            _box(180, y, 74, 44, "backward", COLOURS["backward"]),
            _box(434, y, 70, 44, "update", COLOURS["update"]),
        ]
    parts += [_arrow((36, 106), (36, 84), (48, 84)), _arrow((36, 136), (36, 158), (48, 158))]
    parts += [
        _box(272, 62, 44, 44, "Σ", COLOURS["all_reduce"]),
        _arrow((256, 84), (270, 84)),
        _arrow((256, 158), (294, 158), (294, 108)),
    ]
    parts += [_box(352, y, 52, 44, "sum", COLOURS["all_reduce"]) for y in (62, 136)]
    parts += [_arrow((318, 79), (350, 79)), _arrow((318, 92), (333, 92), (333, 158), (350, 158))]
    parts += [_arrow((406, y), (432, y)) for y in (84, 158)]
    parts.append(_text(260, 222, "time →    2 and 5 run on both devices at the same time"))
    words = (
        "The minibatch is cut into two shards. Each device computes forward and backward on its shard. The "
        "gradients are added on device 0, the sum is sent back to device 1, and each device updates its "
        "replica."
    )
    return _svg("The five phases of one step on two devices", words, 520, 240, parts)


def four_operations() -> str:
    """What the one line of chapter 3 does, forward and backward."""
    parts = [_box(22, 60, 78, 44, "network"), _box(22, 140, 78, 44, "minibatch")]
    parts += [_box(200, y, 160, 44, f"replica {i} on shard {i}", PALETTE[i]) for y, i in ((50, 0), (150, 1))]
    parts += [_box(420, 92, 84, 60, "outputs,\nloss")]
    parts += [
        _arrow((100, 72), (198, 66)),
        _arrow((100, 90), (198, 162)),
        _arrow((100, 154), (198, 84)),
        _arrow((100, 172), (198, 180)),
        _arrow((360, 72), (418, 108)),
        _arrow((360, 172), (418, 136)),
    ]
    parts += [
        _text(148, 48, "replicate", kind="bold"),
        _text(148, 206, "scatter", kind="bold"),
        _text(280, 34, "parallel_apply", kind="bold"),
        _text(412, 72, "gather", kind="bold"),
    ]
    parts += [_arrow((462, 152), (462, 226), (9, 226), (9, 82), (20, 82))]
    parts += [
        _text(260, 248, "backward: the other way round; the gradients of the"),
        _text(260, 266, "replicas are added in the network (reduce)"),
    ]
    words = (
        "Forward: the network is replicated to two devices, the minibatch is scattered, both replicas are applied "
        "in parallel, and their outputs are gathered on the first device, which computes the loss. Backward goes "
        "the other way round: the gradients of the replicas are added in the network, which is a reduce."
    )
    return _svg("The four operations of nn.DataParallel", words, 520, 280, parts)


def processes() -> str:
    """What torchrun starts in chapter 5."""
    parts = [_box(10, 100, 84, 56, "torchrun\n(launcher)"), _frame(140, 40, 368, 190, "process group, world_size 2")]
    for rank, y in ((0, 75), (1, 160)):
        parts += [
            _box(156, y, 128, 50, f"process, rank {rank}"),
            _box(366, y, 126, 50, f"device {rank}\nits own replica", PALETTE[rank]),
            _arrow((286, y + 25), (364, y + 25)),
            _text(324, y + 18, "uses"),
        ]
    parts += [
        _arrow((94, 120), (116, 120), (116, 100), (154, 100)),
        _arrow((94, 136), (116, 136), (116, 185), (154, 185)),
        _text(106, 84, "starts"),
        _arrow((220, 127), (220, 158), both=True),
        _text(230, 148, "collectives", "start"),
    ]
    words = (
        "torchrun starts two processes with the ranks 0 and 1. Together they are a process group. Each process "
        "uses a device of its own, with its own replica. The processes exchange tensors in collectives only."
    )
    return _svg("One process per device", words, 520, 246, parts)


def late_rank() -> str:
    """An all-reduce and a broadcast to which rank 2 comes late: chapter 5."""
    second, parts = 150, []
    calls = {"all-reduce": ((0, 1), (0, 1), (1, 1)), "broadcast from rank 0": ((0, 1), (0, 0), (1, 1))}
    for column, (title, of_ranks) in enumerate(calls.items()):
        x = 78 + 260 * column
        parts.append(_text(x + second / 2, 28, title, kind="bold"))
        for rank, (begins, ends) in enumerate(of_ranks):
            y = 44 + 46 * rank
            parts.append(_text(x - 12, y + 23, f"rank {rank}", "end", "bold"))
            width = max(second * (ends - begins), 12)
            words = "waits in the call" if ends > begins else ""
            parts.append(_box(x + second * begins, y, width, 36, words, COLOURS["all_reduce"]))
            if begins == ends:
                parts.append(_text(x + 22, y + 23, "sleeps" if begins else "goes on at once", "start"))
        parts.append(f'<path class="line" stroke-dasharray="4 4" d="M{x + second} 42V184"/>')
        parts += [_text(x, 202, "0 s"), _text(x + second, 202, "1 s")]
    words = (
        "Three ranks in time, with gloo; rank 2 sleeps for one second before it calls. All-reduce: the ranks 0 and 1 "
        "wait in the call until rank 2 comes. Broadcast from rank 0: rank 0 waits for rank 2, and rank 1 goes on at "
        "once."
    )
    return _svg("A rank that is late, in two collectives", words, 520, 218, parts)


def hosts() -> str:
    """Two hosts with two workers each: chapter 7."""
    parts = []
    for host, x in ((0, 8), (1, 276)):
        parts += [_frame(x, 8, 236, 258, f"host {host}"), _box(x + 66, 92, 104, 46, "agent\n(torchrun)")]
        for local in (0, 1):
            rank = 2 * host + local
            left = x + 8 + 112 * local
            parts += [_box(left, 182, 108, 70, f"worker\nrank {rank}\nlocal rank {local}", PALETTE[rank])]
            parts.append(_arrow((x + 118, 138), (left + 54, 180)))
    parts += [_box(74, 28, 104, 38, "rendezvous")]  # the first host runs its server
    parts += [_arrow((126, 92), (126, 68)), _arrow((394, 92), (394, 47), (180, 47))]
    parts += [_text(132, 84, "registers", "start"), _text(400, 74, "registers", "start")]
    parts.append(f'<path d="M244 217H276" stroke="{GREY}" stroke-width="6"/>')
    parts += [
        _text(260, 288, "the cable between the hosts carries"),
        _text(260, 306, "every collective of the four workers"),
    ]
    words = (
        "Two hosts, each with one agent and two workers. The rendezvous runs on host 0, and both agents register "
        "there. Each agent starts its workers, which have the ranks 0 to 3. A cable between the hosts carries their "
        "collectives."
    )
    return _svg("Hosts, agents, workers and the rendezvous", words, 520, 322, parts)


def who_notices() -> str:
    """Three faults on two hosts, and which process notices each: chapter 7."""
    panels = (
        ("a worker is killed: 2 ranks go on", (1, ("worker",)), "error within 0.1 s: its system closes the connection"),
        ("a host falls silent: 1 rank goes on", (1, ("agent", "worker")), "time-out, here 5 s: nothing is closed"),
        (
            "the first host is killed: the job is over",
            (0, ("agent", "worker")),
            "error within 0.1 s; no rendezvous server is left",
        ),
    )
    parts = []
    for i, (title, (lost_host, lost), noticed) in enumerate(panels):
        y = 36 + 162 * i
        parts.append(_text(260, y - 10, title, kind="bold"))
        for host, x in ((0, 12), (1, 292)):  # the workers stand side by side
            parts.append(_frame(x, y, 216, 92, f"host {host}"))
            for name, left in (("agent", x + (114 if host else 8)), ("worker", x + (8 if host else 114))):
                notices = host != lost_host and name == "worker"
                words = f"{name}\nserver" if (host, name) == (0, "agent") else name
                parts.append(_box(left, y + 34, 94, 44, words, PALETTE[1] if notices else ""))
                if host == lost_host and name in lost:
                    parts.append(_cross(left, y + 34, 94, 44))
        ends = ((300, y + 56), (222, y + 56))
        if len(lost) > 1 and lost_host:  # nothing is sent
            parts.append(_text(261, y + 61, "?", kind="bold"))
        else:
            parts.append(_arrow(*(ends if lost_host else ends[::-1])))
        parts.append(_text(260, y + 114, noticed))
    parts += [
        _text(260, 522, "orange: the process that noticed first in our record;"),
        _text(260, 540, "crossed out: what does not answer;"),
        _text(260, 558, "arrow: the system of a killed process closes the connection"),
    ]
    words = (
        "Three faults on two hosts with an agent and a worker each. A worker is killed: its system closes the "
        "connection, the worker of the other host has an error within 0.1 s, and two ranks go on. A host falls silent: "
        "nothing is closed, the worker of the other host notices at the time-out, and one rank goes on. The first host "
        "is killed: the worker of the other host has an error within 0.1 s, but no rendezvous server is left, and the "
        "job is over. Who notices a killed process first may vary."
    )
    return _svg("Who notices which fault", words, 520, 574, parts)


def _shape(algorithm: str, k: int, step: int, title: str, caption: str, words: str) -> str:
    """A step of an all-reduce, as the stepper of chapter 4 draws it."""
    shape = collective_shape(trace_collective("all_reduce", algorithm, k), step)
    height = float(shape.split('height="')[1].split('"')[0])
    inner = shape.replace("<svg ", '<svg x="20" y="8" ', 1)
    lines = [_text(230, height + 30 + 20 * i, line) for i, line in enumerate(caption.split("\n"))]
    return _svg(title, words, 460, int(height) + 66, [inner, *lines])


def ring() -> str:
    """The second step of a ring of four: chapter 4."""
    words = (
        "Four devices in a circle. Each sends one chunk to the next one, which adds it to its own chunk. After two "
        "steps one chunk of each device holds three contributions."
    )
    caption = "each device sends one chunk to the next one;\na number counts the contributions that a chunk holds"
    return _shape("ring", 4, 2, "An all-reduce on a ring of four devices, after two of six steps", caption, words)


def tree() -> str:
    """The second step of a tree of eight: chapter 4."""
    words = (
        "Eight devices in a tree with device 0 on top. Each message goes up one level and carries the complete tensor. "
        "Afterwards the sum goes down the same way."
    )
    caption = "first the tensors go up and are added, then the sum goes\ndown; a message is a complete tensor"
    return _shape("tree", 8, 2, "An all-reduce on a tree of eight devices, after two of six steps", caption, words)


def step_timeline() -> str:
    """A step of DistributedDataParallel, predicted by `costs.predict_step` for a small network: chapter 8."""
    net = Workload("three layers", n_bytes=(1_000_000, 1_000_000, 1_000_000), macs=(2, 2, 2))
    step = predict_step(net, 1, 2, Device(flops_per_s=2.0), Link(0.0, 0.38e6), caps=(1,))
    scale, left = 500 / step.seconds, 10
    parts = [_text(left, 26 + 80 * lane, name, "start", "bold") for lane, name in ((0, "computes"), (1, "sends"))]
    for event in step.events:
        is_sent = event.kind == "all_reduce"
        x, width = left + scale * event.start_s, scale * (event.end_s - event.start_s) - 2
        parts.append(_box(x, 114 if is_sent else 34, width, 44, event.name, COLOURS[event.kind]))
    end = left + scale * (step.seconds - step.exposed_s)
    parts.append(f'<path class="line" stroke-dasharray="4 4" d="M{end:g} 20V168"/>')
    parts += [
        _text(260, 186, "buckets 0 and 1 are sent during the backward pass;"),
        _text(260, 204, "the last one is not hidden"),
    ]
    words = (
        "One rank in time. Computing: the forward pass, then the backward pass in three parts. As soon as a part "
        "is done, the gradients of its bucket are sent, while the next part is computed. Sending the last bucket "
        "ends after the backward pass."
    )
    return _svg("One step of DistributedDataParallel in time", words, 520, 218, parts)


def verdicts() -> str:
    """A difference that is shown and one that is not, with the seeds behind them: chapter 9."""
    zero, scale = 500, 2100  # pixels: where the difference is 0, and per 1.0 of accuracy
    parts, told = [_text(zero, 30, "no difference", kind="bold")], []
    parts.append(f'<path class="line" stroke-dasharray="4 4" d="M{zero} 40V196"/>')
    for i, gains in enumerate(((-0.07, -0.04, -0.08, -0.05, -0.055), (-0.09, -0.01, -0.08, 0.02, -0.06))):
        found, y = compare_arms([0.0] * len(gains), gains, paired=True), 72 + 72 * i
        low, mean, high = (zero + scale * x for x in (found.low, found.difference, found.high))
        colour, verdict = (PALETTE[0], "shown") if found.is_shown else (GREY, "not shown")
        parts += [
            _text(14, y + 5, verdict, "start", "bold"),
            f'<path d="M{low:g} {y}H{high:g}" stroke="{colour}" stroke-width="3"/>',
            *(f'<circle cx="{zero + scale * x:g}" cy="{y}" r="5" fill="{colour}"/>' for x in gains),
            f'<path d="M{mean:g} {y - 11}l9 11l-9 11l-9 -11z" fill="{colour}"/>',
            _text(
                (low + mean) / 2,
                y + 32,
                f"99% interval {100 * found.low:+.1f} to {100 * found.high:+.1f}",
                kind="small",
            ),
        ]
        told.append(f"{len(gains)} seeds, interval {100 * found.low:+.1f} to {100 * found.high:+.1f}: {verdict}")
    parts.append(
        _text(
            360,
            226,
            "dot: the difference of one seed; diamond: their mean; shown: the interval leaves out 0",
            kind="small",
        )
    )
    words = (
        "Two comparisons in points, each with a dot for the difference of each seed, a diamond for their mean, and a "
        f"line for the 99% interval. {told[0]}, since zero lies outside. {told[1]}, since zero lies inside."
    )
    return _svg("A difference that is shown, and one that is not", words, 720, 242, parts)


def normalisation() -> str:
    """Eight values, normalised together and in two shards: chapter 10."""
    values = (20, 45, 65, 110, 75, 140, 165, 180)
    parts, top, scale = [], 150, 0.5
    for column, (title, shards) in enumerate((("one device", (range(8),)), ("two replicas", (range(4), range(4, 8))))):
        left = 10 + 262 * column
        parts.append(_text(left + 119, 30, title, kind="bold"))
        for i, value in enumerate(values):
            device = int(i >= 4) if column else 0
            parts.append(
                f'<circle cx="{left + 14 + 30 * i}" cy="{top - scale * value:g}" r="7" fill="{PALETTE[device]}"/>'
            )
        for device, shard in enumerate(shards):
            mean = sum(values[i] for i in shard) / len(shard)
            y, first, last = top - scale * mean, left + 2 + 30 * shard[0], left + 26 + 30 * shard[-1]
            parts.append(f'<path d="M{first} {y:g}H{last}" stroke="{PALETTE[device]}" stroke-width="3"/>')
            parts.append(_text(first + 4, y + (18 if device else -8), f"mean {mean:g}", "start"))
    parts += [
        _text(260, 186, "each replica subtracts the mean of its own four values,"),
        _text(260, 204, "and divides by their deviation"),
    ]
    words = (
        "Eight values twice. On one device all eight have one mean. On two replicas the first four and the last "
        "four have means of their own, so the same value becomes a different one."
    )
    return _svg("What a replica normalises by", words, 520, 218, parts)


def backward_sums() -> str:
    """The sums of all ranks that batch normalisation needs, forward and backward: chapter 10."""
    passes = (
        ("forward pass", "x", "Σx, then\nΣ(x−μ)²", "x\u0302"),
        ("then the loss, and the backward pass", "g", "Σg and\nΣg·x\u0302", "∂L/∂x"),
    )
    parts = []
    for i, (title, before, sums, after) in enumerate(passes):
        top = 216 * i
        parts.append(_text(292, top + 30, title, kind="bold"))
        for rank, y in ((0, top + 48), (1, top + 158)):
            own, away = y + (12 if rank == 0 else 32), y + (32 if rank == 0 else 12)  # the heights of the arrows
            parts += [
                _text(20, y + 27, f"rank {rank}", "start", "bold"),
                _box(96, y, 60, 44, before, PALETTE[rank]),
                _box(428, y, 72, 44, after, PALETTE[rank]),
                _arrow((156, own), (426, own)),
                _arrow((156, away), (224, top + 114 + 22 * rank)),
                _arrow((358, top + 114 + 22 * rank), (426, away)),
            ]
        parts.append(_box(226, top + 100, 132, 50, sums, COLOURS["all_reduce"]))
    parts.append(_text(260, 450, "green: sums over the values of all ranks, by all-reduce"))
    words = (
        "Two ranks. Forward: the sums of the values x of both ranks give mean and variance, by which each rank "
        "normalises its own x. Backward: g is the gradient with respect to a normalised value. The sums of g and of g "
        "times the normalised value, over both ranks, enter the gradient of every x."
    )
    return _svg("The sums of batch normalisation over ranks, forward and backward", words, 520, 466, parts)


def places_of_bugs() -> str:
    """Where in a training step the lines of each exhibit differ from right code: chapter 11."""
    places = {
        "replicate": ("different initial weights", "aliased replicas", "the published loop, on CPUs"),
        "shards": (
            "examples left over are dropped",
            "chunk loses a device",
            "same random numbers on each replica",
        ),
        "backward": ("forgotten zero_grad", "pieces divided by their number"),
        "all_reduce": ("mean for sum", "rebinding all-reduce", "no all-reduce", "update before all-reduce"),
        "update": ("sum for mean", "lr times k twice", "loss divided by the local batch"),
    }
    assert {name for names in places.values() for name in names} == set(EXHIBITS)
    parts = []
    for i, (place, names) in enumerate(places.items()):
        x, y = 10 + 142 * i, 92
        parts.append(_box(x, 18, 116, 40, place.replace("_", "-"), COLOURS.get(place, "")))
        if i:
            parts.append(_arrow((x - 26, 38), (x - 2, 38)))
        for name in names:
            for line in textwrap.wrap(name, 18, break_on_hyphens=False):
                parts.append(_text(x, y, line, "start", "small"))
                y += 17
            y += 9
    parts.append(
        _text(
            360, 262, "the three below update also take the mean loss of a shard, where right code sums", kind="small"
        )
    )
    listed = "; ".join(f"{place.replace('_', '-')}: {', '.join(names)}" for place, names in places.items())
    words = (
        f"The parts of a training step from left to right, each with the bugs whose lines are there. {listed}. The "
        "three below update also take the mean loss of a shard, where right code sums."
    )
    return _svg("Where in a training step the bugs of the museum are", words, 720, 278, parts)


def lanes() -> str:
    """What three ranks have called, where rank 1 leaves out a collective: chapter 12."""
    step = ("all_reduce\n[1000]", "all_reduce\n[10]", "barrier")  # of the chapter's job
    calls = {rank: [*step, *step][:5] for rank in range(3)}
    calls[1] = [*step, step[0], step[2]]  # without the second all-reduce of its second step
    agree = next(i for i, here in enumerate(zip(*calls.values(), strict=True)) if len(set(here)) > 1)
    parts = []
    for rank, called in calls.items():
        y = 20 + 62 * rank
        parts.append(_text(10, y + 28, f"rank {rank}", "start", "bold"))
        parts += [_box(68 + 89 * i, y, 84, 46, call, PALETTE[2] if i < agree else RED) for i, call in enumerate(called)]
    parts += [
        _text(260, 224, "time →    green: all ranks have made this call;"),
        _text(260, 242, "red: the first call that does not match, in which they wait"),
    ]
    words = (
        f"Three ranks, one lane each. Their first {agree} collectives are the same. The next one is red: ranks 0 and 2 "
        "have called the all-reduce of 10 numbers, and rank 1, which left it out, the barrier. All three wait."
    )
    return _svg("What the ranks of a job have called", words, 520, 256, parts)


def who_holds_what() -> str:
    """What each of four ranks holds, in the four stages of ZeRO: chapter 13."""
    kinds = ("parameters", "gradients", "optimizer's state")
    stages = (("0: plain", 0), ("1: state", 1), ("2: gradients", 2), ("3: parameters", 3))
    parts = [_text(16, 34, "stage", "start", "bold")]
    parts += [_text(170 + 96 * rank, 34, f"rank {rank}", kind="bold") for rank in range(4)]
    for row, (name, sharded) in enumerate(stages):
        y = 54 + 66 * row
        parts.append(_text(16, y + 27, name, "start"))
        for rank in range(4):
            for i, colour in enumerate(PALETTE[:3]):
                x, at = 128 + 96 * rank, y + 16 * i
                parts.append(_box(x, at, 84, 12))
                is_part = i >= 3 - sharded  # the state is the first kind that is sharded, the parameters the last
                parts.append(_box(x + 21 * rank * is_part, at, 21 if is_part else 84, 12, "", colour))
    for x, kind, colour in zip((60, 210, 350), kinds, PALETTE[:3], strict=True):
        parts += [_box(x, 326, 21, 12, "", colour), _text(x + 28, 337, kind, "start")]
    words = (
        "Four ranks in four columns, a row per stage. In stage 0 each rank holds all parameters, all gradients and the "
        "whole state of the optimizer. In stage 1 each rank holds a quarter of the state, and no two hold the same. In "
        "stage 2 it holds a quarter of the gradients as well, and in stage 3 a quarter of the parameters as well."
    )
    return _svg("Who holds what: plain data parallelism and the three stages of ZeRO", words, 520, 356, parts)


def f_and_g() -> str:
    """The two functions of Megatron-LM around an MLP on two ranks, forward and backward: chapter 14."""
    columns = (("X", 48), ("f", 40), ("up", 58), ("GELU", 64), ("down", 64), ("g", 40), ("Y", 48))
    parts, gap = [], 20
    for is_backward in (False, True):
        top, x = 44 + 172 * is_backward, 19
        parts.append(_text(x, top - 16, "backward: gradients" if is_backward else "forward", "start", "bold"))
        for i, (what, width) in enumerate(columns):
            if what in "fg":
                sums = (what == "g") != is_backward
                parts.append(_box(x, top, width, 102, what, PALETTE[2] if sums else ""))
                parts.append(_text(x + width / 2, top + 120, "sums" if sums else "changes nothing"))
            for rank in range(2):
                y = top + 62 * rank
                if what not in "fg":
                    colour = PALETTE[rank] if what in ("up", "down") else ""
                    parts.append(_box(x, y, width, 40, what, colour))
                if i:
                    ends = ((x, y + 20), (x - gap, y + 20))
                    parts.append(_arrow(*(ends if is_backward else ends[::-1])))
            x += width + gap
    words = (
        "Two lanes, one per rank. In the forward pass X goes through f, which changes nothing, then through the rank's "
        "half of up, GELU, and its half of down; g sums the two results. In the backward pass the gradient goes "
        "through g unchanged, then back through the layers, and f sums the two gradients."
    )
    return _svg("An MLP on two ranks between f and g", words, 520, 350, parts)


def two_by_two() -> str:
    """Four ranks, two ways of parallelism: chapter 14."""
    parts = []
    for i in range(2):
        for j in range(2):
            what = f"rank {2 * i + j}\nminibatch, {('first', 'second')[i]} half\nlayers, {('left', 'right')[j]} part"
            parts.append(_box(40 + 270 * j, 50 + 150 * i, 170, 76, what, PALETTE[j]))
        parts.append(_arrow((214, 88 + 150 * i), (306, 88 + 150 * i), both=True))
        parts.append(_text(260, 78 + 150 * i, "activations"))
        parts.append(_arrow((125 + 270 * i, 130), (125 + 270 * i, 196), both=True))
    parts.append(_text(135, 168, "gradients", "start"))
    parts.append(_text(385, 168, "gradients", "end"))
    parts += [_text(260, 30, "tensor", kind="bold"), _text(22, 168, "data", "start", "bold")]
    words = (
        "Four ranks in two rows and two columns. The ranks of a row have the same half of the minibatch and different "
        "parts of each layer; they send activations. The ranks of a column have the same part of each layer and "
        "different halves of the minibatch; they send gradients."
    )
    return _svg("Two by two ranks: data and tensor parallelism", words, 520, 300, parts)


def mesh_of_eight() -> str:
    """Eight ranks, three ways of parallelism: chapter 16."""
    parts = []
    for stage in range(2):
        left, top = 50 + 330 * stage, 60
        parts.append(_frame(left - 20, 26, 250, 196, f"stage {stage}"))
        for i in range(2):
            for j in range(2):
                parts.append(
                    _box(left + 130 * j, top + 96 * i, 80, 44, f"rank {4 * stage + 2 * i + j}", PALETTE[stage])
                )
            parts.append(_arrow((left + 84, top + 22 + 96 * i), (left + 126, top + 22 + 96 * i), both=True))
            parts.append(_arrow((left + 40 + 130 * i, top + 48), (left + 40 + 130 * i, top + 92), both=True))
        parts.append(_text(left + 105, 74, "tensor"))
        parts.append(_text(left + 48, 134, "data", "start"))
    parts.append(_arrow((280, 130), (358, 130), both=True))
    parts += [_text(319, y, text) for y, text in ((100, "pipe"), (118, "0 - 4, 1 - 5"), (154, "2 - 6, 3 - 7"))]
    words = (
        "Eight ranks in two blocks of two rows and two columns. The first block, ranks 0 to 3, is stage 0, the second "
        "one, ranks 4 to 7, is stage 1. In each block the two ranks of a row share the layers (tensor), and the two "
        "ranks of a column share the minibatch (data). A rank and the one at the same place in the other block send "
        "activations and gradients to each other (pipe): 0 and 4, 1 and 5, 2 and 6, 3 and 7."
    )
    return _svg("Eight ranks as a mesh of 2 x 2 x 2: pipe, data, tensor", words, 640, 230, parts)


def one_microbatch() -> str:
    """The four passes of a microbatch through two stages, and what they send: chapter 15."""
    parts = [_text(70, 58, "rank 0", "end", "bold"), _text(70, 168, "rank 1", "end", "bold")]
    for x, y, what, kind in ((90, 32, "F0", 0), (210, 142, "F0", 0), (330, 142, "B0", 1), (450, 32, "B0", 1)):
        parts.append(_box(x, y, 76, 44, what, PALETTE[kind]))
    parts += [_arrow((150, 78), (226, 138)), _arrow((288, 164), (326, 164)), _arrow((390, 138), (466, 78))]
    parts += [_text(186, 128, "activations", "end"), _text(436, 128, "their gradient", "start")]
    parts.append(_text(308, 208, "the loss is computed between the two"))
    words = (
        "Two lanes, one per rank. F0 on rank 0 sends activations to F0 on rank 1; there follows B0, which sends the "
        "gradient of the activations back to B0 on rank 0."
    )
    return _svg("One microbatch through two stages", words, 560, 226, parts)


DRAWINGS = {
    "columns-then-rows": columns_then_rows,
    "five-phases": five_phases,
    "four-operations": four_operations,
    "processes": processes,
    "late-rank": late_rank,
    "hosts": hosts,
    "who-notices": who_notices,
    "ring": ring,
    "tree": tree,
    "step-timeline": step_timeline,
    "verdicts": verdicts,
    "normalisation": normalisation,
    "backward-sums": backward_sums,
    "places-of-bugs": places_of_bugs,
    "lanes": lanes,
    "who-holds-what": who_holds_what,
    "f-and-g": f_and_g,
    "mesh-of-eight": mesh_of_eight,
    "two-by-two": two_by_two,
    "one-microbatch": one_microbatch,
}


def main() -> None:
    """Write all drawings."""
    FOLDER.mkdir(exist_ok=True)
    for name, draw in DRAWINGS.items():
        (FOLDER / f"{name}.svg").write_text(draw(), encoding="utf-8", newline="\n")
        print(FOLDER / f"{name}.svg")


if __name__ == "__main__":
    main()
