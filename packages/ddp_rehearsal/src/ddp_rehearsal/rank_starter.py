"""The program that starts the ranks of a rehearsal: each is a fork of it, and shares what it has imported.

It reads one line of JSON from its standard input, the request, and writes a line for each rank that ends. When its
standard input is closed, it ends all ranks.
"""

import contextlib
import gc
import json
import os
import signal
import sys
import threading
import traceback

from ddp_rehearsal.rank_process import run_rank

__all__ = ["main"]


def main() -> None:
    """Start the ranks of the request, and report how they end."""
    request = json.loads(sys.stdin.readline())
    if request["pretend"]:
        import torch._dynamo  # noqa: F401  # pretend GPUs need it: imported once for all ranks
    # What is imported here is left out of garbage collection: to look through it takes a rank 0.1 s each time, and
    # copies pages that the ranks share.
    gc.freeze()
    ranks: dict[int, int] = {}
    for rank in range(request["gpus"]):
        pid = os.fork()
        if pid == 0:
            try:
                os.environ.update(request["environment"][rank])
                run_rank(rank, request)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        ranks[pid] = rank
    threading.Thread(target=_end_with_the_input, args=(list(ranks),), daemon=True).start()
    while ranks:
        pid, status = os.wait()
        if pid in ranks:
            print(json.dumps({"rank": ranks.pop(pid), "code": os.waitstatus_to_exitcode(status)}), flush=True)


def _end_with_the_input(pids: list[int]) -> None:
    sys.stdin.read()
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
    os._exit(0)
