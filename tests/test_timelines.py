import pytest

from d2lite.timelines import timeline
from d2lite.trace import Event

EVENTS = [
    Event(0, "forward", "forward", 0.0, 0.010),
    Event(0, "backward", "backward", 0.010, 0.040),
    Event(0, "all_reduce", "bucket 0", 0.020, 0.035, 4_000_000),
    Event(1, "forward", "forward", 0.001, 0.012),
]


def test_the_bars_are_the_events():
    figure = timeline(EVENTS, title="a step")
    bars = {
        (y, text): (base / 1e3, (base + x) / 1e3, data[1] * 1e6)
        for trace in figure.data
        for y, text, base, x, data in zip(trace.y, trace.text, trace.base, trace.x, trace.customdata, strict=True)
    }
    assert len(bars) == len(EVENTS)
    for event in EVENTS:
        lane = f"rank {event.rank} · {'sends' if event.n_bytes else 'computes'}"
        assert bars[lane, event.name] == pytest.approx((event.start_s, event.end_s, event.n_bytes))
    assert [trace.name for trace in figure.data] == ["forward", "backward", "all_reduce"]
    assert figure.layout.title.text == "a step"
    assert list(figure.layout.yaxis.categoryarray)[-1] == "rank 0 · computes"  # on top


def test_nothing_to_draw():
    with pytest.raises(ValueError, match="events: expected at least one Event"):
        timeline([])
