"""A delay line, for kernels without netem: `python -m tools.cluster.delay_without_netem DELAY_MS NAMESPACE...`.

It opens a TUN device as `eth0` in each namespace and is the switch between them: a packet that one host sends arrives
at another DELAY_MS later. Large segments pass uncut, as on a veth, so that Python can keep up. Linux, root.
"""

import ctypes
import fcntl
import os
import select
import struct
import sys
import time
from collections import deque

__all__ = ["main", "relay"]

CLONE_NEWNET, PR_SET_PDEATHSIG, SIGKILL = 0x40000000, 1, 9
TUNSETIFF, TUNSETOFFLOAD = 0x400454CA, 0x400454D0
IFF_TUN_NO_PI_VNET_HDR = 0x0001 | 0x1000 | 0x4000
CHECKSUMS_AND_SEGMENTS = 0x01 | 0x02  # TUN_F_CSUM, TUN_F_TSO4
_HEADER = 10  # struct virtio_net_hdr, in front of each packet
_TO = slice(_HEADER + 16, _HEADER + 20)  # IPv4 destination
_LARGEST = 65535 + _HEADER


def main(argv):
    """Open the devices, say "ready", and pass packets on until killed or until the parent is gone."""
    delay_s, spaces = float(argv[0]) / 1000, argv[1:]
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_PDEATHSIG, SIGKILL)
    home = os.open("/proc/self/ns/net", os.O_RDONLY)
    devices = {bytes([10, 77, 0, i + 1]): _device(libc, f"/run/netns/{space}") for i, space in enumerate(spaces)}
    _enter(libc, home)
    print("ready", flush=True)
    relay(devices, delay_s)


def _enter(libc, fd):
    if libc.setns(fd, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def _device(libc, path):
    """Return the descriptor of a TUN device `eth0` in the namespace at `path`."""
    space = os.open(path, os.O_RDONLY)
    _enter(libc, space)
    os.close(space)
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", b"eth0", IFF_TUN_NO_PI_VNET_HDR))
    fcntl.ioctl(fd, TUNSETOFFLOAD, CHECKSUMS_AND_SEGMENTS)
    return fd


def relay(devices, delay_s, rounds=None):
    """Pass packets between `devices` ({address: descriptor}), each `delay_s` after it came; `rounds` is for tests."""
    waiting, done = deque(), 0
    while rounds is None or done < rounds:
        done += 1
        left = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        for fd in select.select(list(devices.values()), [], [], left)[0]:
            packet = _read(fd)
            to = devices.get(packet[_TO])
            if to is not None and to != fd:
                waiting.append((time.monotonic() + delay_s, to, packet))
        while waiting and waiting[0][0] <= time.monotonic():
            _, to, packet = waiting.popleft()
            _write(to, packet)


def _read(fd):
    try:
        return os.read(fd, _LARGEST)
    except OSError:  # nothing there after all, or the interface is down
        return b""


def _write(fd, packet):
    try:
        os.write(fd, packet)
    except OSError:  # the receiver's queue is full or its interface down: dropped, as on any network
        pass


if __name__ == "__main__":
    main(sys.argv[1:])
