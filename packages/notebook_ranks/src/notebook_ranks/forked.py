"""Forks of this process that do one thing and end: the ranks of a pool, and those of a rehearsal."""

import os
import traceback
from collections.abc import Callable

__all__ = ["run_in_fork"]


def run_in_fork(function: Callable[..., object], *args: object) -> int:
    """Call `function(*args)` in a fork, which ends then, and return the fork's number; an error is printed there.

    The fork never goes back into the caller's own code.
    """
    pid = os.fork()
    if pid:
        return pid
    try:
        function(*args)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)
