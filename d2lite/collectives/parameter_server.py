"""The parameter server: the naive schedules with all messages of a root sent at the same time."""

from d2lite.collectives.naive import naive_broadcast, naive_gather, naive_reduce, naive_scatter
from d2lite.collectives.schedule import at_once

__all__ = ["server_broadcast", "server_gather", "server_reduce", "server_scatter"]


def server_broadcast(k, root=0):
    """Return one step: the root, a parameter server, sends to all at once."""
    return at_once(naive_broadcast(k, root))


def server_reduce(k, root=0):
    """Return one step: all send to the root, a parameter server, at once."""
    return at_once(naive_reduce(k, root))


def server_scatter(k, root=0):
    """Return one step: the root sends chunk i to device i, all at once."""
    return at_once(naive_scatter(k, root))


def server_gather(k, root=0):
    """Return one step: device i sends chunk i to the root, all at once."""
    return at_once(naive_gather(k, root))
