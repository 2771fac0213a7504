"""Interrupts at any moment: KeyboardInterrupt comes out, and nothing stays behind."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from benchmarks.leaks import count
from notebook_ranks import rank_starter_handle
from notebook_ranks.interrupts_held import interrupts_held
from notebook_ranks.pool import Workers

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Workers needs Linux or macOS")
ROOT = Path(__file__).parents[3]
KINDS = ("children", "sockets", "open files", "threads", "folders", "zombies")
GONE_S = 5


@pytest.fixture(autouse=True)
def interrupts_raise():
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, handler)


def left_over(before):
    deadline = time.monotonic() + GONE_S
    while (left := {k: (before[k], n) for k, n in count().items() if k in KINDS and n > before[k]}) and (
        time.monotonic() < deadline
    ):
        time.sleep(0.1)
    return left


def test_an_interrupt_is_held_until_the_block_ends():
    done = []
    with pytest.raises(KeyboardInterrupt):
        with interrupts_held():
            for _ in range(3):
                signal.raise_signal(signal.SIGINT)
            done.append("the block")
    assert done == ["the block"] and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_error_in_the_block_and_no_interrupt():
    with pytest.raises(ZeroDivisionError):
        with interrupts_held():
            1 / 0  # noqa: B018
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_interrupts_that_are_ignored_and_other_threads_are_left_alone():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with interrupts_held():
        signal.raise_signal(signal.SIGINT)
    seen = []

    def hold():
        with interrupts_held():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=hold)
    thread.start()
    thread.join()
    assert seen == [signal.SIG_IGN]


@pytest.mark.parametrize("step", ["make_tempdir", "socketpair", "_environment", "NotebookEnd"])
def test_an_interrupt_at_each_step_of_a_start_leaves_nothing(monkeypatch, step):
    Workers(1).close()
    before = count()

    def interrupted(*args):
        signal.raise_signal(signal.SIGINT)
        return original(*args)

    original = getattr(rank_starter_handle, step)
    workers = Workers(1)
    with monkeypatch.context() as patch:
        patch.setattr(rank_starter_handle, step, interrupted)
        with pytest.raises(KeyboardInterrupt):
            workers.run(time.sleep, 60)
    assert left_over(before) == {}


@pytest.mark.slow
def test_a_second_interrupt_while_the_first_ends_the_ranks_leaves_nothing(monkeypatch):
    workers = Workers(1)
    before = count()
    workers.run(len, "warm up")
    kill = rank_starter_handle.StarterHandle.kill

    def interrupted(starter):
        signal.raise_signal(signal.SIGINT)
        kill(starter)

    monkeypatch.setattr(rank_starter_handle.StarterHandle, "kill", interrupted)
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        workers.run(time.sleep, 60)
    assert left_over(before) == {}


RANDOM = """
import random, sys, time
from benchmarks.leaks import count, interrupt_at_random

moment, times, seed, kinds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
draw = random.Random(seed)
interrupt_at_random(draw, moment)  # the first one loads modules and opens what stays open
before = count()
came = [interrupt_at_random(draw, moment) for _ in range(times)]
deadline = time.monotonic() + 5
while (left := {k: (before[k], n) for k, n in count().items() if k in kinds and n > before[k]}):
    if time.monotonic() > deadline:
        break
    time.sleep(0.1)
print(set(came) <= {1, 2}, left)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("moment", "times"), [("first 30 ms", 20), ("call", 1), ("end", 1)])
def test_interrupts_at_random_moments_leave_nothing(moment, times):
    """In a process of its own: an interrupt that comes late must not end the tests."""
    times, seed = os.environ.get("D2LITE_INTERRUPTS", str(times)), os.environ.get("D2LITE_SEED", "0")
    command = [sys.executable, "-c", RANDOM, moment, times, seed, *KINDS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120 + 10 * int(times), cwd=ROOT)
    assert done.stdout == "True {}\n", done.stdout + done.stderr
