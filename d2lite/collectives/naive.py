"""Schedules with one root: it sends to all one after another (naive), all at once (server), or through a tree.

`broadcast` and `reduce` move a single chunk, number 0. `scatter` and `gather` move chunk i from the root to device i,
and back.
"""

from d2lite.collectives.schedule import Move, at_once, backwards, placed

__all__ = [
    "naive_broadcast",
    "naive_gather",
    "naive_reduce",
    "naive_scatter",
    "server_broadcast",
    "server_gather",
    "server_reduce",
    "server_scatter",
    "tree_broadcast",
    "tree_gather",
    "tree_reduce",
    "tree_scatter",
]


def naive_broadcast(k, root=0):
    """Return k - 1 steps: the root sends to one device after another."""
    return [[Move(root, i, 0)] for i in range(k) if i != root]


def naive_reduce(k, root=0):
    """Return k - 1 steps: one device after another sends to the root."""
    return [[Move(i, root, 0)] for i in range(k) if i != root]


def naive_scatter(k, root=0):
    """Return k - 1 steps: the root sends chunk i to device i, one after another."""
    return [[Move(root, i, i)] for i in range(k) if i != root]


def naive_gather(k, root=0):
    """Return k - 1 steps: device i sends chunk i to the root, one after another."""
    return [[Move(i, root, i)] for i in range(k) if i != root]


def tree_broadcast(k, root=0):
    """Return about log2(k) steps: the root sends half way down the list, then each half does the same, and so on."""
    steps = [[Move(i, i + span, 0) for i in range(0, k - span, 2 * span)] for span in _spans(k)]
    return placed(steps, _from(root, k))


def tree_reduce(k, root=0):
    """Return about log2(k) steps: neighbours add up in pairs, then pairs of pairs, up to the root."""
    return backwards(tree_broadcast(k, root))


def tree_scatter(k, root=0):
    """Return about log2(k) steps: with each message go the chunks of the receiver and of all that it passes on to."""
    steps = []
    for span in _spans(k):
        halves = [(i, range(i + span, min(i + 2 * span, k))) for i in range(0, k - span, 2 * span)]
        steps.append([Move(i, i + span, c) for i, beyond in halves for c in beyond])
    return placed(steps, _from(root, k), [[c] for c in _from(root, k)])


def tree_gather(k, root=0):
    """Return about log2(k) steps: each device passes on what it has gathered, up to the root."""
    return backwards(tree_scatter(k, root))


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


def _from(root, k):
    """The devices in the order of the list, beginning at the root."""
    return [(root + i) % k for i in range(k)]


def _spans(k):
    """The powers of two below k, the largest first."""
    return [2**power for power in reversed(range((k - 1).bit_length()))]
