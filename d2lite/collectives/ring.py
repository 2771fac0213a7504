"""The ring: each device sends to the next one only; every device ends with, or begins with, one chunk of k.

Source: Patarasuk and Yuan 2009, Bandwidth optimal all-reduce algorithms for clusters of workstations, J. Parallel
Distrib. Comput. 69(2).
"""

from d2lite.collectives.schedule import Move, relabel, side_by_side

__all__ = ["ring_all_gather", "ring_reduce_scatter", "two_way_all_gather", "two_way_reduce_scatter"]


def ring_reduce_scatter(k):
    """Return the k - 1 steps after which device i has the sum of chunk i: what comes is added, and sent on."""
    steps = []
    for step in range(k - 1):
        steps.append([Move(src=i, dst=(i + 1) % k, chunk=(i - 1 - step) % k) for i in range(k)])
    return steps


def ring_all_gather(k):
    """Return the k - 1 steps that bring chunk i from device i to all: what comes is kept, and sent on."""
    steps = []
    for step in range(k - 1):
        steps.append([Move(src=i, dst=(i + 1) % k, chunk=(i - step) % k) for i in range(k)])
    return steps


def two_way_reduce_scatter(k):
    """Return k - 1 steps of two rings in opposite directions: device i ends with the sums of chunks 2i and 2i + 1."""
    return _both_ways(ring_reduce_scatter(k), k)


def two_way_all_gather(k):
    """Return the k - 1 steps that bring chunks 2i and 2i + 1 from device i to all, one in each direction."""
    return _both_ways(ring_all_gather(k), k)


def _both_ways(steps, k):
    """The even chunks go round by `steps`, the odd ones the other way: i stands where -i stood, modulo k."""
    back = [-i % k for i in range(k)]
    up = relabel(steps, range(k), [[2 * i] for i in range(k)])
    down = relabel(steps, back, [[2 * i + 1] for i in back])
    return side_by_side(up, down)
