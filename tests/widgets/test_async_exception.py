"""Stopped is raised in the function alone, at its next line of Python."""

import random
import subprocess
import sys
import threading
import time

import pytest

from d2lite.run_events import Stopped
from d2lite.widgets.async_exception import Interruptible, _raise_in
from d2lite.widgets.background import Training


def started(function):
    """A Training of `function`, once it is inside."""
    inside = threading.Event()
    training = Training(lambda: function(inside), {}, animated=False).start()
    assert inside.wait(10)
    return training


def endless(inside):
    inside.set()
    while True:
        pass


def test_a_loop_without_an_event_ends():
    training = started(endless)
    training.stop()
    assert not training.join(0.2) and training.why_running == ""  # not yet: it may be at a long step
    training.interrupt()
    assert training.join(10) and training.run.status == "stopped" and training.error is None


def test_end_stops_then_interrupts_within_its_bound(monkeypatch):
    monkeypatch.setattr("d2lite.widgets.background.GRACE_S", 0.2)
    training = started(endless)
    assert training.end() and training.run.status == "stopped"

    release = threading.Event()

    def waits(inside):
        inside.set()
        release.wait(20)

    training = started(waits)
    began = time.monotonic()
    assert not training.end() and time.monotonic() - began < 5  # a wait ends by itself
    assert "one long call" in training.why_running and "Restart Kernel" in training.why_running
    release.set()
    assert training.join(10) and training.run.status == "stopped" and training.why_running == ""


def test_a_function_that_catches_everything_says_so(monkeypatch):
    monkeypatch.setattr("d2lite.widgets.background.GRACE_S", 0.2)
    enough = threading.Event()

    def stubborn(inside):
        while not enough.is_set():
            try:
                inside.set()
                time.sleep(0.001)
            except BaseException:
                pass

    training = started(stubborn)
    assert not training.end() and "catches every exception" in training.why_running
    enough.set()
    assert training.join(10) and training.run.status == "finished"


def test_an_interrupt_at_any_moment_stays_in_the_call():
    """The code around the call, which restores what the function changed, is never cut short."""
    ends, chance = [], random.Random(0)
    for _ in range(200):
        call, began, left = Interruptible(), threading.Event(), threading.Event()

        def work(call=call, began=began, left=left):
            def fn():
                began.set()
                for _ in range(10_000):
                    pass

            try:
                call.call(fn)
                ends.append("finished")
            except Stopped:
                ends.append("stopped")
            for _ in range(100):  # an interrupt that comes late would be raised here
                pass
            left.set()

        thread = threading.Thread(target=work)
        thread.start()
        began.wait(10)
        time.sleep(chance.random() / 1000)
        call.interrupt()
        thread.join(10)
        assert left.is_set()
    assert len(ends) == 200


class Late:
    """A lock in which an interrupt arrives when it is taken for the second time: on the way out of the function."""

    def __init__(self):
        self.lock, self.taken = threading.Lock(), 0

    def __enter__(self):
        self.taken += 1
        if self.taken == 2:
            _raise_in(threading.get_ident(), Stopped)
        self.lock.acquire()

    def __exit__(self, *_):
        self.lock.release()


def test_an_interrupt_on_the_way_out_is_the_call_s():
    call = Interruptible()
    call._lock = Late()
    with pytest.raises(Stopped):
        call.call(int)
    call.interrupt()
    assert call.at is None and call._lock.taken == 4  # it counts as left: no further interrupt comes


def test_before_and_after_the_call_it_does_nothing():
    call = Interruptible()
    call.interrupt()
    assert call.call(lambda a: a, a=1) == 1 and call.at is None
    call.interrupt()
    with pytest.raises(ZeroDivisionError):
        call.call(lambda: 1 / 0)
    assert call.at is None


TRACED = """
import sys, threading
from d2lite.run_events import Stopped
from d2lite.widgets.async_exception import Interruptible

def endless():
    while True:
        pass

call = Interruptible()
threading.Timer(0.2, call.interrupt).start()
try:
    call.call(endless)
except Stopped:
    pass
Interruptible().call(int)
sys.settrace(lambda *_: None)
(lambda: 1)()
sys.settrace(None)
print("traced")
"""


@pytest.mark.slow
def test_a_debugger_can_follow_code_after_a_call_was_interrupted():
    """CPython 3.11 keeps a flag for an exception that was taken back, and then never leaves a call that is traced."""
    done = subprocess.run([sys.executable, "-c", TRACED], capture_output=True, text=True, timeout=60)
    assert done.stdout == "traced\n", done.stderr
