"""The naive schedules: one root sends to the other devices, or receives from them, one after another.

`broadcast` and `reduce` move a single chunk, number 0. `scatter` and `gather` move chunk i from the root to device i,
and back.
"""

from d2lite.collectives.schedule import Move, Schedule

__all__ = ["naive_broadcast", "naive_gather", "naive_reduce", "naive_scatter"]


def naive_broadcast(k: int, root: int = 0) -> Schedule:
    """Return k - 1 steps: the root sends to one device after another."""
    return [[Move(root, i, 0)] for i in range(k) if i != root]


def naive_reduce(k: int, root: int = 0) -> Schedule:
    """Return k - 1 steps: one device after another sends to the root."""
    return [[Move(i, root, 0)] for i in range(k) if i != root]


def naive_scatter(k: int, root: int = 0) -> Schedule:
    """Return k - 1 steps: the root sends chunk i to device i, one after another."""
    return [[Move(root, i, i)] for i in range(k) if i != root]


def naive_gather(k: int, root: int = 0) -> Schedule:
    """Return k - 1 steps: device i sends chunk i to the root, one after another."""
    return [[Move(i, root, i)] for i in range(k) if i != root]
