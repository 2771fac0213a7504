"""All pairs: each device is the parameter server of one chunk, and all devices send at the same time."""

from d2lite.collectives.schedule import Move, Schedule, in_one_step, reverse

__all__ = ["all_pairs_all_gather", "all_pairs_reduce_scatter"]


def all_pairs_reduce_scatter(k: int) -> Schedule:
    """Return one step: every device sends chunk c to device c, for all c."""
    return in_one_step([[Move(i, c, c)] for c in range(k) for i in range(k) if i != c])


def all_pairs_all_gather(k: int) -> Schedule:
    """Return one step: each device c sends chunk c to all other devices."""
    return reverse(all_pairs_reduce_scatter(k))
