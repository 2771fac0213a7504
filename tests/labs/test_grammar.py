"""The grammar of figures, docs/figures.md, held by every figure: made from small real objects, light and dark."""

import importlib
import json
import math
import re
from pathlib import Path

import pytest
import torch

pytest.importorskip("plotly")

from d2lite import figures  # noqa: E402
from d2lite.costs import Device, all_reduce_seconds, find_link
from d2lite.figures import alternative_text, palette  # noqa: E402
from d2lite.figures.figure_layout import MOST_LABELS  # noqa: E402
from d2lite.labs.chapter_01 import (
    all_ways,
    partition_figure,
    sizes_of,  # noqa: E402
    traffic_bars,
)
from d2lite.labs.chapter_04 import (
    all_reduce_figure,
    collective_figure,
    trace_collective,  # noqa: E402
)
from d2lite.labs.chapter_07 import CAUSES, Job, simulated_records  # noqa: E402
from d2lite.labs.chapter_08 import Setup, efficiency_figure, predict_scaling, predicted_and_measured, step_figure
from d2lite.labs.chapter_09 import Arm, Trial, bands_figure, heat_map_figure, intervals_figure  # noqa: E402
from d2lite.labs.chapter_10 import shard_normalisation_figure
from d2lite.labs.chapter_11 import History, divergence_figure, drift_figure, find_divergence  # noqa: E402
from d2lite.labs.chapter_12 import sequence_figure
from d2lite.labs.chapter_13 import MEMORY_MODELS, memory_bars, predict_memory
from d2lite.labs.chapter_14 import rank_traffic_figure
from d2lite.labs.chapter_16 import Mesh, mesh_step_figure, predict_mesh_step
from d2lite.profiling import CollectiveCall  # noqa: E402
from d2lite.trace import Event  # noqa: E402
from d2lite.training import Run  # noqa: E402
from d2lite.widgets import Animator  # noqa: E402
from tests.labs.chapter_11.test_divergence import run as divergence_run  # noqa: E402
from tools.cluster import link_figures, speed  # noqa: E402

ROOT = Path(__file__).parents[2]
LAYERS = sizes_of("LeNet", 256)
SCALED = {k: predict_scaling(Setup("LeNet", 256), k) for k in (1, 8)}
RUNS = [
    Run(
        settings={"num_gpus": k},
        devices=f"{k}",
        dataset="toys",
        num_examples=60,
        losses=[2.0, 1.0],
        accuracies=[0.71, 0.78],
        seconds=[1.0, 2.0],
    )
    for k in range(1, 7)
]
ARMS = ("A: 64, lr 0.1", "B: 128, lr 0.2", "64, lr 0.1, decay", "128, lr 0.2, decay")
TRIALS = {
    name: [Trial(Arm(name), seed, [0.5 + 0.01 * seed, 0.8 - 0.02 * i]) for seed in (0, 1)]
    for i, name in enumerate(ARMS)
}
GRID = {(size, lr): 0.84 - abs(size / 300 - lr) / 2 for size in (32, 128, 512) for lr in (0.1, 0.4, 1.6)}
KEPT = json.loads((ROOT / "benchmarks" / "results" / "cluster.json").read_text())
ETHERNET = find_link("Ethernet 25 Gb/s, RDMA")
MESH_STEP = predict_mesh_step(MEMORY_MODELS[2], Mesh(2, 2, 4), 16, Device(4e14), ETHERNET)
STEP = [
    Event(rank=rank, kind=kind, name=name, start_s=start, end_s=end, n_bytes=n_bytes)
    for rank in (0, 1)
    for kind, name, start, end, n_bytes in (
        ("data", "data", 0.0, 0.004 + 0.004 * rank, 0),
        ("forward", "forward", 0.004 + 0.004 * rank, 0.020, 0),
        ("backward", "backward", 0.020, 0.050, 0),
        ("wait", "wait", 0.030, 0.031, 0),
        ("all_reduce", "bucket 0", 0.031, 0.042, 10**6),
        ("all_reduce", "bucket 1", 0.052, 0.062, 10**6),
        ("update", "update", 0.062, 0.066, 0),
    )
]


def records(cause, k=2):
    return simulated_records(Job(cause, 0, 1), k)


def animator():
    drawn = Animator("replicas", "test accuracy", ["mean of the seeds", "lowest"], xlim=[1, 32], xscale="log")
    for replicas, values in ((1, (0.71, 0.69)), (2, (0.70, 0.69)), (32, (0.45, 0.41))):
        drawn.X = [[*xs, float(replicas)] for xs in drawn.X or ([], [])]
        drawn._Y = [[*ys, value] for ys, value in zip(drawn._Y or ([], []), values, strict=True)]
    return drawn._figure()


