"""Processes and what they start: found, bounded in time, ended."""

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

__all__ = ["end", "running", "tree"]


def tree(pid):
    """Return `pid` and the processes that it started, and these in turn, as far as they still have their parent."""
    children = {}
    for child, parent in _parents():
        children.setdefault(parent, []).append(child)
    found, more = [], [pid]
    while more:
        found.append(more.pop())
        more += children.get(found[-1], [])
    return found


def _parents():
    """Yield (pid, parent's pid) of all processes."""
    if not Path("/proc/self/stat").exists():  # macOS
        listed = subprocess.run(["ps", "-axo", "pid=,ppid="], capture_output=True, text=True, timeout=10).stdout
        yield from (map(int, line.split()) for line in listed.splitlines())
        return
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # gone meanwhile
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
            if state != "Z":
                yield int(path.parent.name), int(parent)


def running(pid):
    """Return whether a process is there and no zombie."""
    return any(pid == child for child, _ in _parents())


def end(pids, limit_s=5.0):
    """Kill processes with all that they started, stopped ones included, and wait until they are gone.

    Parents are stopped first, so that none starts another meanwhile. Raises TimeoutError for one that stays.
    """
    for pid in pids:
        _signal(pid, signal.SIGSTOP)
    doomed = [p for pid in pids for p in tree(pid)]
    for pid in doomed:
        _signal(pid, signal.SIGKILL)
    deadline = time.monotonic() + limit_s
    while left := [pid for pid in doomed if running(pid)]:
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes {left} are still there {limit_s:g} s after SIGKILL.")
        time.sleep(0.02)


def _signal(pid, number):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
