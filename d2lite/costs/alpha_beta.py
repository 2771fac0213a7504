"""The alpha-beta model: links, devices, and the time of every all-reduce algorithm in closed form; all is predicted.

A message of n bytes takes latency + n / bandwidth (Hockney 1994; Thakur, Rabenseifner and Gropp, "Optimization of
collective communication operations in MPICH", IJHPCA 19, 2005, section 3). A device sends one message and receives one
at a time; messages of one step are sent at the same time. Additions are assumed to cost nothing. The ring is from
Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC 69, 2009.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from notebook_ranks.shared.checks import instance_of, non_negative_number, one_of, positive_int, positive_number

__all__ = [
    "COST_FORMULAS", "Cluster", "Device", "Link", "all_reduce_seconds", "as_cluster", "lower_bound_n_bytes",
]  # fmt: skip


@dataclass(frozen=True)
class Link:
    """A link between two devices: the seconds before the first byte arrives, and bytes per second in one direction.

    `ports` is how many messages a device can send at the same time, each at full speed: 1 for a network card, 2 for a
    separate link to each of two neighbours. `source` names the origin of the figures.
    """

    latency_s: float
    bandwidth_bytes_per_s: float
    name: str = ""
    source: str = ""
    ports: int = 1

    def __post_init__(self) -> None:
        non_negative_number("latency_s", self.latency_s, "In seconds: 5 microseconds are 5e-6.")
        positive_number("bandwidth_bytes_per_s", self.bandwidth_bytes_per_s, "10 gigabits per second are 1.25e9.")
        positive_int("ports", self.ports)
        for name in ("name", "source"):
            instance_of(name, getattr(self, name), str)

    def seconds(self, n_bytes: float, receivers: int = 1) -> float:
        """Return the time of sending `n_bytes` to each of some receivers at the same time."""
        n_bytes = non_negative_number("n_bytes", n_bytes)
        return self.latency_s + n_bytes * max(1.0, receivers / self.ports) / self.bandwidth_bytes_per_s


@dataclass(frozen=True)
class Device:
    """A GPU or a CPU core: the floating point operations per second that training achieves, not a data sheet's peak.

    Every step takes `overhead_s`, however small the minibatch is: kernel launches, Python, the optimizer.
    """

    flops_per_s: float
    overhead_s: float = 0.0
    name: str = ""
    source: str = ""

    def __post_init__(self) -> None:
        positive_number("flops_per_s", self.flops_per_s, "Achieved, not peak.")
        non_negative_number("overhead_s", self.overhead_s)
        for name in ("name", "source"):
            instance_of(name, getattr(self, name), str)


@dataclass(frozen=True)
class Cluster:
    """Hosts of `per_host` devices: a link from device to device inside a host, and one from host to host.

    The devices of a host share the link across hosts. Without `across` and `per_host`, all devices are in one host.
    """

    inside: Link
    across: Link | None = None
    per_host: int | None = None

    def __post_init__(self) -> None:
        instance_of("inside", self.inside, Link)
        instance_of("across", self.across, Link, type(None))
        if (self.across is None) != (self.per_host is None):
            raise ValueError("across, per_host: expected a link across hosts together with per_host, or neither.")
        if self.per_host is not None:
            positive_int("per_host", self.per_host)

    @property
    def between(self) -> Link:
        """The link from host to host; where all devices are in one host, nothing is sent on it."""
        return self.across or self.inside

    def shape(self, k: int) -> tuple[int, int]:
        """Return (devices in a full host, number of hosts) for k devices."""
        per_host = min(k, self.per_host or k)
        return per_host, math.ceil(k / per_host)

    def host(self, i: int) -> int:
        """Return the host of device i."""
        return i // self.per_host if self.per_host else 0


def _naive(k: int, n_bytes: float, cluster: Cluster) -> float:
    """Each device sends its tensor to the first, one after another; the first sends the sum back to each."""
    per_host, hosts = cluster.shape(k)
    seconds = 2 * (per_host - 1) * cluster.inside.seconds(n_bytes)
    return seconds + (2 * (k - per_host) * cluster.between.seconds(n_bytes) if hosts > 1 else 0.0)


def _parameter_server(k: int, n_bytes: float, cluster: Cluster) -> float:
    """All devices send to the first at the same time; it sends the sum to all at the same time, through its port."""
    per_host, hosts = cluster.shape(k)
    inside = cluster.inside.seconds(n_bytes, per_host - 1) if per_host > 1 else 0.0
    if hosts == 1:
        return 2 * inside
    return 2 * max(inside, cluster.between.seconds((k - per_host) / (hosts - 1) * n_bytes, hosts - 1))


def _tree(k: int, n_bytes: float, cluster: Cluster) -> float:
    """Each of log2 k rounds halves the number of devices that hold a partial sum, inside hosts first; then back."""
    per_host, hosts = cluster.shape(k)
    seconds = 2 * math.ceil(math.log2(per_host)) * cluster.inside.seconds(n_bytes)
    return seconds + (2 * math.ceil(math.log2(hosts)) * cluster.between.seconds(n_bytes) if hosts > 1 else 0.0)


def _ring(k: int, n_bytes: float, cluster: Cluster) -> float:
    """The ring takes 2 (k - 1) steps with n_bytes / k each; a step is as slow as the slowest link of the ring."""
    return _ring_seconds(k, cluster, inside=(n_bytes / k, 1), across=(n_bytes / k, 1))


def _ring_both_ways(k: int, n_bytes: float, cluster: Cluster) -> float:
    """The two halves of each chunk go around in opposite directions, which is faster where a device has two ports."""
    per_host, hosts = cluster.shape(k)
    half = n_bytes / k / 2
    one, two = (2 * half, 1), (half, 2)  # both halves to one neighbour, a half to each of two
    if per_host > 2:  # a device has two neighbours in its host
        inside = two
    elif hosts == 1:  # both neighbours are the other device
        inside = one
    else:  # of two devices on a host, each has one neighbour there and one on another host
        inside = half, 1
    return _ring_seconds(k, cluster, inside, across=two if hosts > 2 else one)


def _ring_seconds(k: int, cluster: Cluster, inside: tuple[float, int], across: tuple[float, int]) -> float:
    """Return the time of 2 (k - 1) steps, each with these (bytes, receivers) inside a host and across hosts."""
    per_host, hosts = cluster.shape(k)
    seconds = cluster.inside.seconds(*inside) if per_host > 1 else 0.0
    return 2 * (k - 1) * max(seconds, cluster.between.seconds(*across) if hosts > 1 else 0.0)


def _two_level(k: int, n_bytes: float, cluster: Cluster) -> float:
    """Reduce-scatter in each host, a ring all-reduce of each chunk across hosts, all-gather in each host."""
    per_host, hosts = cluster.shape(k)
    seconds = _ring(per_host, n_bytes, Cluster(cluster.inside)) if per_host > 1 else 0.0
    # the rings across hosts share the port of their host: together they send what one ring with all n_bytes would
    return seconds + (_ring(hosts, n_bytes, Cluster(cluster.between)) if hosts > 1 else 0.0)


def _halving_doubling(k: int, n_bytes: float, cluster: Cluster) -> float:
    """Rabenseifner's algorithm: log2 k rounds of halves, quarters, ..., then the same back; inside hosts, then across.

    Thakur, Rabenseifner and Gropp 2005, section 4.5; for hosts Goyal et al. 2017 (arXiv:1706.02677), section 4.1. The
    extra round for a number of devices that is not a power of two is left out.
    """
    per_host, hosts = cluster.shape(k)
    seconds = 0.0
    for n, link in ((per_host, cluster.inside), (hosts, cluster.between)):
        if n > 1:
            bytes_s = lower_bound_n_bytes(n, n_bytes) / link.bandwidth_bytes_per_s
            seconds += 2 * math.ceil(math.log2(n)) * link.latency_s + bytes_s
    return seconds


def _all_pairs(k: int, n_bytes: float, cluster: Cluster) -> float:
    """Each device sends n_bytes / k to each other, all at the same time; then each sends its sum to each other."""
    per_host, hosts = cluster.shape(k)
    inside = cluster.inside.seconds(n_bytes / k, per_host - 1) if per_host > 1 else 0.0
    to_a_host = per_host**2 * n_bytes / k  # from all of one host to all of another
    return 2 * max(inside, cluster.between.seconds(to_a_host, hosts - 1) if hosts > 1 else 0.0)


# name of the algorithm -> its time, from the number of devices, the bytes of one tensor, and the links
COST_FORMULAS: dict[str, Callable[[int, float, Cluster], float]] = {
    "naive": _naive,
    "parameter server": _parameter_server,
    "tree": _tree,
    "ring": _ring,
    "ring both ways": _ring_both_ways,
    "two-level": _two_level,
    "halving-doubling": _halving_doubling,
    "all pairs": _all_pairs,
}


def all_reduce_seconds(algorithm: str, k: int, n_bytes: float, cluster: Cluster | Link) -> float:
    """Return the predicted time of an all-reduce, in seconds: until each of k devices has the sum of all k tensors.

    Args:
        algorithm: One of `COST_FORMULAS`, for example "ring"; sources are at the top of the file and with each formula.
        k: The number of devices; one sends nothing, and takes 0 seconds.
        n_bytes: The size of one device's tensor, in bytes.
        cluster: The links between the devices: a Cluster of hosts, or a Link if all devices are in one host.

    Example:
        >>> link = Link(latency_s=1e-5, bandwidth_bytes_per_s=1e9)
        >>> round(all_reduce_seconds("ring", 4, 8e6, link), 6)  # 6 steps of 10 microseconds and 2 MB each
        0.01206
    """
    one_of("algorithm", algorithm, COST_FORMULAS)
    k = positive_int("k", k)
    n_bytes = non_negative_number("n_bytes", n_bytes)
    cluster = as_cluster(cluster)
    return COST_FORMULAS[algorithm](k, n_bytes, cluster) if k > 1 else 0.0


def as_cluster(cluster: Cluster | Link) -> Cluster:
    """Return a Cluster as it is, and for a Link a Cluster of one host with this link."""
    instance_of("cluster", cluster, Cluster, Link)
    return Cluster(cluster) if isinstance(cluster, Link) else cluster


def lower_bound_n_bytes(k: int, n_bytes: float) -> float:
    """Return 2 (k - 1) / k * n_bytes: the busiest of k devices must send at least so many bytes to sum tensors.

    Source: Patarasuk and Yuan 2009, as above. A ring sends no more than that. A plan that gathers on the first device
    sends more for k > 2: its first device sends (k - 1) * n_bytes.
    """
    k, n_bytes = positive_int("k", k), non_negative_number("n_bytes", n_bytes)
    return 2 * (k - 1) / k * n_bytes
