"""Two levels: rings within each host, and rings across the hosts, where links are slower.

The first `per_host` devices are on host 0, the next ones on host 1. Within a host a ring adds up the chunks, so that
each of its devices holds one part; then the devices that hold the same part on all hosts form a ring.
"""

from d2lite._checks import positive_int
from d2lite.collectives.ring import ring_all_gather, ring_reduce_scatter
from d2lite.collectives.schedule import relabel, side_by_side

__all__ = ["hosts_of", "two_level_all_gather", "two_level_reduce_scatter"]


def hosts_of(k, per_host=None):
    """Return the list of devices of each host, `per_host` on each.

    By default there are as few hosts as can be, but more than one: 2 for an even k, k for a prime one. Raises
    ValueError or TypeError for a per_host that does not divide k.
    """
    if per_host is None:
        per_host = k // next((hosts for hosts in range(2, k) if k % hosts == 0), k)
    positive_int("per_host", per_host, k, "The devices of a host are some of all.")
    if k % per_host:
        raise ValueError(f"per_host: expected a divisor of {k} (devices), got {per_host}. Hosts have equal sizes.")
    return [list(range(first, first + per_host)) for first in range(0, k, per_host)]


def two_level_reduce_scatter(k, per_host=None):
    """Return the steps after which device i has the sum of chunk i: first within the hosts, then across them."""
    within, across = _rings(ring_reduce_scatter, hosts_of(k, per_host))
    return within + across


def two_level_all_gather(k, per_host=None):
    """Return the steps that bring chunk i from device i to all: first across the hosts, then within them."""
    within, across = _rings(ring_all_gather, hosts_of(k, per_host))
    return across + within


def _rings(ring, hosts):
    """The schedules of one ring a host, and of one ring for each place in a host."""
    places = [list(place) for place in zip(*hosts, strict=True)]  # places[j]: the j-th device of every host
    within = [relabel(ring(len(host)), host, places) for host in hosts]  # chunk j of a host's ring is all of places[j]
    across = [relabel(ring(len(place)), place, [[i] for i in place]) for place in places]
    return side_by_side(*within), side_by_side(*across)
