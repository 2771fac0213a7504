"""Two levels: a ring inside each host, and rings across the hosts, where links are slower.

The first `per_host` devices are on host 0, the next ones on host 1, and so on. A ring inside each host reduces the
chunks: each device then holds one part of the host's sum. The devices that hold the same part, one on each host, form a
ring across the hosts.
"""

from collections.abc import Callable

from d2lite.collectives.ring import ring_all_gather, ring_reduce_scatter
from d2lite.collectives.schedule import Schedule, relabel, side_by_side
from notebook_ranks.shared.checks import positive_int

__all__ = ["two_level_all_gather", "two_level_reduce_scatter"]


def hosts_of(k: int, per_host: int | None = None) -> list[list[int]]:
    """Return the devices of each host, `per_host` on each; by default as few hosts as possible, but more than one."""
    if per_host is None:
        per_host = k // next((hosts for hosts in range(2, k) if k % hosts == 0), k)
    positive_int("per_host", per_host, k, f"A host has at most all {k} devices.")
    if k % per_host:
        raise ValueError(f"per_host: expected a divisor of {k} (devices), got {per_host}. Hosts have equal sizes.")
    return [list(range(first, first + per_host)) for first in range(0, k, per_host)]


def two_level_reduce_scatter(k: int, per_host: int | None = None) -> Schedule:
    """Return the steps after which device i has the sum of chunk i: first inside the hosts, then across them."""
    inside, across = _rings(ring_reduce_scatter, hosts_of(k, per_host))
    return inside + across


def two_level_all_gather(k: int, per_host: int | None = None) -> Schedule:
    """Return the steps that copy chunk i of device i to all devices: first across the hosts, then inside them."""
    inside, across = _rings(ring_all_gather, hosts_of(k, per_host))
    return across + inside


def _rings(ring: Callable[[int], Schedule], hosts: list[list[int]]) -> tuple[Schedule, Schedule]:
    """Return the schedules of one ring per host, and of one ring per position in a host."""
    peers = [list(devices) for devices in zip(*hosts, strict=True)]  # peers[j]: the j-th device of every host
    inside = [relabel(ring(len(host)), host, peers) for host in hosts]  # chunk j of a host's ring: the chunks peers[j]
    across = [relabel(ring(len(group)), group, [[i] for i in group]) for group in peers]
    return side_by_side(*inside), side_by_side(*across)
