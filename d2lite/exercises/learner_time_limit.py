"""A limit of time for learners' code in a pool: the ranks are stopped when it is reached.

For ranks that no longer answer, `RankHandle.given_up` decides.
"""

import contextlib
import os
import threading
import time
from collections.abc import Generator

from d2lite.run_events import Stopped
from d2lite.workers import Workers

__all__ = ["MOST_TIMES", "TOO_LONG", "TookTooLong", "processes_per_core", "time_limit"]

TOO_LONG = "it took longer than"  # how the error of a limit begins


class TookTooLong(Exception):
    """The code in the pool has reached its limit of time; the ranks have ended."""


MOST_TIMES = 5.0  # as long on a busy machine


@contextlib.contextmanager
def time_limit(limit_s: float, workers: Workers) -> Generator[None, None, None]:
    """Stop the ranks and raise TookTooLong if the block takes longer; a Stopped for another reason stays one.

    On a machine with more work than cores the limit is longer, up to five times: slow is not endless.
    """
    over, late = threading.Event(), threading.Event()
    start = time.monotonic()

    def watch() -> None:
        wait_s = limit_s
        while not over.wait(wait_s):
            if time.monotonic() - start >= limit_s * processes_per_core():
                late.set()
                workers.stop()
                return
            wait_s = 1.0

    watcher = threading.Thread(target=watch, name="time_limit", daemon=True)
    watcher.start()
    try:
        yield
    except Stopped:
        if not late.is_set():
            raise
        raise TookTooLong(f"{TOO_LONG} {limit_s:g} s") from None
    finally:
        over.set()
        watcher.join()  # a watcher that stops the ranks late would stop the next call


def processes_per_core() -> float:
    """Return how many processes share a core, by the load of the last minute, from 1 to MOST_TIMES; 1 on Windows."""
    try:
        load = os.getloadavg()[0]
    except (AttributeError, OSError):
        return 1.0
    return min(max(load / (os.cpu_count() or 1), 1.0), MOST_TIMES)
