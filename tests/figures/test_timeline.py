import pytest

from d2lite.costs.alpha_beta import Device, Link
from d2lite.figures import palette
from d2lite.figures.timeline import timeline_figure
from d2lite.labs.chapter_08.step import predict_step
from d2lite.labs.chapter_08.workloads import named_workload
from d2lite.profiling.critical_path import critical_path, idle_events
from d2lite.trace import Event

EVENTS = [
    Event(rank=0, kind="forward", name="forward", start_s=0.0, end_s=0.010),
    Event(rank=0, kind="backward", name="backward", start_s=0.010, end_s=0.040),
    Event(rank=0, kind="all_reduce", name="bucket 0", start_s=0.020, end_s=0.035, n_bytes=4_000_000),
    Event(rank=1, kind="forward", name="forward", start_s=0.001, end_s=0.012),
]
STEP = predict_step(named_workload("LeNet"), 64, 2, Device(1e10), Link(1e-4, 1e8), caps=(100_000,), wait_s=0.01)


def bars(figure):
    """{(lane, name): (start, end, bytes)} of all bars, in seconds."""
    found = [
        ((y, text), (base / 1e3, (base + x) / 1e3, data[1] * 1e6))
        for trace in figure.data
        for y, text, base, x, data in zip(trace.y, trace.text, trace.base, trace.x, trace.customdata, strict=True)
    ]
    assert len(dict(found)) == len(found)
    return dict(found)


def lane(event):
    return f"rank {event.rank} · {'sends' if event.n_bytes or event.kind == 'wait' else 'computes'}"


@pytest.mark.parametrize("events", (EVENTS, list(STEP.events)), ids=("measured", "predicted"))
def test_the_bars_are_the_events(events):
    figure = timeline_figure(events, title="a step")
    shown = bars(figure)
    assert len(shown) == len(events)
    for event in events:
        assert shown[lane(event), event.name] == pytest.approx((event.start_s, event.end_s, event.n_bytes))
    assert {trace.name for trace in figure.data} == {event.kind for event in events}
    assert figure.layout.title.text == "a step"
    assert list(figure.layout.yaxis.categoryarray)[-1] == "rank 0 · computes"  # on top


def test_the_critical_path_is_outlined_and_gaps_are_idle():
    events = list(STEP.events)
    figure = timeline_figure(events, explain=True)
    chain, idle = critical_path(events), idle_events(events)
    assert idle and 1 < len(chain) < len(events)
    outlined = {
        text
        for trace in figure.data
        if isinstance(trace.marker.color, tuple)  # not those in which nothing is done
        for text, width, fill in zip(trace.text, trace.marker.line.width, trace.marker.color, strict=True)
        if width == 3 and fill in palette.PALETTE
    }
    assert outlined == {event.name for event in chain}
    (drawn,) = [trace for trace in figure.data if trace.name == "idle"]
    assert [(b, b + x) for b, x in zip(drawn.base, drawn.x, strict=True)] == [
        pytest.approx((1e3 * event.start_s, 1e3 * event.end_s)) for event in idle
    ]


def test_several_steps_have_one_time_axis():
    one, two = EVENTS[:2], [*EVENTS, Event(rank=1, kind="wait", name="wait", start_s=0.012, end_s=0.020)]
    figure = timeline_figure({"1 device": one, "2 devices": two}, explain=True)
    lanes = [f"2 devices, rank {lane}" for lane in ("0 · computes", "0 · sends", "1 · computes", "1 · sends")]
    assert list(figure.layout.yaxis.categoryarray)[::-1] == ["1 device, rank 0 · computes", *lanes]
    shown = bars(timeline_figure({"1 device": one, "2 devices": two}))
    for name, step in (("1 device", one), ("2 devices", two)):
        for event in step:
            assert shown[f"{name}, {lane(event)}", event.name][:2] == pytest.approx((event.start_s, event.end_s))


@pytest.mark.parametrize("nothing", ([], {}, {"1 device": []}))
def test_nothing_to_draw(nothing):
    with pytest.raises(ValueError, match="events: expected at least one Event"):
        timeline_figure(nothing)
