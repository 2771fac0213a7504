"""Whose turn it is: without this, gloo waits for itself, and an all-reduce takes three to four times as long.

gloo's reading thread asks for a lock again and again while its working thread holds it (`Pair::handleEvents` in gloo's
tcp/pair.cc). As it wakes up it can push that very thread from its core, and asks in vain until the system's next tick,
4 ms on many. A thread in batch mode pushes nobody from a core.
"""

import os

__all__ = ["use_batch_mode"]


def use_batch_mode():
    """Put this thread, and all that it starts from now on, in batch mode (Linux, sched(7)); return whether they are.

    Call it before the process group is made. Their share of the cores stays what it was.
    """
    try:
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    except (AttributeError, OSError):  # another system, or one that forbids it
        return False
    return True
