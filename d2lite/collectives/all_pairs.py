"""All pairs: every device is the root of one chunk, and all of them send at the same time."""

from d2lite.collectives.schedule import Move, at_once

__all__ = ["all_pairs_all_gather", "all_pairs_reduce_scatter"]


def all_pairs_reduce_scatter(k):
    """Return one step: each device sends chunk c to device c, for all c: every device is the server of a chunk."""
    return at_once([[Move(i, c, c)] for c in range(k) for i in range(k) if i != c])


def all_pairs_all_gather(k):
    """Return one step: each device c sends chunk c to all others."""
    return at_once([[Move(c, i, c)] for c in range(k) for i in range(k) if i != c])
