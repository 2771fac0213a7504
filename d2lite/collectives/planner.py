"""The plan of each collective by each algorithm.

The algorithms with one root reduce to it and broadcast from it. The others make each device the root of a chunk of its
own: they reduce-scatter and all-gather. The rest is put together from these, and from scatter and gather.
"""

from d2lite._checks import positive_int
from d2lite.collectives import all_pairs, hierarchical, naive, parameter_server, ring, tree
from d2lite.collectives.schedule import Plan, at_once, relabel

__all__ = ["ALGORITHMS", "COLLECTIVES", "check_device", "cut", "make_plan"]

COLLECTIVES = ("all_reduce", "broadcast", "reduce", "reduce_scatter", "all_gather")


_ONE_ROOT = {  # broadcast, reduce, scatter, gather
    "naive": (naive.naive_broadcast, naive.naive_reduce, naive.naive_scatter, naive.naive_gather),
    "tree": (tree.tree_broadcast, tree.tree_reduce, tree.tree_scatter, tree.tree_gather),
    "parameter server": (
        parameter_server.server_broadcast,
        parameter_server.server_reduce,
        parameter_server.server_scatter,
        parameter_server.server_gather,
    ),
}
_MANY_ROOTS = {  # reduce_scatter, all_gather
    "ring": (ring.ring_reduce_scatter, ring.ring_all_gather),
    "ring both ways": (ring.two_way_reduce_scatter, ring.two_way_all_gather),
    "two-level": (hierarchical.two_level_reduce_scatter, hierarchical.two_level_all_gather),
    "all pairs": (all_pairs.all_pairs_reduce_scatter, all_pairs.all_pairs_all_gather),
}
ALGORITHMS = ("naive", "tree", "ring", "ring both ways", "two-level", "parameter server", "all pairs")


def make_plan(collective, algorithm, k, root=0, per_host=None):
    """Return the Plan of a collective ("all_reduce", ...) by an algorithm ("ring", ...) on k devices.

    `root` is the device that a broadcast comes from and a reduce goes to; `per_host` is for "two-level" only.
    Its chunks are those of `cut`. Raises ValueError or TypeError.
    """
    if collective not in COLLECTIVES:
        raise ValueError(f"collective: expected one of {', '.join(COLLECTIVES)}, got {collective!r}.")
    if algorithm not in ALGORITHMS:
        raise ValueError(f"algorithm: expected one of {', '.join(ALGORITHMS)}, got {algorithm!r}.")
    if per_host is not None and algorithm != "two-level":
        raise ValueError(f'per_host: expected None, since only "two-level" knows hosts, got {per_host!r}.')
    positive_int("k", k)
    check_device("root", root, k)
    if algorithm in _ONE_ROOT:
        return _one_root(collective, _ONE_ROOT[algorithm], k, root)
    return _many_roots(collective, algorithm, k, root, per_host)


def check_device(name, i, k):
    """Raise TypeError or ValueError unless `i` is the number of one of k devices."""
    if isinstance(i, bool) or not hasattr(i, "__index__"):
        raise TypeError(f"{name}: expected the number of a device, got {i!r} ({type(i).__name__}).")
    if not 0 <= i < k:
        raise ValueError(f"{name}: expected a device from 0 to {k - 1}, got {i}.")


def _one_root(collective, schedules, k, root):
    broadcast, reduce, scatter, gather = schedules
    whole = [list(range(k))]  # what moves in one piece, where chunks have an owner each
    if collective == "all_reduce":
        return Plan([0], reduce(k), broadcast(k))
    if collective == "broadcast":
        return Plan([root], [], broadcast(k, root))
    if collective == "reduce":
        return Plan([root], reduce(k, root), [])
    if collective == "reduce_scatter":
        return Plan([0] * k, relabel(reduce(k), range(k), whole), scatter(k))
    return Plan(list(range(k)), [], gather(k) + relabel(broadcast(k), range(k), whole))


def _many_roots(collective, algorithm, k, root, per_host):
    reduce_scatter, all_gather = _MANY_ROOTS[algorithm]
    hosts = {"per_host": per_host} if algorithm == "two-level" else {}
    added, gathered = reduce_scatter(k, **hosts), all_gather(k, **hosts)
    pieces = 2 if algorithm == "ring both ways" else 1
    owners = [c // pieces for c in range(k * pieces)]
    own = [[c for c, owner in enumerate(owners) if owner == i] for i in range(k)]  # own[i]: the chunks of device i
    if collective == "all_reduce":
        return Plan(owners, added, gathered)
    if collective == "reduce_scatter":
        return Plan(owners, added, [])
    if collective == "all_gather":
        return Plan(owners, [], gathered)
    direct = at_once if algorithm == "all pairs" else list
    if collective == "broadcast":
        return Plan([root] * len(owners), [], relabel(direct(naive.naive_scatter(k, root)), range(k), own) + gathered)
    return Plan(owners, added, relabel(direct(naive.naive_gather(k, root)), range(k), own))


def cut(row, k, num_chunks):
    """Return the `num_chunks` chunks of a one-dimensional tensor, views of it: one, or an equal number a device.

    Chunk i of k is row.tensor_split(k)[i]: sizes differ by at most one, and those of a short row are empty. Where there
    are more, each of these is cut again.
    """
    if num_chunks < k:
        return [row]
    return [piece for part in row.tensor_split(k) for piece in part.tensor_split(num_chunks // k)]
