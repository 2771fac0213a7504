"""A figure as a picture and in words: from its data, well formed, in colours that can be read."""

import math
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from d2lite import figures
from d2lite.figures.alternative_text import alternative_text
from d2lite.figures.figure_layout import line
from d2lite.figures.palette import INK
from d2lite.figures.svg import figure_svg
from d2lite.labs.chapter_01 import partition_figure, sizes_of, traffic_bars
from d2lite.labs.chapter_01.partitioning import all_ways
from d2lite.labs.chapter_04 import collective_figure, trace_collective
from d2lite.labs.chapter_08 import efficiency_figure, predicted_and_measured, step_figure
from d2lite.labs.chapter_08.scaling import Setup, predict_scaling
from d2lite.trace import Event
from d2lite.training.run_record import Run

LAYERS = sizes_of("LeNet", 256)
EVENTS = [Event(rank=r, kind="forward", name="f", start_s=0.0, end_s=0.01, n_bytes=0) for r in (0, 1)]
MANY = {k: predict_scaling(Setup("LeNet", 256), k) for k in (1, 8)}
ALL = {
    "collective": lambda: collective_figure(trace_collective("all_reduce", "ring", 4), 3),
    "no run": lambda: figures.curves([]),
    "bars": lambda: traffic_bars(all_ways(LAYERS, 2), "a <b> & more"),
    "split": lambda: partition_figure("pipeline", LAYERS, 2),
    "timeline": lambda: figures.timeline_figure(EVENTS),
    "measured": lambda: predicted_and_measured({(256, 1): 0.02, (512, 1): 0.04}, {(256, 1): 0.021}, "step"),
    "efficiency": lambda: efficiency_figure(MANY, 8),
    "step": lambda: step_figure(MANY[1], MANY[8]),
}


@pytest.mark.parametrize("name", ALL)
def test_a_picture_is_well_formed_and_stays_in_its_frame(name):
    root = ET.fromstring(figure_svg(ALL[name]()))
    width, height = float(root.get("width")), float(root.get("height"))
    ns = "{http://www.w3.org/2000/svg}"
    assert root.find(f"{ns}rect").get("fill") == "white"
    for text in root.iter(f"{ns}text"):
        assert 0 <= float(text.get("x")) <= width and 0 <= float(text.get("y")) <= height
        assert text.get("fill") in (INK, "black", "white")  # on white, or on a plate
    for bar in root.iter(f"{ns}rect"):
        assert float(bar.get("x", 0)) >= 0 and float(bar.get("x", 0)) + float(bar.get("width")) <= width


def texts_and_strokes(figure):
    root = ET.fromstring(figure_svg(figure))
    strokes = [path.get("stroke") for path in root.iter("{http://www.w3.org/2000/svg}path")]
    return ["".join(text.itertext()) for text in root.iter("{http://www.w3.org/2000/svg}text")], strokes


def test_a_picture_holds_the_curves_and_their_names():
    runs = [
        Run(
            settings={"num_gpus": k, "lr": 0.2},
            devices="",
            dataset="toys",
            num_examples=240,
            losses=[],
            accuracies=[0.5, 0.75],
            seconds=[1.0, 1.0],
        )
        for k in (1, 2)
    ]
    figure = figures.curves(runs)
    texts, strokes = texts_and_strokes(figure)
    assert {"epoch", "test accuracy", "● 1 device", "● 2 devices", "60%"} <= set(texts)
    assert figure.data[0].line.color in strokes and figure.data[1].line.color in strokes


@pytest.mark.parametrize("y", [[], [0.5], [0.5, math.nan, 0.7], [1.0, 1.0], [math.inf, 1.0]])
def test_a_picture_of_few_or_missing_points(y):
    trace = line("a", np.arange(len(y)), np.array(y), ("#000000", "solid", "circle"))
    picture = figure_svg(figures.Figure([trace], figures.layout()))
    assert "nan" not in picture and "inf" not in picture and ET.fromstring(picture) is not None


def test_words_tell_the_numbers():
    text = alternative_text(ALL["measured"]())
    assert text.startswith("step. x axis: examples of a minibatch") and "from 20 at 256 to 40 at 512" in text
    assert "device 0: 4 3 2 1; device 1: 1 4 3 2; device 2: 2 1 4 3; device 3: 3 2 1 4" in alternative_text(
        ALL["collective"]()
    )
    assert "No data yet" in alternative_text(figures.curves([]))


