"""The commands that make hosts and links, as lists of words: pure, nothing is run here.

A host is a network namespace with one interface, `eth0`, at 10.77.0.<number + 1>; a namespace of its own holds the
switch (a bridge) that joins them. Nothing has a route out of 10.77.0.0/24.
"""

__all__ = [
    "INTERFACE",
    "NETWORK",
    "address",
    "cable",
    "link_name",
    "name",
    "plug",
    "port",
    "pull",
    "push",
    "shape",
    "switch",
]

INTERFACE = "eth0"
NETWORK = "10.77.0.0/24"
# What may leave at once: this long's worth, at least so many bytes. With 2 ms and 16 KiB two hosts that sent to each
# other reached two thirds of the bandwidth: answers (ACKs) queued behind data.
_BURST_S, _BURST = 0.01, 64 * 1024
_QUEUE_S = 0.4  # what a port may hold back before it drops


def address(number):
    """Return the address of a host."""
    return f"10.77.0.{number + 1}"


def name(pid, what):
    """Return the name of a namespace; it tells which process made it, so that a later one can clear up."""
    return f"d2lite-{pid}-{what}"


def switch(space):
    """Return the commands that make the switch in its namespace."""
    return [
        ["ip", "netns", "add", space],
        ["ip", "-n", space, "link", "add", "br0", "type", "bridge"],
        ["ip", "-n", space, "link", "set", "br0", "up"],
    ]


def cable(space, number, switch_space):
    """Return the commands that make a host's namespace and a cable (veth) from it to the switch."""
    peer = ["peer", "name", port(number), "netns", switch_space]
    return [
        ["ip", "netns", "add", space],
        ["ip", "link", "add", INTERFACE, "netns", space, "type", "veth", *peer],
        ["ip", "-n", switch_space, "link", "set", port(number), "master", "br0", "up"],
        *plug(space, number),
    ]


def port(number):
    """Return the name of the switch's port to a host."""
    return f"port{number}"


def plug(space, number):
    """Return the commands that give the host its address and switch its interfaces on."""
    return [
        ["ip", "-n", space, "addr", "add", f"{address(number)}/24", "dev", INTERFACE],
        ["ip", "-n", space, "link", "set", INTERFACE, "up"],
        ["ip", "-n", space, "link", "set", "lo", "up"],
    ]


def pull(switch_space, number):
    """Return the command that pulls a host's cable at the switch: the port has no light any more."""
    return ["ip", "-n", switch_space, "link", "set", port(number), "down"]


def push(switch_space, number):
    """Return the command that pushes the cable back in."""
    return ["ip", "-n", switch_space, "link", "set", port(number), "up"]


def shape(space, mbit, delay_ms, netem, device=INTERFACE):
    """Return the commands that limit what a device sends: a host's interface, or the switch's port to a host.

    `mbit` is the bandwidth in megabits a second (None: not limited), `delay_ms` the one-way delay. netem does both;
    without it (`netem` False) tbf limits the bandwidth, and `tools.cluster.delay_without_netem` delays.
    """
    on = ["tc", "-n", space, "qdisc", "replace", "dev", device, "root"]
    if netem and (mbit or delay_ms):
        rate = ["rate", f"{mbit:g}mbit"] if mbit else []
        return [[*on, "netem", "limit", "10000", *(["delay", f"{delay_ms:g}ms"] if delay_ms else []), *rate]]
    if mbit:
        burst = max(_BURST, int(mbit * 1e6 / 8 * _BURST_S))
        return [[*on, "tbf", "rate", f"{mbit:g}mbit", "burst", str(burst), "latency", f"{_QUEUE_S * 1000:.0f}ms"]]
    return []


def link_name(mbit, delay_ms):
    """Return a link in words: "100 Mb/s, 5 ms"."""
    speed = "not limited" if not mbit else f"{mbit / 1000:g} Gb/s" if mbit >= 1000 else f"{mbit:g} Mb/s"
    return f"{speed}, {f'{delay_ms:g} ms' if delay_ms else 'no delay added'}"
