"""The predicted time of a log of messages, by the alpha-beta model: an oracle for its closed formulas."""

from collections.abc import Iterable

from d2lite.costs.alpha_beta import Cluster, Link, as_cluster
from d2lite.trace import Send
from notebook_ranks.shared.checks import all_of, instance_of

__all__ = ["messages_seconds"]


def messages_seconds(messages: Iterable[Send], cluster: Cluster | Link) -> float:
    """Return the predicted time of a log of messages, for example of `Trace.sends`.

    A step takes the latency and the time of its busiest port. The bytes that a device sends in a step are divided among
    its ports, but all bytes for one receiver use one port. Across hosts, the devices of a host share its ports.
    """
    cluster = as_cluster(cluster)
    # step -> ("inside" or "across", "sends" or "receives", one end) -> the other end -> bytes
    steps: dict[int, dict[tuple[str, str, int], dict[int, float]]] = {}
    hint = "Pass the sends of a Trace."
    for message in all_of("messages", messages, lambda name, message: instance_of(name, message, Send, hint=hint)):
        src, dst = (cluster.host(i) for i in (message.src, message.dst))
        level = "inside" if src == dst else "across"
        if level == "inside":
            src, dst = message.src, message.dst
        for does, one, other in (("sends", src, dst), ("receives", dst, src)):
            loads = steps.setdefault(message.step, {}).setdefault((level, does, one), {})
            loads[other] = loads.get(other, 0) + message.n_bytes
    links = {"inside": cluster.inside, "across": cluster.between}
    return sum(max(_busy(links[level], loads) for (level, *_), loads in step.items()) for step in steps.values())


def _busy(link: Link, loads: dict[int, float]) -> float:
    """Return the time that a port, or several, needs for these bytes to or from each other end."""
    return link.seconds(max(max(loads.values()), sum(loads.values()) / link.ports))
