"""What is left of ranks: processes, sockets, open files and folders, counted before and after."""

import os
import random
import re
import signal
import tempfile
import threading
import time
from pathlib import Path

import nbformat
import psutil

from benchmarks.kernel import running
from benchmarks.report import Row
from d2lite import Workers

__all__ = ["count", "of_a_pool", "rows"]

_IN_THE_KERNEL = """
import threading, time
from d2lite import Workers
workers = Workers(2)
workers.run(len, "warm up")
threading.Thread(target=workers.run, args=(time.sleep, 60), daemon=True).start()
time.sleep(0.2)
"""
GONE_S = 5  # what is killed may take a moment
# the moments of an interrupt: seconds after a start, a call or an end begins
MOMENTS = {"first 30 ms": (0, 0.03), "start": (0, 2), "call": (0, 0.3), "end": (0, 0.3)}
AGAIN_S = (0, 0.05)  # from an interrupt to a second one
_kept = []  # pools that were interrupted: a learner's variable keeps them, so that nothing ends them later


def rows(starts=50, interrupts=10, kills=50, at_random=100):
    """Return the rows of starts, interrupts and kernel kills: how much more there is afterwards than before."""
    draw = random.Random(0)
    return [
        _row(f"{starts} starts and closes", _start, starts),
        _row(f"{interrupts} interrupts of a call", _interrupt, interrupts),
        _row(
            f"{at_random} interrupts at random moments, single and double",
            lambda: interrupt_at_random(draw),
            at_random,
        ),
        _row(f"{kills} kernels killed while their ranks work", _kill_a_kernel, kills),
    ]


def interrupt_at_random(draw, moment=None):
    """Interrupt a pool once or twice at a random moment; return how many times KeyboardInterrupt came.

    `draw` is a random.Random, and `moment` a name in MOMENTS, None for any of them.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts what runs behind it with SIGINT ignored
    moment, came, workers = moment or draw.choice(list(MOMENTS)), 0, Workers(2)
    _kept.append(workers)
    if moment in ("call", "end"):
        workers.run(len, "warm up")
    again_s = draw.uniform(*AGAIN_S) if draw.random() < 0.5 else None
    interrupts = threading.Thread(target=_interrupts, args=(draw.uniform(*MOMENTS[moment]), again_s))
    interrupts.start()

    def end():
        workers.close() if moment == "end" else workers.run(time.sleep, 60)

    def settle():
        interrupts.join()
        time.sleep(0.05)  # Python handles a signal a moment after it was sent

    for step in (end, settle, settle):
        try:
            step()
        except KeyboardInterrupt:
            came += 1
    return came


def _interrupts(after_s, again_s):
    time.sleep(after_s)
    os.kill(os.getpid(), signal.SIGINT)
    if again_s is not None:
        time.sleep(again_s)
        os.kill(os.getpid(), signal.SIGINT)


def _row(name, action, n):
    action()  # the first one loads modules and opens what stays open
    before = count()
    for _ in range(n):
        action()
    deadline = time.monotonic() + GONE_S
    while (after := count()) != before and time.monotonic() < deadline:
        time.sleep(0.1)
    left = sum(max(0, after[kind] - before[kind]) for kind in before)
    note = ", ".join(f"{kind} {before[kind]} before, {after[kind]} after" for kind in before)
    return Row(name, "left over", [left], target=("worst", 0.5), note=note)


def of_a_pool(command):
    """Say whether a process with this command line (words, or None) is a rank, its agent or what that became."""
    return any(re.search(r"notebook_ranks[./](rank|rank_starter|reaper)\b", word) for word in command or [])


def count():
    """Return {kind: number} of what ranks could leave behind on this machine."""
    ranks = zombies = 0
    for process in psutil.process_iter(["cmdline", "status"]):
        ranks += of_a_pool(process.info["cmdline"])
        zombies += process.info["status"] == psutil.STATUS_ZOMBIE
    me = psutil.Process()
    folder, shared = Path(tempfile.gettempdir()), Path("/dev/shm")
    return {
        "ranks": ranks,
        "zombies": zombies,
        "children": len(me.children(recursive=True)),
        "sockets": len(me.net_connections("all")),
        "listening ports": sum(c.status == psutil.CONN_LISTEN for c in psutil.net_connections("tcp")),
        "open files": me.num_fds(),
        "threads": me.num_threads(),
        "folders": sum(len(list(folder.glob(kind))) for kind in ("d2lite-*", "notebook-ranks-*")),
        "shared memory": len(list(shared.glob("*"))) if shared.exists() else 0,
    }


def _start():
    with Workers(2) as workers:
        workers.run(len, "warm up")


def _interrupt():
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts what runs behind it with SIGINT ignored
    with Workers(2) as workers:
        workers.run(len, "warm up")
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        try:
            workers.run(time.sleep, 60)
        except KeyboardInterrupt:
            pass
        timer.join()


def _kill_a_kernel():
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(_IN_THE_KERNEL)])
    with running(notebook) as client:
        client.execute_cell(notebook.cells[0], 0)
        os.kill(client.km.provisioner.pid, signal.SIGKILL)
        time.sleep(0.5)
