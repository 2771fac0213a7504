"""The stepper: every number in its figure is the trace's, and the figure follows the controls."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from d2lite.collectives.on_devices import all_reduce
from d2lite.collectives.plans import ALGORITHMS, COLLECTIVES
from d2lite.costs.alpha_beta import lower_bound_n_bytes
from d2lite.trace import Send, Trace
from notebook_ranks.shared.format import format_bytes

pytest.importorskip("plotly")
pytest.importorskip("ipywidgets")

from d2lite.labs.chapter_04.collective_shapes import collective_shape  # noqa: E402
from d2lite.labs.chapter_04.collective_stepper import CollectiveStepper, trace_collective, trace_summary  # noqa: E402
from d2lite.labs.chapter_04.collective_steps import MORE, NONE, SOME, WHOLE, collective_figure, least_n_bytes  # noqa: E402


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) for i in (1, 3, 5)] if isinstance(colour, str) else colour
    linear = [c / 255 / 12.92 if c / 255 <= 0.04045 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in parts]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def arrows(figure):
    """[(src, dst, chunk, adds)] as they are drawn."""
    found = []
    for trace, adds in ((figure.data[1], True), (figure.data[2], False)):
        assert trace.name == ("sent and added" if adds else "sent and kept")
        for i in range(0, len(trace.x), 3):
            src, dst = trace.y[i], trace.y[i + 1]
            assert trace.x[i] == trace.x[i + 1] and trace.x[i + 2] is trace.y[i + 2] is None
            assert trace.marker.symbol[i + 1] == "arrow"
            assert trace.marker.angle[i + 1] % 360 == (180 if dst > src else 0)  # device 0 is the row on top
            found.append((src, dst, int(trace.x[i]), adds))
            assert trace.x[i] % 1 > 0.6  # between the cells, not on them
    return sorted(found)


@given(
    collective=st.sampled_from(COLLECTIVES),
    algorithm=st.sampled_from(ALGORITHMS),
    k=st.integers(1, 8),
    n=st.integers(0, 50),
)
@settings(max_examples=12)
def test_numbers_in_the_figure_are_the_trace_s(collective, algorithm, k, n):
    trace = trace_collective(collective, algorithm, k, torch.zeros(n))
    states, shapes = trace.replay(), set()
    for step in range(len(trace.steps) + 1):
        figure = collective_figure(trace, step)
        cells, _, _, bars, bound = figure.data
        drawn = [[count for count in row if count is not None] for row in cells.z]
        assert drawn == [[len(held) for held in row] for row in states[step]]
        written = drawn if len(trace.chunk_n_bytes) <= 8 else [[]] * k  # more have no room on a narrow page
        assert [[text for text in row if text != ""] for row in cells.text] == written
        assert list(bars.x) == trace.sent_n_bytes(step)
        assert list(figure.layout.yaxis2.ticktext) == [format_bytes(sent) for sent in trace.sent_n_bytes(step)]
        sends = trace.steps[step - 1] if step else []
        assert arrows(figure) == sorted((s.src, s.dst, s.chunk, s.adds) for s in sends)
        hover = [text for trace in figure.data[1:3] for text in trace.customdata or () if text]
        texts = [f"device {s.src} to device {s.dst}: chunk {s.chunk}, {format_bytes(s.n_bytes)}" for s in sends]
        assert sorted(hover) == sorted(2 * texts)
        least = least_n_bytes(trace)
        assert list(bound.x) == [least, least] and format_bytes(least) in bound.name
        assert f"step {step} of {len(trace.steps)}" in figure.layout.title.text
        layout = figure.layout
        shapes.add((layout.height, str(layout.xaxis), str(layout.xaxis2), str(layout.yaxis), cells.x))
        assert layout.xaxis2.range[1] >= max([*trace.sent_n_bytes(), least])
    assert len(shapes) == 1  # nothing jumps from one step to the next


@given(st.sampled_from(ALGORITHMS), st.integers(2, 8))
@settings(max_examples=10)
def test_arrows_in_one_column_share_an_end_or_do_not_overlap(algorithm, k):
    trace = trace_collective("all_reduce", algorithm, k, torch.zeros(8))
    for step in range(1, len(trace.steps) + 1):
        lines = {}
        for drawn in collective_figure(trace, step).data[1:3]:
            for i in range(0, len(drawn.x), 3):
                lines.setdefault(drawn.x[i], []).append((drawn.y[i], drawn.y[i + 1]))
        for ends in lines.values():
            for a in ends:
                for b in ends:
                    apart = max(a) < min(b) or max(b) < min(a)
                    assert a == b or a[0] == b[0] or a[1] == b[1] or apart


def test_hover_texts_name_whose_contributions_a_cell_holds():
    figure = collective_figure(trace_collective("all_reduce", "ring", 4), 2)
    hover = [text for row in figure.data[0].customdata for text in row if text]
    assert "device 3, chunk 0: the contributions of devices 1, 2, 3" in hover
    assert "device 0, chunk 0: the contribution of device 0" in hover and len(hover) == 16
    figure = collective_figure(trace_collective("broadcast", "tree", 2), 0)
    assert figure.data[0].customdata[1][0] == "device 1, chunk 0: nothing yet"


def test_the_least_bytes():
    numbers = {collective: least_n_bytes(trace_collective(collective, "ring", 4)) for collective in COLLECTIVES}
    n = 336_000
    assert numbers["all_reduce"] == lower_bound_n_bytes(4, n) == 504_000
    assert numbers["reduce_scatter"] == numbers["all_gather"] == 252_000
    assert numbers["broadcast"] == numbers["reduce"] == n
    for algorithm in ALGORITHMS:
        for collective in COLLECTIVES:
            for k in (1, 3, 4):
                trace = trace_collective(collective, algorithm, k, torch.zeros(8))
                assert max(trace.sent_n_bytes()) >= least_n_bytes(trace)
    own = Trace(
        start=[[{0}], [{1}]], chunk_n_bytes=[4], steps=[[Send(step=0, src=0, dst=1, chunk=0, n_bytes=4, adds=True)]]
    )
    figure = collective_figure(own, 1)  # a schedule of one's own: nothing is known about it
    assert least_n_bytes(own) is None and figure.data[4].showlegend is False and not figure.data[4].x


def test_numbers_are_black_on_light_cells_and_the_page_shows_through():
    for colour in (NONE, SOME, MORE, WHOLE):
        assert (luminance(colour) + 0.05) / 0.05 >= 4.5
    figure = collective_figure(trace_collective("all_reduce", "ring", 8), 3)
    assert figure.data[0].textfont.color == "black"
    assert figure.layout.paper_bgcolor == figure.layout.plot_bgcolor == "rgba(0,0,0,0)"


def test_figures_that_cannot_be_are_refused():
    trace = trace_collective("all_reduce", "ring", 2)
    for step in (-1, 3, 1.5, "1"):
        with pytest.raises(ValueError, match="step: expected a whole number from 0 to 2, got"):
            collective_figure(trace, step)
    with pytest.raises(ValueError, match="trace: expected a Trace that a collective has filled, got an empty one"):
        collective_figure(Trace(), 0)
    with pytest.raises(ValueError, match="trace: expected at most 16 devices, got 17"):
        collective_figure(trace_collective("all_reduce", "naive", 17, torch.zeros(1)), 0)
    with pytest.raises(ValueError, match="collective: expected one of all_reduce, .* got 'sum'"):
        trace_collective("sum", "ring", 2)


def test_trace_collective_runs_the_collective_on_copies():
    tensor, trace = torch.ones(10, requires_grad=True), Trace()
    traced = trace_collective("all_reduce", "two-level", 4, tensor, per_host=2)
    all_reduce([torch.ones(10) for _ in range(4)], algorithm="two-level", trace=trace, per_host=2)
    assert traced == trace and tensor.tolist() == [1] * 10


def test_the_summary():
    assert "sends nothing" in trace_summary(trace_collective("all_reduce", "ring", 1))
    words = trace_summary(trace_collective("all_reduce", "parameter server", 8))
    assert words.startswith("<b>parameter server</b>, a tensor of n = 336 KB: 2 steps; the busiest device sends ")
    assert "2.35 MB = 7 n, 4 times the least possible, and all of them together 4.70 MB = 14 n." in words
    assert "504 KB = 1.5 n, the least that is possible" in trace_summary(trace_collective("all_reduce", "ring", 4))
    uneven = trace_summary(trace_collective("all_reduce", "ring", 4, torch.zeros(1001)))
    assert "hardly more than the least possible" in uneven
    assert "1 step; " in trace_summary(trace_collective("broadcast", "naive", 2))
    nothing = trace_summary(trace_collective("all_reduce", "naive", 2, torch.zeros(0)))
    assert "n = 0 B" in nothing and "sends 0 B" in nothing


def test_before_the_bound_is_known_the_stepper_does_not_tell_it():
    stepper = CollectiveStepper("ring", 4, shows_least=False)
    assert stepper.summary.value.endswith("sends 504 KB = 1.5 n, and all of them together 2.02 MB = 6 n.")
    figure = collective_figure(stepper.trace, 2, shows_least=False)
    assert not figure.data[4].x and figure.data[4].showlegend is False
    assert not [text.text for text in figure.layout.annotations or () if "at least" in text.text]
    stepper.drawn_as.value = "grid"
    assert not stepper.figure.data[4].x


def shown(stepper):
    """The figure without what a widget adds to it."""
    return [trace.to_plotly_json() | {"uid": None} for trace in stepper.figure.data], stepper.figure.layout.title.text


def test_the_stepper_follows_its_controls():
    stepper = CollectiveStepper()
    assert (stepper.algorithm.value, stepper.k.value, stepper.step.value, stepper.step.max) == ("ring", 4, 0, 6)
    for algorithm, k, step in (("tree", 8, 5), ("ring both ways", 3, 4), ("ring", 1, 0), ("naive", 2, 1)):
        stepper.algorithm.value, stepper.k.value = algorithm, k
        assert stepper.trace == trace_collective("all_reduce", algorithm, k)
        assert stepper.step.max == stepper.play.max == len(stepper.trace.steps) and stepper.step.value == 0
        stepper.step.value = step
        wanted = collective_figure(stepper.trace, step)
        traces, title = shown(stepper)
        assert traces == [trace.to_plotly_json() | {"uid": None} for trace in wanted.data]
        assert title == wanted.layout.title.text and stepper.summary.value == trace_summary(stepper.trace)
        assert stepper.figure.layout.yaxis2.ticktext == wanted.layout.yaxis2.ticktext
        assert stepper.figure.layout.height == wanted.layout.height
    link = stepper._link  # the page moves the slider as it plays, without the kernel
    assert link.source == (stepper.play, "value") and link.target == (stepper.step, "value")


def test_a_stepper_of_another_tensor_and_collective():
    stepper = CollectiveStepper("naive", k=10, tensor=torch.zeros(3, 5, dtype=torch.float64), collective="broadcast")
    assert stepper.k.max == 10 and stepper.trace.chunk_n_bytes == [120] and len(stepper.trace.steps) == 9
    with pytest.raises(ValueError, match="k: expected a whole number from 1 to 16, got 17"):
        CollectiveStepper(k=17)
    with pytest.raises(ValueError, match="algorithm: expected one of naive"):
        CollectiveStepper("bus")


def test_the_shape_is_shown_first_and_the_grid_by_choice_or_for_many_devices():
    stepper = CollectiveStepper("ring", 4)
    stepper.step.value = 2
    assert stepper.shape.value == collective_shape(stepper.trace, 2) and stepper.shape.layout.display == "block"
    assert stepper.plot.layout.display == "none" and "<img" in stepper._draw_static()
    stepper.drawn_as.value = "grid"
    assert (
        stepper.shape.value == "" and stepper.shape.layout.display == "none" and stepper.plot.layout.display == "block"
    )
    many = CollectiveStepper("ring", k=9, tensor=torch.zeros(9))
    assert many.shape.value == "" and many.plot.layout.display == "block"
