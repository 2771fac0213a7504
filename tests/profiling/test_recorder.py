import math
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from d2lite.profiling.recorder import Recorder
from d2lite.profiling.step_times import STEP_PARTS, merged_step, step_parts, step_times
from d2lite.trace import Event


class Clock:
    """A clock that a test sets."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


KINDS = {"data": "data", "forward": "compute", "backward": "compute", "all_reduce": "communication", "wait": "wait"}
seconds = st.floats(0.001, 1.0)
steps = st.lists(st.lists(st.tuples(st.sampled_from(sorted(KINDS)), seconds), min_size=1, max_size=8), min_size=3)


@given(steps=steps)
def test_the_parts_are_what_was_done_and_add_up_to_the_wall(steps):
    clock = Clock()
    recorder = Recorder(0, clock=clock)
    for step in steps:
        recorder.begin()
        for i, (kind, took) in enumerate(step):
            start = clock.now
            clock.now += took
            if kind == "all_reduce":
                recorder.add(kind, f"bucket {i}", start, clock.now, 8)
                recorder.skip(clock.now)
            else:
                recorder.lap(kind)
        recorder.end()
    for step, events in zip(steps, recorder.steps, strict=True):
        expected = dict.fromkeys(STEP_PARTS, 0.0)
        for kind, took in step:
            expected[KINDS[kind]] += took
        assert step_parts(events, 0) == pytest.approx(expected)
    (times,) = step_times([recorder.steps], warm_up=0)
    walls = sorted(sum(took for _, took in step) for step in steps)
    assert times.seconds == pytest.approx(sorted(walls)[len(walls) // 2] if len(walls) % 2 else _middle(walls))
    assert sum(times.parts.values()) == pytest.approx(times.middle_s)
    assert abs(times.parts["other"]) < 1e-6 * times.middle_s  # every lap was recorded
    assert times.num_steps == len(steps)


def _middle(walls):
    return (walls[len(walls) // 2 - 1] + walls[len(walls) // 2]) / 2


def test_time_that_no_lap_recorded_is_shown():
    clock = Clock()
    recorder = Recorder(0, clock=clock)
    for _ in range(4):
        recorder.begin()
        clock.now += 3.0
        recorder.lap("forward")
        clock.now += 1.0  # forgotten
        recorder.end()
    (times,) = step_times([recorder.steps], warm_up=1)
    assert times.seconds == 4.0 and times.parts["compute"] == 3.0
    assert 0 < times.parts["other"] < 1.0  # the last step ends with its last event
    assert "compute 3000.0" in str(times) and "% of it recorded" in str(times)


def test_where_computing_and_sending_overlap_the_time_is_computing():
    events = [
        Event(rank=0, kind="backward", name="backward 0", start_s=0.0, end_s=2.0),
        Event(rank=0, kind="all_reduce", name="bucket 0", start_s=1.0, end_s=5.0, n_bytes=8),
        Event(rank=0, kind="wait", name="wait", start_s=4.0, end_s=7.0),
    ]
    assert step_parts(events, 0) == {"compute": 2.0, "data": 0.0, "communication": 3.0, "wait": 2.0}
    assert sum(step_parts(events, 1).values()) == 0


def recorded(waits=(0.0, 2.0), n=5):
    """Steps of two ranks: each computes 1 s + its wait's complement, then both send for 1 s."""
    return [
        [
            [
                Event(rank=rank, kind="forward", name="forward", start_s=10.0 * i, end_s=10.0 * i + 3.0 - wait),
                Event(
                    rank=rank,
                    kind="all_reduce",
                    name="bucket 0",
                    start_s=10.0 * i + 3.0 - wait,
                    end_s=10.0 * i + 4.0,
                    n_bytes=8,
                ),
            ]
            for i in range(n)
        ]
        for rank, wait in enumerate(waits)
    ]


def test_waiting_for_the_last_rank_is_no_sending():
    for times, wait in zip(step_times(recorded(), warm_up=2), (0.0, 2.0), strict=True):
        assert times.parts["wait"] == wait and times.parts["communication"] == 1.0
        assert times.parts["compute"] == 3.0 - wait
    events = merged_step(recorded(), 3)
    assert min(event.start_s for event in events) == 0 and max(event.end_s for event in events) == 4.0
    assert {event.kind for event in events if event.rank == 1} == {"forward", "wait", "all_reduce"}


def test_one_slow_step_does_not_count():
    clock = Clock()
    recorder = Recorder(0, clock=clock)
    for i in range(9):
        recorder.begin()
        clock.now += 8.0 if i == 5 else 3.0
        recorder.lap("forward")
        recorder.end()
    (times,) = step_times([recorder.steps], warm_up=0)
    assert times.parts["compute"] == times.seconds == times.middle_s == 3.0


def test_fast_steps_do_not_count_either():
    clock = Clock()
    recorder = Recorder(clock=clock)
    for took in [0.1, 0.1, *[1.0] * 6]:
        recorder.begin()
        clock.now += took
        recorder.lap("forward")
        recorder.end()
    (times,) = step_times([recorder.steps], warm_up=0)
    assert times.middle_s == pytest.approx(1.0) and times.parts["compute"] == pytest.approx(1.0)


def test_a_gpu_is_waited_for_and_its_milliseconds_become_seconds(monkeypatch):
    """A device that takes 250 ms, without one here: an event has no time before the device was waited for."""
    queue, completed = [], []

    class DeviceEvent:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self, stream):
            queue.append(self)

        def elapsed_time(self, end):
            return 250.0 * (completed.index(end) - completed.index(self))

    def synchronize(devices):
        completed.extend(queue)
        queue.clear()

    monkeypatch.setattr(torch.cuda, "Event", DeviceEvent)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    monkeypatch.setitem(Recorder.begin.__globals__, "synchronize", synchronize)
    recorder = Recorder(3, ["cuda:0"], Clock())
    recorder.begin()
    for kind in ("forward", "backward"):
        recorder.lap(kind)
    recorder.end()
    assert recorder.steps == [
        [
            Event(rank=3, kind="forward", name="forward", start_s=100.0, end_s=100.25),
            Event(rank=3, kind="backward", name="backward", start_s=100.25, end_s=100.5),
        ]
    ]


def test_too_few_steps():
    with pytest.raises(ValueError, match="expected 3 \\+ 3 steps or more of each rank, got 5"):
        step_times(recorded())


def test_the_steps_travel_between_processes():
    recorder = Recorder(2)
    recorder.begin()
    recorder.lap("forward")
    recorder.end()
    (event,) = pickle.loads(pickle.dumps(recorder.steps))[0]
    assert event.rank == 2 and event.kind == "forward" and event.end_s >= event.start_s


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU here")
def test_on_a_gpu_laps_are_the_gpus_times():
    recorder, x = Recorder(0, ["cuda:0"]), torch.rand(4096, 4096, device="cuda:0")
    for _ in range(6):
        recorder.begin()
        for _ in range(10):
            x = x @ x / 4096
        recorder.lap("forward")
        recorder.end()
    (times,) = step_times([recorder.steps], warm_up=2)
    assert times.parts["compute"] > 0.9 * times.middle_s > 0 and math.isfinite(times.seconds)