FIGURES = {
    "all_reduce_figure": lambda: all_reduce_figure(
        {name: lambda n, name=name: all_reduce_seconds(name, 64, n, ETHERNET) for name in ("naive", "tree", "ring")},
        "64 devices, Ethernet 25 Gb/s",
    ),
    "bands_figure": lambda: bands_figure(TRIALS, 12_000, "examples seen", "mean and range of 2 seeds"),
    "bands_figure, no trial": lambda: bands_figure({"a": []}, 10, "seconds of training"),
    "collective_figure": lambda: collective_figure(trace_collective("all_reduce", "ring", 4), 3),
    "curves": lambda: figures.curves(RUNS[:3]),
    "curves, equal": lambda: figures.curves(RUNS),
    "divergence_figure": lambda: divergence_figure(find_divergence(divergence_run(), divergence_run())),
    "drift_figure": lambda: drift_figure({"a": History([1.0], [0.1], [0.2], [1.0])}, "2 replicas"),
    "efficiency_figure": lambda: efficiency_figure(SCALED, 8),
    "heat_map_figure": lambda: heat_map_figure([32, 128, 512], [0.1, 0.4, 1.6], GRID, "accuracy (%), toys"),
    "intervals_figure": lambda: intervals_figure(
        {
            name: ([0.7, 0.71, 0.69], [0.7 + gain, 0.72 + gain, 0.69 + gain])
            for name, gain in zip(ARMS, (0, 0.01, 0.05, 0), strict=True)
        },
        "against 64, lr 0.1",
    ),
    "rank_traffic_figure": lambda: rank_traffic_figure(
        [[CollectiveCall("all_reduce", (0, 1), 4000.0)], [CollectiveCall("all_reduce", (0, 1), 4000.0)], []], "sent"
    ),
    "losses": lambda: figures.losses(RUNS[:2]),
    "memory_bars": lambda: memory_bars(
        {f"stage {stage}": predict_memory(7.5e9, stage=stage, k=64, activations_n_bytes=4e9) for stage in range(4)},
        24e9,
        "What a rank holds",
    ),
    "mesh_step_figure": lambda: mesh_step_figure({"2 x 2 x 4": MESH_STEP, "another": 12.5, "no mesh": None}),
    "partition_figure": lambda: partition_figure("pipeline", LAYERS, 2),
    "predicted_and_measured": lambda: predicted_and_measured(
        {(48, 1): 0.02, (96, 1): 0.04, (48, 2): 0.03}, {(48, 1): 0.021, (96, 1): 0.04, (48, 2): 0.03}, "LeNet: a step"
    ),
    **{f"sequence_figure, {cause}": lambda cause=cause: sequence_figure(records(cause)) for cause in CAUSES},
    "sequence_figure, 4 ranks": lambda: sequence_figure(records("size", 4)),
    "shard_normalisation_figure": lambda: shard_normalisation_figure(torch.arange(1.0, 17.0) ** 2, 4, "pixel"),
    "step_figure": lambda: step_figure(SCALED[1], SCALED[8]),
    "timeline_figure": lambda: figures.timeline_figure(STEP, "one step on 2 ranks, measured"),
    "timeline_figure, explained": lambda: figures.timeline_figure(
        {"1 rank": [e for e in STEP if e.rank == 0 and e.kind not in ("wait", "all_reduce")], "2 ranks": STEP},
        "LeNet, minibatch 192: step 5, measured",
        explain=True,
    ),
    "traffic_bars": lambda: traffic_bars(all_ways(LAYERS, 2), "all ways"),
    "Animator": animator,
    "bandwidth_figure": lambda: link_figures.bandwidth_figure(KEPT["links"]),
    "hosts_explorer": lambda: link_figures.hosts_explorer(speed.predicted_step_s).figure,
}
PAGES = {"light": ("#ffffff", "#212121"), "dark": ("#111111", "#e0e0e0")}  # JupyterLab's ground and its text


def test_every_figure_function_is_tested_here():
    labs = [importlib.import_module(f"d2lite.labs.{path.name}") for path in (ROOT / "book/labs").glob("chapter_*")]
    names = {*figures.__all__, *(name for lab in labs for name in lab.__all__)}
    made = {name for name in names if name.endswith(("_figure", "_bars"))} | {"curves", "losses"}
    assert made <= {name.partition(",")[0] for name in FIGURES}


def seen(colour, ground):
    """The colour that a reader sees where a mark or a text is drawn on a ground."""
    names = {"white": "#ffffff", "black": "#000000"}
    found = re.fullmatch(r"rgba\((\d+),(\d+),(\d+),([\d.]+)\)", names.get(colour, colour).replace(" ", ""))
    if not found:
        return names.get(colour, colour)
    under = [int(ground[i : i + 2], 16) for i in (1, 3, 5)]
    alpha = float(found[4])
    parts = (
        round(alpha * int(part) + (1 - alpha) * base) for part, base in zip(found.groups()[:3], under, strict=True)
    )
    return "#" + "".join(f"{part:02x}" for part in parts)


