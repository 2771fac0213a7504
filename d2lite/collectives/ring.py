"""The ring: each device sends only to the next one; chunk i of k is reduced to device i, or gathered from it.

Source: Patarasuk and Yuan 2009, Bandwidth optimal all-reduce algorithms for clusters of workstations, J. Parallel
Distrib. Comput. 69(2).
"""

from d2lite.collectives.schedule import Move, Schedule, relabel, side_by_side

__all__ = ["ring_all_gather", "ring_both_ways_all_gather", "ring_both_ways_reduce_scatter", "ring_reduce_scatter"]


def ring_reduce_scatter(k: int) -> Schedule:
    """Return the k - 1 steps after which device i has the sum of chunk i: a received chunk is added, then sent on."""
    steps = []
    for step in range(k - 1):
        steps.append([Move(src=i, dst=(i + 1) % k, chunk=(i - 1 - step) % k) for i in range(k)])
    return steps


def ring_all_gather(k: int) -> Schedule:
    """Return the k - 1 steps that copy chunk i of device i to all devices: a received chunk is kept and sent on."""
    steps = []
    for step in range(k - 1):
        steps.append([Move(src=i, dst=(i + 1) % k, chunk=(i - step) % k) for i in range(k)])
    return steps


def ring_both_ways_reduce_scatter(k: int) -> Schedule:
    """Return k - 1 steps of two rings in opposite directions: device i ends with the sums of chunks 2i and 2i + 1."""
    return _both_ways(ring_reduce_scatter(k), k)


def ring_both_ways_all_gather(k: int) -> Schedule:
    """Return the k - 1 steps that copy chunks 2i and 2i + 1 of device i to all devices, one in each direction."""
    return _both_ways(ring_all_gather(k), k)


def _both_ways(steps: Schedule, k: int) -> Schedule:
    """The even chunks move as in `steps`, the odd ones in the other direction: device -i (mod k) replaces device i."""
    back = [-i % k for i in range(k)]
    up = relabel(steps, range(k), [[2 * i] for i in range(k)])
    down = relabel(steps, back, [[2 * i + 1] for i in back])
    return side_by_side(up, down)
