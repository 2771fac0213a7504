import pytest
import torch

from d2lite import meters
from d2lite.meters import Accumulator, Timer


def test_accumulator_sums_and_resets():
    total = Accumulator(2)
    total.add(1, torch.tensor(2.5))
    total.add(3, 4)
    assert [total[0], total[1]] == [4.0, 6.5]
    total.reset()
    assert [total[0], total[1]] == [0.0, 0.0]


def test_accumulator_refuses():
    with pytest.raises(ValueError, match="add: expected 2 numbers, got 1"):
        Accumulator(2).add(1)
    with pytest.raises(ValueError, match="n: expected a positive whole number, got 0"):
        Accumulator(0)
    with pytest.raises(IndexError):
        Accumulator(2)[2]


def test_timer_reads_the_clock_after_the_devices(monkeypatch):
    log = []
    clock = iter([10.0, 12.0, 20.0, 21.0])

    def read():
        log.append("clock")
        return next(clock)

    monkeypatch.setattr(meters.time, "perf_counter", read)
    monkeypatch.setattr(meters, "synchronize", lambda devices: log.append(tuple(devices)))
    timer = Timer(["cuda:0"])
    assert timer.stop() == 2.0
    timer.start()
    assert timer.stop() == 1.0
    assert log == [("cuda:0",), "clock"] * 4
    assert (timer.avg(), timer.sum(), timer.cumsum()) == (1.5, 3.0, [2.0, 3.0])


def test_timer_without_times():
    with pytest.raises(ValueError, match="avg: expected at least one stop"):
        Timer().avg()
