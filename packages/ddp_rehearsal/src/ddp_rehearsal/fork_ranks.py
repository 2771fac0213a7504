"""The program that forks the ranks of a rehearsal, so that they share what it has imported.

It reads one line of JSON from its standard input, the request, and writes a line for each rank that ends. When its
standard input is closed, it ends all ranks. It is no `notebook_ranks.rank_starter`: that one gives each rank a pipe for
its calls, and spawns ranks where a fork is not safe; these have files, and must be forks in all cases. It leads a
process group, and on Linux it is the subreaper of the ranks, so that processes which a script has started end with it,
those in a session of their own as well.
"""

import contextlib
import ctypes
import gc
import json
import os
import signal
import sys
import threading
import time
from typing import Any

from ddp_rehearsal.start_process import run_alone, run_rank
from notebook_ranks.forked import run_in_fork

__all__ = ["main"]

PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
KILL_S = 3.0  # bounds the wait for what was killed


def main() -> None:
    """Start the ranks of the request, and report how they end."""
    request = json.loads(sys.stdin.readline())
    if request["pretend"]:
        import torch._dynamo  # noqa: F401  # pretend GPUs need it: imported once for all ranks
    # What is imported here is left out of garbage collection: to look through it takes a rank 0.1 s each time, and
    # copies pages that the ranks share.
    gc.freeze()
    if sys.platform == "linux":  # the children of a rank that ends become this process's
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if request["is_alone"]:
        ranks = {run_in_fork(run_alone, request): 0}
    else:
        ranks = {run_in_fork(_become_rank, rank, request): rank for rank in range(request["gpus"])}
    ends = threading.Thread(target=_end_with_the_input, daemon=True)
    ends.start()
    while ranks:
        pid, status = os.wait()
        if pid in ranks:
            print(json.dumps({"rank": ranks.pop(pid), "code": os.waitstatus_to_exitcode(status)}), flush=True)
    ends.join()  # the rehearsal closes the input in any case


def _become_rank(rank: int, request: dict[str, Any]) -> None:
    os.environ.update(request["environment"][rank])
    run_rank(rank, request)


def _end_with_the_input() -> None:
    sys.stdin.read()
    until = time.monotonic() + KILL_S
    while time.monotonic() < until and (children := _children()):
        for pid in children:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.01)
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _children() -> list[int]:
    """Return the children of this process; on Linux those whose own parent has ended are among them."""
    found: list[int] = []
    with contextlib.suppress(OSError):  # no /proc
        for thread in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{thread}/children", encoding="ascii") as file:
                found += map(int, file.read().split())
    return found


if __name__ == "__main__":
    main()
    os._exit(0)
