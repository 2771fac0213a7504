"""What a learner names is shown as written, wherever it comes into a figure."""

import json
import xml.etree.ElementTree as ET

import pytest
import torch
from torch import nn

from d2lite import Animator
from d2lite.figures import figure_layout, training_curves
from d2lite.figures.labels import escape_label
from d2lite.figures.svg import figure_svg
from d2lite.figures.table import runs_table
from d2lite.figures.timeline import timeline_figure
from d2lite.labs.chapter_01.partition_figure import partition_figure, traffic_bars
from d2lite.labs.chapter_01.partitioning import layers_of
from d2lite.labs.chapter_04.collective_stepper import trace_collective, trace_summary
from d2lite.labs.chapter_04.collective_steps import collective_figure
from d2lite.labs.chapter_08.scaling_figure import predicted_and_measured
from d2lite.trace import Event
from d2lite.training.run_record import Run

EVIL = """<b>x</b><br><a href="https://example.org">%{y}</a>&lt;"""


def test_plain_text_is_what_plotly_shows_as_written():
    assert escape_label('a < b & "c" > d') == 'a &lt; b &amp; "c" &gt; d'
    assert escape_label("%{x} of 100%") == "%&#123;x} of 100%" and escape_label("&lt;") == "&amp;lt;"
    assert escape_label("k=2 · lr 0.2") == "k=2 · lr 0.2" and escape_label(3) == "3"


def texts(figure):
    return json.dumps(figure if isinstance(figure, dict) else figure.to_plotly_json(), default=repr)


def evil_runs():
    settings = {"num_gpus": EVIL, "lr": EVIL}
    curves = {EVIL: {"x": [1], "y": [0.5]}, "loss": {"x": [1], "y": [0.5], "quantity": EVIL}}
    return [
        Run(
            settings=settings,
            devices=EVIL,
            dataset=EVIL,
            num_examples=10,
            losses=[1.0],
            accuracies=[0.5],
            seconds=[1.0],
            curves=curves,
            status=EVIL,
        )
    ] * 2


def partition(way):
    net = nn.Sequential()
    net.add_module(EVIL.replace(".", ""), nn.Linear(4, 4))
    net.add_module("second", nn.Linear(4, 4))
    net[0].__class__ = type(EVIL, (nn.Linear,), {})
    return partition_figure(way, layers_of(net, torch.ones(8, 4)), 2)


def losing(x):
    return Run(settings={"x": x}, devices="", dataset="", num_examples=10, losses=[1.0])


EVENTS = [
    Event(rank=0, kind=EVIL, name=EVIL, start_s=0.0, end_s=0.01),
    Event(rank=1, kind="forward", name=EVIL, start_s=0.0, end_s=0.01),
]
FIGURES = {
    "curves": lambda: training_curves.curves(evil_runs()),
    "losses": lambda: training_curves.losses([losing(f"<b>x</b>%{{y}}{i}") for i in range(2)]),
    "layout": lambda: figure_layout.layout(EVIL, EVIL, EVIL),
    "timeline": lambda: timeline_figure({EVIL: EVENTS}, EVIL, explain=True),
    "scaling": lambda: predicted_and_measured({(1, 1): 1.0}, {}, EVIL),
    "traffic": lambda: traffic_bars({}, EVIL, EVIL),
    "animator": lambda: Animator(EVIL, EVIL, [EVIL])._figure(),
} | {way: lambda way=way: partition(way) for way in ("data", "pipeline", "tensor")}


@pytest.mark.parametrize("name", FIGURES)
def test_no_figure_takes_a_name_for_markup(name):
    shown = texts(FIGURES[name]())
    assert "&lt;b&gt;x" in shown and "%&#123;y" in shown
    assert "<b>x" not in shown and "<a " not in shown and "%{y}</a>" not in shown and "%{y}&lt;/a" not in shown


def test_a_collective_of_any_name():
    trace = trace_collective("all_reduce", "ring", 2)
    trace.algorithm = EVIL
    shown = texts(collective_figure(trace, 0))
    assert "&lt;b&gt;x" in shown and "<b>x" not in shown
    assert "<b>&lt;b&gt;x" in trace_summary(trace) and "<a" not in trace_summary(trace)


def test_the_table_has_no_markup_of_a_learner_s():
    shown = runs_table(evil_runs())
    assert "<b>" not in shown and "<a" not in shown and "&lt;b&gt;x" in shown
    whatever = Run(settings={}, devices=5, dataset=5, num_examples=10)
    assert '<td class="data">5</td>' in runs_table([whatever])  # it is shown


def test_a_picture_holds_names_as_they_are_written():
    animator = Animator(EVIL, EVIL + "\x1b[0m\ud800", legend=[EVIL])
    animator.X, animator._Y = [[1.0]], [[0.5]]
    picture = figure_svg(animator._figure())
    found = ["".join(element.itertext()) for element in ET.fromstring(picture.encode("utf-8")).iter()]
    assert EVIL in found and EVIL + "\ufffd[0m\ufffd" in found
    assert any(text.startswith("● <b>x</b>") for text in found)  # at the end of the curve, in several lines
