"""A limit of time for learners' code in a pool: the ranks are stopped when it is reached.

For ranks that no longer answer, `RankHandle.given_up` decides.
"""

import contextlib
import threading
from collections.abc import Generator

from d2lite.run_events import Stopped
from d2lite.workers import Workers

__all__ = ["TookTooLong", "at_most"]


class TookTooLong(Exception):
    """The code in the pool has reached its limit of time; the ranks have ended."""


@contextlib.contextmanager
def at_most(limit_s: float, workers: Workers) -> Generator[None, None, None]:
    """Stop the ranks and raise TookTooLong if the block takes longer; a Stopped for another reason stays one."""
    late = threading.Event()

    def end() -> None:
        late.set()
        workers.stop()

    limit = threading.Timer(limit_s, end)
    limit.start()
    try:
        yield
    except Stopped:
        if not late.is_set():
            raise
        raise TookTooLong(f"it took longer than {limit_s:g} s") from None
    finally:
        limit.cancel()
        limit.join()  # a timer that has fired would stop the next call
