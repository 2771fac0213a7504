"""The binary tree: ceil(log2(k)) steps between one root and all devices; chunks are those of `naive`."""

from d2lite.collectives.schedule import Move, Schedule, relabel, reverse

__all__ = ["tree_broadcast", "tree_gather", "tree_reduce", "tree_scatter"]


def tree_broadcast(k: int, root: int = 0) -> Schedule:
    """Return ceil(log2(k)) steps: the root sends to the middle of the list, then each half does the same, and so on."""
    steps = [[Move(i, i + span, 0) for i in range(0, k - span, 2 * span)] for span in _powers_below(k)]
    return relabel(steps, _from_root(k, root))


def tree_reduce(k: int, root: int = 0) -> Schedule:
    """Return ceil(log2(k)) steps: neighbours add in pairs, then pairs of pairs, up to the root."""
    return reverse(tree_broadcast(k, root))


def tree_scatter(k: int, root: int = 0) -> Schedule:
    """Return ceil(log2(k)) steps: each message holds the chunks of its receiver and of all devices below it."""
    steps = []
    for span in _powers_below(k):
        halves = [(i, range(i + span, min(i + 2 * span, k))) for i in range(0, k - span, 2 * span)]
        steps.append([Move(i, i + span, c) for i, upper in halves for c in upper])
    order = _from_root(k, root)
    return relabel(steps, order, [[c] for c in order])


def tree_gather(k: int, root: int = 0) -> Schedule:
    """Return ceil(log2(k)) steps: each device sends the chunks it has gathered one level up, to the root in the end."""
    return reverse(tree_scatter(k, root))


def _from_root(k: int, root: int) -> list[int]:
    """Return the devices in the order of the list, beginning at the root."""
    return [(root + i) % k for i in range(k)]


def _powers_below(k: int) -> list[int]:
    """Return the powers of two below k, the largest first."""
    return [2**power for power in reversed(range((k - 1).bit_length()))]
