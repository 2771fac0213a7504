"""The binary tree: about log2(k) steps between one root and all devices; chunks are those of `naive`."""

from d2lite.collectives.schedule import Move, backwards, relabel

__all__ = ["tree_broadcast", "tree_gather", "tree_reduce", "tree_scatter"]


def tree_broadcast(k, root=0):
    """Return about log2(k) steps: the root sends half way down the list, then each half does the same, and so on."""
    steps = [[Move(i, i + span, 0) for i in range(0, k - span, 2 * span)] for span in _spans(k)]
    return relabel(steps, _from(root, k))


def tree_reduce(k, root=0):
    """Return about log2(k) steps: neighbours add up in pairs, then pairs of pairs, up to the root."""
    return backwards(tree_broadcast(k, root))


def tree_scatter(k, root=0):
    """Return about log2(k) steps: with each message go the chunks of the receiver and of all that it passes on to."""
    steps = []
    for span in _spans(k):
        halves = [(i, range(i + span, min(i + 2 * span, k))) for i in range(0, k - span, 2 * span)]
        steps.append([Move(i, i + span, c) for i, beyond in halves for c in beyond])
    return relabel(steps, _from(root, k), [[c] for c in _from(root, k)])


def tree_gather(k, root=0):
    """Return about log2(k) steps: each device passes on what it has gathered, up to the root."""
    return backwards(tree_scatter(k, root))


def _from(root, k):
    """The devices in the order of the list, beginning at the root."""
    return [(root + i) % k for i in range(k)]


def _spans(k):
    """The powers of two below k, the largest first."""
    return [2**power for power in reversed(range((k - 1).bit_length()))]
