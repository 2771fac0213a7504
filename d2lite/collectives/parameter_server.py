"""The parameter server: the naive schedules with all messages of the root, the server, sent at the same time."""

from d2lite.collectives.naive import naive_broadcast, naive_gather, naive_reduce, naive_scatter
from d2lite.collectives.schedule import Schedule, in_one_step

__all__ = [
    "parameter_server_broadcast", "parameter_server_gather", "parameter_server_reduce", "parameter_server_scatter",
]  # fmt: skip


def parameter_server_broadcast(k: int, root: int = 0) -> Schedule:
    """Return one step: the server sends to all devices at the same time."""
    return in_one_step(naive_broadcast(k, root))


def parameter_server_reduce(k: int, root: int = 0) -> Schedule:
    """Return one step: all devices send to the server at the same time."""
    return in_one_step(naive_reduce(k, root))


def parameter_server_scatter(k: int, root: int = 0) -> Schedule:
    """Return one step: the server sends chunk i to device i, for all i at the same time."""
    return in_one_step(naive_scatter(k, root))


def parameter_server_gather(k: int, root: int = 0) -> Schedule:
    """Return one step: device i sends chunk i to the server, for all i at the same time."""
    return in_one_step(naive_gather(k, root))
