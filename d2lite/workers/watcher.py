"""The watcher of a pool's ranks: it reports how they ended, and ends them when the notebook is gone.

`d2lite.workers.agent` replaces itself by this program (exec) once the ranks run. The ranks stay its children. The
memory that the agent had imported then belongs to the ranks alone: no page of it is copied for the parent's sake.
"""

import contextlib
import os
import shutil
import signal
import sys
import threading
from multiprocessing.connection import Connection

__all__ = ["main"]

SIGNALS = {signal.SIGTERM, signal.SIGCHLD}  # the agent blocked them before its first rank ran


def main(control: int, folder: str, pids: list[int]) -> None:
    """Send (rank, exit code) through the pipe `control` when one of `pids` (in rank order) ends; return after the last.

    SIGTERM, or the end of the pipe, ends all ranks. `folder` is the pool's.
    """
    connection = Connection(control)
    threading.Thread(target=_end_with_the_notebook, args=(connection, folder), daemon=True).start()
    ranks = {pid: rank for rank, pid in enumerate(pids)}
    while ranks:
        if signal.sigwait(SIGNALS) == signal.SIGTERM:
            for pid in ranks:
                os.kill(pid, signal.SIGKILL)
        while ranks and (ended := os.waitpid(-1, os.WNOHANG))[0]:
            with contextlib.suppress(OSError):  # the notebook may be gone
                connection.send((ranks.pop(ended[0]), os.waitstatus_to_exitcode(ended[1])))


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
