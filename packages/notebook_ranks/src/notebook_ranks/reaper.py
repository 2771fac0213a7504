"""The reaper of a pool's ranks: it reports how they ended, and ends them when the notebook is gone.

`notebook_ranks.rank_starter` replaces itself by this program (exec) once the ranks run. The ranks stay its children.
The memory that the starter had imported then belongs to the ranks alone: no page of it is copied for the parent's sake.

What the ranks have started (forks, programs, the workers of a DataLoader) ends with them. On Linux such a process
becomes the reaper's child when its own parent ends. Elsewhere it is found as a member of its rank's process group.
"""

import contextlib
import os
import shutil
import signal
import sys
import threading
import time
from multiprocessing.connection import Connection

__all__ = ["end_children", "main"]

SIGNALS = {signal.SIGTERM, signal.SIGCHLD}  # the starter blocked them before its first rank ran
TERM_S = 0.2  # what a rank has started may end by itself for so long: it may have shared memory to remove
KILL_S = 2.0  # bounds the wait for what was killed


def main(control: int, folder: str, pids: list[int]) -> None:
    """Send (rank, exit code) through the pipe `control` when one of `pids` (in rank order) ends; return after the last.

    SIGTERM, or the end of the pipe, ends all ranks. `folder` is the pool's. What the ranks have started is ended too.
    """
    connection = Connection(control)
    threading.Thread(target=_end_with_the_notebook, args=(connection, folder), daemon=True).start()
    ranks = {pid: rank for rank, pid in enumerate(pids)}
    while ranks:
        if signal.sigwait(SIGNALS) == signal.SIGTERM:
            for pid in ranks:
                os.kill(pid, signal.SIGKILL)
        while ranks and (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] in ranks:  # or the child of a rank that had ended before
                with contextlib.suppress(OSError):  # the notebook may be gone
                    connection.send((ranks.pop(ended[0]), os.waitstatus_to_exitcode(ended[1])))
    _end_families(pids)


def _end_families(pids: list[int]) -> None:
    """End what the ranks had started: SIGTERM at once, SIGKILL for what is left after `TERM_S`."""
    if sys.platform != "linux":
        for pid in pids:
            with contextlib.suppress(OSError):
                os.killpg(pid, signal.SIGKILL)
        return
    end_children(TERM_S)


def end_children(term_s: float) -> None:
    """End the children of this process, on Linux: SIGTERM at once, SIGKILL for what is left after `term_s` seconds."""
    began, asked = time.monotonic(), set[int]()
    while (age := time.monotonic() - began) < term_s + KILL_S:
        for pid in _children():
            with contextlib.suppress(OSError):
                if age >= term_s:
                    os.kill(pid, signal.SIGKILL)
                elif pid not in asked:
                    os.kill(pid, signal.SIGTERM)
            asked.add(pid)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:  # none is left
            return
        time.sleep(0.01)


def _children() -> list[int]:
    """Return the children of this process; on Linux those whose own parent has ended are among them."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{thread}/children") as file:
                found += map(int, file.read().split())
    return found


def _end_with_the_notebook(connection: Connection, folder: str) -> None:
    """Wait until the notebook is gone; then remove the pool's folder, and end all ranks."""
    with contextlib.suppress(EOFError, OSError):
        connection.recv()
    shutil.rmtree(folder, ignore_errors=True)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    control, folder, *pids = sys.argv[1:]
    main(int(control), folder, [int(pid) for pid in pids])
    os._exit(0)  # faster than the interpreter's shutdown, which has nothing to do
