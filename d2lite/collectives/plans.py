"""The plan of each collective by each algorithm.

The algorithms with one root reduce to it and broadcast from it. The others make each device the root of its own chunk:
they reduce-scatter and all-gather. The other collectives combine these with scatter and gather.
"""

from collections.abc import Callable
from typing import Any

import torch

from d2lite.collectives import all_pairs, naive, parameter_server, ring, tree, two_level
from d2lite.collectives.schedule import Plan, Schedule, in_one_step, relabel
from notebook_ranks.shared.checks import one_of, positive_int, whole_number

__all__ = ["ALGORITHMS", "COLLECTIVES", "check_device", "cut_into_chunks", "make_plan"]

COLLECTIVES = ("all_reduce", "broadcast", "reduce", "reduce_scatter", "all_gather")

_OneRoot = tuple[Callable[[int, int], Schedule], ...]  # broadcast, reduce, scatter, gather of (k, root)
_ONE_ROOT: dict[str, _OneRoot] = {
    "naive": (naive.naive_broadcast, naive.naive_reduce, naive.naive_scatter, naive.naive_gather),
    "tree": (tree.tree_broadcast, tree.tree_reduce, tree.tree_scatter, tree.tree_gather),
    "parameter server": (
        parameter_server.parameter_server_broadcast,
        parameter_server.parameter_server_reduce,
        parameter_server.parameter_server_scatter,
        parameter_server.parameter_server_gather,
    ),
}
_MANY_ROOTS: dict[str, tuple[Callable[..., Schedule], Callable[..., Schedule]]] = {  # reduce_scatter, all_gather
    "ring": (ring.ring_reduce_scatter, ring.ring_all_gather),
    "ring both ways": (ring.ring_both_ways_reduce_scatter, ring.ring_both_ways_all_gather),
    "two-level": (two_level.two_level_reduce_scatter, two_level.two_level_all_gather),
    "all pairs": (all_pairs.all_pairs_reduce_scatter, all_pairs.all_pairs_all_gather),
}
ALGORITHMS = ("naive", "tree", "ring", "ring both ways", "two-level", "parameter server", "all pairs")


def make_plan(collective: str, algorithm: str, k: int, root: int = 0, per_host: int | None = None) -> Plan:
    """Return the Plan of a collective by an algorithm on k devices: which device sends which chunk to which, by steps.

    Args:
        collective: one of COLLECTIVES: "all_reduce", "broadcast", "reduce", "reduce_scatter" or "all_gather".
        algorithm: one of ALGORITHMS: "naive", "tree", "ring", "ring both ways", "two-level", "parameter server" or "all
            pairs".
        k: the number of devices.
        root: the device that a broadcast starts from and a reduce ends on, 0 to k - 1; the others ignore it.
        per_host: the number of devices on each host, for the algorithm "two-level" only; a divisor of k.

    The plan is for the chunks of `cut_into_chunks(row, k, len(plan.owners))`: 1, k or 2k of them.

    Example:
        >>> plan = make_plan("all_reduce", "naive", 3)
        >>> plan.reduce_steps
        [[Move(src=1, dst=0, chunk=0)], [Move(src=2, dst=0, chunk=0)]]
        >>> plan.copy_steps
        [[Move(src=0, dst=1, chunk=0)], [Move(src=0, dst=2, chunk=0)]]
    """
    one_of("collective", collective, COLLECTIVES)
    one_of("algorithm", algorithm, ALGORITHMS)
    if per_host is not None and algorithm != "two-level":
        raise ValueError(f'per_host: expected None, since only "two-level" has hosts, got {per_host!r}.')
    positive_int("k", k)
    check_device("root", root, k)
    if algorithm in _ONE_ROOT:
        return _one_root(collective, _ONE_ROOT[algorithm], k, root)
    return _many_roots(collective, algorithm, k, root, per_host)


def check_device(name: str, i: Any, k: int) -> None:
    """Raise TypeError or ValueError unless `i` is the number of one of k devices."""
    whole_number(name, i, 0, k - 1, expected=f"a device from 0 to {k - 1}")


def _one_root(collective: str, schedules: _OneRoot, k: int, root: int) -> Plan:
    broadcast, reduce, scatter, gather = schedules
    together = [list(range(k))]  # all chunks in one message, where each chunk has its own owner
    if collective == "all_reduce":
        return Plan([0], reduce(k, 0), broadcast(k, 0))
    if collective == "broadcast":
        return Plan([root], [], broadcast(k, root))
    if collective == "reduce":
        return Plan([root], reduce(k, root), [])
    if collective == "reduce_scatter":
        return Plan([0] * k, relabel(reduce(k, 0), range(k), together), scatter(k, 0))
    return Plan(list(range(k)), [], gather(k, 0) + relabel(broadcast(k, 0), range(k), together))


def _many_roots(collective: str, algorithm: str, k: int, root: int, per_host: int | None) -> Plan:
    reduce_scatter, all_gather = _MANY_ROOTS[algorithm]
    hosts = {"per_host": per_host} if algorithm == "two-level" else {}
    reduced, gathered = reduce_scatter(k, **hosts), all_gather(k, **hosts)
    pieces = 2 if algorithm == "ring both ways" else 1
    owners = [c // pieces for c in range(k * pieces)]
    own = [[c for c, owner in enumerate(owners) if owner == i] for i in range(k)]  # own[i]: the chunks of device i
    if collective == "all_reduce":
        return Plan(owners, reduced, gathered)
    if collective == "reduce_scatter":
        return Plan(owners, reduced, [])
    if collective == "all_gather":
        return Plan(owners, [], gathered)
    # a broadcast is a scatter, then an all-gather; a reduce is a reduce-scatter, then a gather
    direct = in_one_step if algorithm == "all pairs" else list
    if collective == "broadcast":
        return Plan([root] * len(owners), [], relabel(direct(naive.naive_scatter(k, root)), range(k), own) + gathered)
    return Plan(owners, reduced, relabel(direct(naive.naive_gather(k, root)), range(k), own))


def cut_into_chunks(row: torch.Tensor, k: int, num_chunks: int) -> list[torch.Tensor]:
    """Return the `num_chunks` chunks of a one-dimensional tensor, as views: one, or the same number for each of k.

    Chunk i of k is row.tensor_split(k)[i]: sizes differ by at most one, and a row shorter than k has empty chunks. For
    a multiple of k chunks, each of these is cut again.
    """
    if num_chunks < k:
        return [row]
    return [piece for part in row.tensor_split(k) for piece in part.tensor_split(num_chunks // k)]
