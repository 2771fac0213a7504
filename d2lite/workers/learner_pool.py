"""A pool for a learner's code: on the CPU, for a limited time, with the reason of its end in one line."""

import contextlib
import threading
import warnings
from collections.abc import Generator

from d2lite.progress import Stopped
from d2lite.workers.errors import WorkersError
from d2lite.workers.pool import Workers

__all__ = ["REASON_CHARS", "TookTooLong", "at_most", "quiet_pool", "why_it_ended"]

REASON_CHARS = 300


class TookTooLong(Exception):
    """The code in the pool has reached its limit of time; the ranks have ended."""


def quiet_pool(world_size: int, timeout_s: float = 60) -> Workers:
    """Return a pool for tensors on the CPU, with GPUs or without; it does not warn that ranks share cores."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        workers = Workers(world_size, timeout_s)
    workers.backend = "gloo"
    return workers


@contextlib.contextmanager
def at_most(limit_s: float, workers: Workers) -> Generator[None, None, None]:
    """Stop the ranks if the block takes longer.

    Raises:
        TookTooLong: if it did. If the ranks are stopped for a different reason, `Stopped` is raised as usual.
    """
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


def why_it_ended(error: WorkersError) -> str:
    """Return the first line of what ended the process of an answer."""
    return f"its process ended: {str(error).splitlines()[0][:REASON_CHARS]}"
