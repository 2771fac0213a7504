"""Write the drawings of the chapters: `python -m tools.drawings` makes the SVG files of book/images.

They stand in Markdown, so that a page which runs nothing has them: GitHub, a print, an export. The words for screen
readers are in the file (`<title>`, `<desc>`) and in the Markdown. A ground of its own makes a drawing legible on any
page; it is dark where the reader's system asks for a dark one.
"""

import html
from collections.abc import Sequence
from pathlib import Path

from d2lite.costs import Device, Link, Workload, predict_step
from d2lite.figures import COLOURS, GREY, PALETTE, collective_shape, ink_on
from d2lite.widgets import trace_collective
from d2lite.workers import Job, simulated_records

__all__ = ["DRAWINGS", "FOLDER", "main"]

FOLDER = Path(__file__).resolve().parents[1] / "book" / "images"
# In a drawing `.ink` is text and outline, `.soft` the ground of a box, `.page` the ground of all.
_STYLE = """<style>
text { font: 14px sans-serif; fill: #333; } .bold { font-weight: 600; } .small { font-size: 13px; }
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


def five_phases() -> str:
    """One step of chapter 2 on two devices."""
    parts = [_text(60, 92, "device 0", kind="bold"), _text(60, 172, "device 1", kind="bold")]
    columns = (
        (115, 90, "1 scatter"), (225, 150, "2 compute"), (395, 90, "3 add"),
        (505, 90, "4 send back"), (615, 90, "5 update"),
    )  # fmt: skip
    for x, width, name in columns:
        parts.append(_text(x + width / 2, 34, name, kind="bold"))
    parts.append(_box(115, 115, 66, 24, "batch"))
    for y in (65, 145):
        parts += [
            _box(160, y + 5, 50, 34, "shard"),
            _box(225, y, 70, 44, "forward", COLOURS["forward"]),
            _box(297, y, 78, 44, "backward", COLOURS["backward"]),
            _box(615, y, 90, 44, "update", COLOURS["update"]),
        ]
    parts += [_arrow((148, 115), (172, 105)), _arrow((148, 139), (172, 149))]
    parts += [
        _box(425, 65, 60, 44, "Σ", COLOURS["all_reduce"]),
        _arrow((378, 87), (423, 87)),
        _arrow((378, 167), (455, 167), (455, 112)),
    ]
    parts += [_box(535, 65, 60, 44, "sum", COLOURS["all_reduce"]), _box(535, 145, 60, 44, "sum", COLOURS["all_reduce"])]
    parts += [_arrow((487, 87), (533, 87)), _arrow((487, 95), (510, 95), (510, 167), (533, 167))]
    parts += [_arrow((597, y), (613, y)) for y in (87, 167)]
    parts.append(_text(360, 222, "time →    2 and 5 run on both devices at the same time", kind="small"))
    words = (
        "The minibatch is cut into two shards. Each device computes forward and backward on its shard. The "
        "gradients are added on device 0, the sum is sent back to device 1, and both devices make the same "
        "update."
    )
    return _svg("The five phases of one step on two devices", words, 720, 240, parts)


def four_operations() -> str:
    """What the one line of chapter 3 does, forward and backward."""
    names = ("replicate", "scatter", "parallel_apply", "gather")
    parts = [_box(20, 60, 92, 44, "network"), _box(20, 140, 92, 44, "minibatch")]
    for y, device in ((50, 0), (150, 1)):
        parts.append(_box(300, y, 170, 44, f"replica {device} on shard {device}", PALETTE[device]))
    parts += [_box(590, 100, 110, 44, "outputs, loss")]
    parts += [
        _arrow((112, 72), (298, 66)),
        _arrow((112, 90), (298, 162)),
        _arrow((112, 154), (298, 84)),
        _arrow((112, 172), (298, 180)),
    ]
    parts += [_arrow((470, 72), (588, 112)), _arrow((470, 172), (588, 134))]
    parts += [
        _text(205, 52, names[0], kind="bold"),
        _text(205, 206, names[1], kind="bold"),
        _text(385, 34, names[2], kind="bold"),
        _text(545, 76, names[3], kind="bold"),
    ]
    parts += [_arrow((645, 150), (645, 240), (8, 240), (8, 82), (18, 82))]
    parts.append(
        _text(
            360,
            262,
            "backward: the other way round; the gradients of the replicas are added in the network (reduce)",
            kind="small",
        )
    )
    words = (
        "Forward: the network is replicated to two devices, the minibatch is scattered, both replicas are applied "
        "in parallel, and their outputs are gathered on the first device, which computes the loss. Backward goes "
        "the other way round: the gradients of the replicas are added in the network, which is a reduce."
    )
    return _svg("The four operations of nn.DataParallel", words, 720, 276, parts)


def processes() -> str:
    """What torchrun starts in chapter 5."""
    parts = [_box(20, 100, 110, 56, "torchrun\n(launcher)"), _frame(190, 40, 510, 190, "process group, world_size 2")]
    for rank, y in ((0, 75), (1, 160)):
        parts += [
            _box(215, y, 150, 50, f"process, rank {rank}"),
            _box(500, y, 170, 50, f"device {rank}\nits own replica", PALETTE[rank]),
            _arrow((367, y + 25), (498, y + 25)),
            _text(432, y + 18, "uses", kind="small"),
        ]
    parts += [
        _arrow((130, 120), (160, 120), (160, 100), (213, 100)),
        _arrow((130, 136), (160, 136), (160, 185), (213, 185)),
    ]
    parts += [
        _text(165, 84, "starts", kind="small"),
        _arrow((290, 127), (290, 158), both=True),
        _text(302, 148, "collectives", "start", "small"),
    ]
    words = (
        "torchrun starts two processes with the ranks 0 and 1. Together they are a process group. Each process "
        "uses a device of its own, with its own replica. The processes exchange tensors in collectives only."
    )
    return _svg("One process per device", words, 720, 250, parts)


def hosts() -> str:
    """Two hosts with two workers each: chapter 7."""
    parts = []
    for host, x in ((0, 20), (1, 390)):
        parts += [_frame(x, 60, 310, 190, f"host {host}"), _box(x + 90, 92, 130, 46, "agent\n(torchrun)")]
        for local in (0, 1):
            rank = 2 * host + local
            left = x + 18 + 142 * local
            parts += [_box(left, 180, 132, 50, f"worker, rank {rank}\nlocal rank {local}", PALETTE[rank])]
            parts.append(_arrow((x + 155, 138), (left + 66, 178)))
    parts += [_box(295, 8, 130, 38, "rendezvous")]
    parts += [_arrow((175, 92), (175, 27), (293, 27)), _arrow((545, 92), (545, 27), (427, 27))]
    parts += [_text(170, 22, "registers", kind="small"), _text(545, 22, "registers", kind="small")]
    parts.append(f'<path d="M330 205H390" stroke="{GREY}" stroke-width="6"/>')
    parts.append(
        _text(360, 272, "the cable between the hosts carries every collective of the four workers", kind="small")
    )
    words = (
        "Two hosts, each with one agent and two workers. The agents register at the rendezvous, which gives them "
        "the ranks 0 to 3 of their workers. Each agent starts its workers. A cable between the hosts carries "
        "their collectives."
    )
    return _svg("Hosts, agents, workers and the rendezvous", words, 720, 290, parts)


def _shape(algorithm: str, k: int, step: int, title: str, caption: str, words: str) -> str:
    """A step of an all-reduce, as the stepper of chapter 4 draws it."""
    shape = collective_shape(trace_collective("all_reduce", algorithm, k), step)
    height = float(shape.split('height="')[1].split('"')[0])
    inner = shape.replace("<svg ", '<svg x="20" y="8" ', 1)
    lines = [_text(230, height + 30 + 20 * i, line, kind="small") for i, line in enumerate(caption.split("\n"))]
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
    scale, left = 560 / step.seconds, 140
    parts = [_text(left - 14, 62 + 80 * lane, name, "end", "bold") for lane, name in ((0, "computes"), (1, "sends"))]
    for event in step.events:
        is_sent = event.kind == "all_reduce"
        x, width = left + scale * event.start_s, scale * (event.end_s - event.start_s) - 2
        parts.append(_box(x, 115 if is_sent else 35, width, 44, event.name, COLOURS[event.kind]))
    end = left + scale * (step.seconds - step.exposed_s)
    parts.append(f'<path class="line" stroke-dasharray="4 4" d="M{end:g} 20V175"/>')
    parts.append(
        _text(
            400,
            200,
            "buckets 0 and 1 are sent during the backward pass; the last one is not hidden",
            kind="small",
        )
    )
    words = (
        "One rank in time. Computing: the forward pass, then the backward pass in three parts. As soon as a part "
        "is done, the gradients of its bucket are sent, while the next part is computed. Sending the last bucket "
        "ends after the backward pass."
    )
    return _svg("One step of DistributedDataParallel in time", words, 720, 220, parts)


def normalisation() -> str:
    """Eight values, normalised together and in two shards: chapter 10."""
    values = (20, 45, 65, 110, 75, 140, 165, 180)
    parts, top, scale = [], 150, 0.5
    for column, (title, shards) in enumerate((("one device", (range(8),)), ("two replicas", (range(4), range(4, 8))))):
        left = 40 + 350 * column
        parts.append(_text(left + 145, 30, title, kind="bold"))
        for i, value in enumerate(values):
            device = int(i >= 4) if column else 0
            parts.append(
                f'<circle cx="{left + 20 + 36 * i}" cy="{top - scale * value:g}" r="7" fill="{PALETTE[device]}"/>'
            )
        for device, shard in enumerate(shards):
            mean = sum(values[i] for i in shard) / len(shard)
            y, first, last = top - scale * mean, left + 20 + 36 * shard[0] - 14, left + 20 + 36 * shard[-1] + 14
            parts.append(f'<path d="M{first} {y:g}H{last}" stroke="{PALETTE[device]}" stroke-width="3"/>')
            parts.append(_text(first + 4, y + (18 if device else -8), f"mean {mean:g}", "start", "small"))
    parts.append(
        _text(
            360,
            190,
            "each replica subtracts the mean of its own four values, and divides by their deviation",
            kind="small",
        )
    )
    words = (
        "Eight values twice. On one device all eight have one mean. On two replicas the first four and the last "
        "four have means of their own, so the same value becomes a different one."
    )
    return _svg("What a replica normalises by", words, 720, 210, parts)


def lanes() -> str:
    """What three ranks have called, where rank 1 leaves out a collective: chapter 12."""
    records = simulated_records(Job("missing", 1, step=1), 3)
    called = {
        rank: [str(call.sizes[0]) if call.sizes else "" for call in r.collectives][:6] for rank, r in records.items()
    }
    names = {rank: [call.name for call in r.collectives][:6] for rank, r in records.items()}
    agree = 0
    while (
        all(agree < len(calls) for calls in called.values())
        and len({(names[r][agree], called[r][agree]) for r in called}) == 1
    ):
        agree += 1
    parts = []
    for rank in records:
        y = 20 + 62 * rank
        parts.append(_text(20, y + 28, f"rank {rank}", "start", "bold"))
        for i, name in enumerate(names[rank]):
            size = called[rank][i].strip("(),")
            parts.append(
                _box(
                    90 + 104 * i,
                    y,
                    96,
                    46,
                    f"{name}\n[{size}]" if size else name,
                    PALETTE[2] if i < agree else PALETTE[1],
                )
            )
    parts.append(
        _text(
            90,
            228,
            "time →    green: all ranks have made this call; orange: they wait for each other",
            "start",
            "small",
        )
    )
    words = (
        f"Three ranks, one lane each. Their first {agree} collectives are the same. Then the ranks 0 and 2 have "
        "called one collective and rank 1 a different one, since it left one out. All three wait."
    )
    return _svg("What the ranks of a job have called", words, 720, 246, parts)


def who_holds_what() -> str:
    """What each of four ranks holds, in the four stages of ZeRO: chapter 13."""
    kinds = ("parameters", "gradients", "optimizer's state")
    stages = (("0: plain", 0), ("1: state", 1), ("2: gradients", 2), ("3: parameters", 3))
    parts = [_text(20, 34, "stage", "start", "bold")]
    parts += [_text(205 + 135 * rank, 34, f"rank {rank}", kind="bold") for rank in range(4)]
    for row, (name, sharded) in enumerate(stages):
        y = 54 + 66 * row
        parts.append(_text(20, y + 27, name, "start"))
        for rank in range(4):
            for i, colour in enumerate(PALETTE[:3]):
                x, at = 150 + 135 * rank, y + 16 * i
                parts.append(_box(x, at, 112, 12))
                is_part = i >= 3 - sharded  # the state is the first kind that is sharded, the parameters the last
                parts.append(_box(x + 28 * rank * is_part, at, 28 if is_part else 112, 12, "", colour))
    for i, (kind, colour) in enumerate(zip(kinds, PALETTE[:3], strict=True)):
        parts += [_box(150 + 180 * i, 326, 28, 12, "", colour), _text(186 + 180 * i, 337, kind, "start", "small")]
    words = (
        "Four ranks in four columns, a row per stage. In stage 0 each rank holds all parameters, all gradients and the "
        "whole state of the optimizer. In stage 1 each rank holds a quarter of the state, another one on each rank. In "
        "stage 2 it holds a quarter of the gradients as well, and in stage 3 a quarter of the parameters as well."
    )
    return _svg("Who holds what: plain data parallelism and the three stages of ZeRO", words, 720, 356, parts)


DRAWINGS = {
    "five-phases": five_phases,
    "four-operations": four_operations,
    "processes": processes,
    "hosts": hosts,
    "ring": ring,
    "tree": tree,
    "step-timeline": step_timeline,
    "normalisation": normalisation,
    "lanes": lanes,
    "who-holds-what": who_holds_what,
}


def main() -> None:
    """Write all drawings."""
    FOLDER.mkdir(exist_ok=True)
    for name, draw in DRAWINGS.items():
        (FOLDER / f"{name}.svg").write_text(draw(), encoding="utf-8", newline="\n")
        print(FOLDER / f"{name}.svg")


if __name__ == "__main__":
    main()