@pytest.mark.parametrize(
    ("name", "said", "unsaid"),
    [
        (
            "collective",
            ["device 0 has sent 252 KB", "sent and added: device 0 to device 1"],
            ["points, from", "0: 252"],
        ),
        (
            "bars",
            [
                "data parallelism, the least: 1.03 MB; pipeline parallelism, 1.59 × the least: 1.64 MB",
                "computed from shapes",
            ],
            ["1 TB", "0: "],
        ),
        ("step", ["8 GPUs: 0.439 ms", "computing: 0.3839 ms on 1 GPU; 0.3839 ms on 8 GPUs"], []),
        ("efficiency", ["efficiency: 2 points", "the chosen number of GPUs: 0.8744 at 8"], ["curve"]),
    ],
)
def test_bars_and_marks_are_named_by_their_labels(name, said, unsaid):
    text = alternative_text(ALL[name]())
    assert all(words in text for words in said) and not any(words in text for words in unsaid)


def test_the_label_of_an_axis_names_a_bar_of_any_figure():
    bars = figures.Figure().add_bar(x=[1, 2], y=[3.0, 4.0], name="seconds")
    bars.update_xaxes(tickvals=[1, 2], ticktext=["one <b>GPU</b>", "two GPUs"])
    assert "seconds one  GPU: 3. seconds two GPUs: 4." in alternative_text(bars)


def test_a_way_that_is_not_possible_is_said():
    text = alternative_text(traffic_bars(all_ways(LAYERS, 1000)))
    assert "data parallelism: not possible with so many devices" in text


def test_the_lanes_of_devices_that_one_process_drives():
    figure = figures.timeline_figure(EVENTS, who="device")
    assert set(figure.data[0].y) == {"device 0 · computes", "device 1 · computes"}


def test_a_figure_in_a_notebook_has_a_picture_and_words(monkeypatch):
    import IPython.display
    import plotly.io as pio

    shown = []
    monkeypatch.setattr(pio.renderers, "default", "plotly_mimetype")
    monkeypatch.setattr(IPython.display, "display", lambda bundle, **_: shown.append(bundle))
    ALL["measured"]()._ipython_display_()
    words, figure = shown
    assert 'alt="step. x axis' in words["text/html"]
    assert "application/vnd.plotly.v1+json" in figure and "image/svg+xml;base64" in figure["text/html"]
    assert len(figure["text/html"]) < 100_000  # a picture, and not plotly's code


def test_a_name_that_the_page_gives_a_trace_is_not_said():
    bar = {"type": "bar", "x": ["k=2"], "y": [1.0]}
    without, given, own = (
        alternative_text(figures.Figure([{**bar, **name}])) for name in ({}, {"name": "trace 0"}, {"name": "trace me"})
    )
    assert given == without and "k=2" in without and "trace me" in own


def texts(picture):
    """The texts of a picture: {text: (x, y)}."""
    found = ET.fromstring(picture).iter("{http://www.w3.org/2000/svg}text")
    return {"".join(text.itertext()): (float(text.get("x")), float(text.get("y"))) for text in found}


def test_a_text_in_a_colour_of_its_own_is_shown_as_written():
    figure = figures.Figure([{"type": "scatter", "x": [1, 2], "y": [1, 2]}])
    figure.update_layout(title_text='<span style="color:#123456">a &lt;b&gt; &amp; c</span>: x &lt; y')
    picture = figure_svg(figure)
    assert "a <b> & c: x < y" in texts(picture)
    (part,) = ET.fromstring(picture).iter("{http://www.w3.org/2000/svg}tspan")
    assert (part.text, part.get("fill")) == ("a <b> & c", "#123456")


def test_ticks_stand_where_the_figure_has_them():
    figure = figures.Figure([{"type": "scatter", "x": np.arange(1, 13), "y": np.ones(12)}])
    figure.update_xaxes(range=[0.7, 12.3], tick0=1, dtick=2)
    assert {"1", "3", "5", "7", "9", "11"} <= texts(figure_svg(figure)).keys()
    assert "10" not in texts(figure_svg(figure))


def test_a_name_stands_at_the_end_of_its_curve_on_a_logarithmic_axis():
    figure = figures.Figure([{"type": "scatter", "name": "drift", "x": [1, 2], "y": [1e-6, 1e-2], "showlegend": True}])
    figure.update_yaxes(type="log", range=[-7, 0], tickvals=[1e-2], ticktext=["here"])
    figure.update_layout(height=300, margin={"t": 40, "b": 40})
    figures.label_ends(figure, ["drift"])
    places = texts(figure_svg(figure))
    (name,) = [text for text in places if "drift" in text]
    assert abs(places[name][1] - places["here"][1]) < 2


def test_cells_have_the_texts_of_the_figure():
    few, many = (collective_figure(trace_collective("all_reduce", "ring", k), 2) for k in (4, 16))
    assert figure_svg(few).count(">1</text>") > 4
    assert figure_svg(many).count(">1</text>") <= 2  # 16 chunks have no numbers, a row and a column may
