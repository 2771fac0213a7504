import os
import threading
import time

import pytest

from d2lite.exercises.learner_time_limit import MOST_TIMES, TookTooLong, time_limit
from d2lite.run_events import Stopped


class Pool:
    """Stands for ranks that end when they are stopped."""

    def __init__(self):
        self.stopped = threading.Event()

    def stop(self):
        self.stopped.set()

    def work(self, seconds):
        if self.stopped.wait(seconds):
            raise Stopped


@pytest.fixture
def load(monkeypatch):
    """Return a function that sets how many processes share each core."""

    def set_load(per_core):
        monkeypatch.setattr(os, "getloadavg", lambda: (per_core * os.cpu_count(), 0.0, 0.0))

    return set_load


def seconds_until_stopped(limit_s, work_s=60.0):
    pool, start = Pool(), time.monotonic()
    with pytest.raises(TookTooLong, match=rf"^it took longer than {limit_s:g} s$"), time_limit(limit_s, pool):
        pool.work(work_s)
    return time.monotonic() - start


@pytest.mark.parametrize("per_core", [0.0, 1.0])
def test_a_quiet_machine_stops_at_the_limit(load, per_core):
    load(per_core)
    assert 0.3 <= seconds_until_stopped(0.3) < 60


def test_a_machine_without_a_load_average_stops_at_the_limit(monkeypatch):
    monkeypatch.delattr(os, "getloadavg")  # as on Windows
    assert 0.3 <= seconds_until_stopped(0.3) < 60


def test_a_busy_machine_gets_longer_and_an_answer_that_ends_is_kept(load):
    load(4.0)
    pool = Pool()
    with time_limit(0.5, pool):
        pool.work(1.2)
    assert not pool.stopped.is_set()


def test_also_a_busy_machine_has_a_limit(load):
    load(1000.0)
    assert 0.3 * MOST_TIMES <= seconds_until_stopped(0.3) < 60


def test_a_stop_by_the_learner_stays_one_and_no_thread_is_left():
    before = threading.active_count()
    with pytest.raises(Stopped), time_limit(60, Pool()):
        raise Stopped
    assert threading.active_count() == before
