"""The program that forks the ranks of a rehearsal, so that they share what it has imported.

It reads one line of JSON from its standard input, the request, and writes a line for each rank that ends. When its
standard input is closed, it ends all ranks. It is no `notebook_ranks.rank_starter`: that one gives each rank a pipe for
its calls, and spawns ranks where a fork is not safe; these have files, and must be forks in all cases. It leads a
process group, and on Linux it is the subreaper of the ranks, so that processes which a script has started end with it,
those in a session of their own as well.
"""

import gc
import json
import os
import signal
import sys
import threading
from typing import Any

from ddp_rehearsal.start_process import run_alone, run_rank
from notebook_ranks.forked import run_in_fork
from notebook_ranks.rank_starter import PR_SET_CHILD_SUBREAPER, prctl
from notebook_ranks.reaper import end_children

__all__ = ["main"]


def main() -> None:
    """Start the ranks of the request, and report how they end."""
    request = json.loads(sys.stdin.readline())
    if request["pretend"]:
        import torch._dynamo  # noqa: F401  # pretend GPUs need it: imported once for all ranks
    # What is imported here is left out of garbage collection: to look through it takes a rank 0.1 s each time, and
    # copies pages that the ranks share.
    gc.freeze()
    prctl(PR_SET_CHILD_SUBREAPER, 1)  # the children of a rank that ends become this process's
    if request["is_alone"]:
        ranks = {run_in_fork(run_alone, request): 0}
    else:
        ranks = {run_in_fork(_become_rank, rank, request): rank for rank in range(request["gpus"])}
    ends = threading.Thread(target=_end_with_the_input, daemon=True)
    ends.start()
    while ranks:
        try:
            pid, status = os.wait()
        except ChildProcessError:  # the input is closed, and the other thread has seen them end
            break
        if pid in ranks:
            print(json.dumps({"rank": ranks.pop(pid), "code": os.waitstatus_to_exitcode(status)}), flush=True)
    ends.join()  # the rehearsal closes the input in any case


def _become_rank(rank: int, request: dict[str, Any]) -> None:
    os.environ.update(request["environment"][rank])
    run_rank(rank, request)


def _end_with_the_input() -> None:
    sys.stdin.read()
    if sys.platform == "linux":
        end_children(0.0)
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    main()
    os._exit(0)
