"""What the parent of a pool's ranks becomes: it says how they ended, and ends them when the notebook is gone.

`d2lite.workers.agent` turns into this program once the ranks run. They stay its children, and what it had imported for
them is theirs alone from then on, not copied for it as they write.
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


def main(control, folder, pids):
    """Send (rank, exit code) through `control` for each of `pids`, in rank order, that ends; return after the last.

    SIGTERM, or the end of `control`, ends all ranks. `folder` is the pool's.
    """
    control = Connection(control)
    threading.Thread(target=_until_the_notebook_is_gone, args=(control, folder), daemon=True).start()
    ranks = {pid: rank for rank, pid in enumerate(pids)}
    while ranks:
        if signal.sigwait(SIGNALS) == signal.SIGTERM:
            for pid in ranks:
                os.kill(pid, signal.SIGKILL)
        while ranks and (ended := os.waitpid(-1, os.WNOHANG))[0]:
            with contextlib.suppress(OSError):  # the notebook may be gone
                control.send((ranks.pop(ended[0]), os.waitstatus_to_exitcode(ended[1])))


def _until_the_notebook_is_gone(control, folder):
    with contextlib.suppress(EOFError, OSError):
        control.recv()
    shutil.rmtree(folder, ignore_errors=True)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    control, folder, *pids = sys.argv[1:]
    main(int(control), folder, [int(pid) for pid in pids])
    os._exit(0)  # nothing is left to do, and the interpreter would take its time
