"""A limit of time for learners' code in a pool: the ranks are stopped when it is reached.

For ranks that no longer answer, `RankHandle.given_up` decides.
"""

import contextlib
import threading
from collections.abc import Generator

from d2lite.run_events import Stopped
from d2lite.workers import Workers

__all__ = ["TOO_LONG", "TookTooLong", "time_limit"]

TOO_LONG = "it took longer than"  # how the error of a limit begins


class TookTooLong(Exception):
    """The code in the pool has reached its limit of time; the ranks have ended."""


@contextlib.contextmanager
def time_limit(limit_s: float, workers: Workers) -> Generator[None, None, None]:
    """Stop the ranks and raise TookTooLong if the block takes longer; a Stopped for another reason stays one."""
    late = threading.Event()

    def end() -> None:
        late.set()
        workers.stop()

    timer = threading.Timer(limit_s, end)
    timer.start()
    try:
        yield
    except Stopped:
        if not late.is_set():
            raise
        raise TookTooLong(f"{TOO_LONG} {limit_s:g} s") from None
    finally:
        timer.cancel()
        timer.join()  # a timer that has fired would stop the next call