def each(value, n):
    """n values of what plotly takes as one value or as a list."""
    return list(value) if isinstance(value, (list, tuple)) else [value] * n


def texts_on_grounds(figure):
    """(text, its size, its colour, colour of the ground or None for the page, opacity) of texts inside marks."""
    for trace in figure.data:
        if trace.type == "bar" and trace.text is not None and trace.textposition != "none":
            n = len(trace.x)
            rows = [each(v, n) for v in (trace.text, trace.insidetextfont.color, trace.marker.color)]
            for text, ink, ground, opacity in zip(*rows, each(trace.marker.opacity, n), strict=True):
                yield text, trace.insidetextfont.size, ink, ground, opacity
        elif trace.type == "heatmap":
            for _, ground in trace.colorscale:
                yield "cell", trace.textfont.size, trace.textfont.color, ground, None
    for note in figure.layout.annotations:
        if note.text:
            yield note.text, note.font.size or figure.layout.font.size, note.font.color, note.bgcolor, None


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_keeps_the_grammar(name):
    figure = FIGURES[name]()
    layout = figure.layout
    axes = [layout[axis] for axis in layout if re.fullmatch(r"[xy]axis\d*", axis)]
    is_log = {axis.plotly_name for axis in axes if axis.type == "log"}

    sizes = [layout.font.size, layout.title.font.size, layout.legend.font.size]
    sizes += [size for axis in axes for size in (axis.title.font.size, axis.tickfont.size)]
    assert min(size for size in sizes if size) >= 14, "text of less than 14 pixels"
    for text, size, ink, ground, opacity in texts_on_grounds(figure):
        assert size >= 13, f"{text!r} has {size} pixels"
        assert opacity in (None, 1), f"{text!r} is on a mark that the page shines through"
        for page, (paper, own) in PAGES.items():
            under = seen(ground or palette.TRANSPARENT, paper)
            text_colour = own if ink in (None, palette.GREY) else seen(ink, under)  # figure.TEXT_RULE
            assert palette.contrast(text_colour, under) >= 4.5, f"{text!r} cannot be read on a {page} page"

    with_name = {t.name for t in figure.data if t.showlegend is not False and t.name}
    if len(with_name) <= MOST_LABELS:
        assert layout.showlegend is False or not with_name, "a legend, where names fit at the ends of the curves"
        said = re.sub("<br>\u2003? *", " ", " ".join(note.text or "" for note in layout.annotations))
        curves = [t for t in figure.data if t.name in with_name and t.type == "scatter" and len(t.x)]
        for name in [re.split(" \\(|, ", curve.name)[0].rpartition(" · ")[2] for curve in curves]:
            assert name in said, f"{name!r} is not named in the figure"

    for trace in figure.data:
        if trace.type == "bar":
            own = {(trace.xaxis or "x").replace("x", "xaxis"), (trace.yaxis or "y").replace("y", "yaxis")}
            assert not own & is_log, "bars on a logarithmic axis: their lengths mean nothing"
    assert not any(isinstance(v, float) and math.isnan(v) for axis in axes for v in axis.range or ())
    assert alternative_text.alternative_text(figure).count(" ") > 3
    assert json.dumps(figure.to_plotly_json(), default=repr)


@pytest.mark.parametrize(
    ("name", "places"),
    [("Animator", [1, 2, 32]), ("bandwidth_figure", sorted({r["mbit"] for r in KEPT["links"] if r["mbit"]}))],
)
def test_ticks_are_where_it_was_measured(name, places):
    assert list(FIGURES[name]().layout.xaxis.tickvals) == places


def test_accuracies_have_axes_that_fit_them():
    for name in ("bands_figure", "Animator", "curves"):
        low, high = FIGURES[name]().layout.yaxis.range
        assert high - low < 0.6


def test_equal_curves_are_both_seen():
    for one, other in zip(FIGURES["curves, equal"]().data, FIGURES["curves, equal"]().data[1:], strict=False):
        assert (one.line.dash, one.line.color) != (other.line.dash, other.line.color)


def test_the_page_has_the_colours_of_the_code():
    words = (ROOT / "docs" / "figures.md").read_text("utf-8")
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in words.splitlines() if line.startswith("| `#")
    ]
    told = {row[0].strip("`").split("`")[0]: row for row in rows}
    assert list(told) == [*palette.PALETTE, palette.RED]
    for i, colour in enumerate(palette.PALETTE):
        assert told[colour][1] == str(i)
        for column, meanings in ((2, palette.COLOURS), (3, palette.COLLECTIVE_COLOURS)):
            mine = [meaning for meaning, its in meanings.items() if its == colour]
            assert re.findall("`(.*?)`", told[colour][column]) == mine
