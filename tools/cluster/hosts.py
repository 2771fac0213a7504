"""Two or more hosts on one machine: as network namespaces, or, where these are not allowed, as names for loopback."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from notebook_ranks import make_tempdir, remove_tempdir
from tools.cluster import links
from tools.cluster.processes import end, running

__all__ = ["Cluster", "Host", "free_port", "has_netem", "loopback", "namespaces", "sweep", "why_no_namespaces"]

ROOT = Path(__file__).resolve().parents[2]
_LIMIT_S = 20  # for one command of iproute2


@dataclass
class Host:
    """A host: `prefix` is put in front of a command to run it there, `space` names its namespace, if it has one."""

    number: int
    address: str
    interface: str
    prefix: list = field(default_factory=list)
    space: str = ""


@dataclass
class Cluster:
    """Hosts that are up: `where` says what they are, `folder` is a temporary one that goes away with them."""

    hosts: list
    where: str
    folder: Path
    shaped_by: str = "nothing"
    switch: str = ""

    def cut(self, number):
        """Pull a host's cable. Raises ValueError on loopback, where there is none."""
        if not self.switch:
            raise ValueError("loopback has no cable to pull: cut a link between network namespaces.")
        _run(links.pull(self.switch, number))

    def mend(self, number):
        """Push a host's cable back in."""
        _run(links.push(self.switch, number))


@contextlib.contextmanager
def namespaces(num_hosts, mbit=None, delay_ms=0):
    """Make `num_hosts` hosts whose links carry `mbit` and delay each packet by `delay_ms`; remove them at the end."""
    sweep()
    netem = has_netem()
    by_line = bool(delay_ms) and not netem
    spaces = [links.name(os.getpid(), number) for number in range(num_hosts)]
    switch = links.name(os.getpid(), "switch")
    with _folder() as folder, contextlib.ExitStack() as undo:
        for space in [*spaces, switch]:
            undo.callback(_remove, space)
        if by_line:
            for space in spaces:
                _run(["ip", "netns", "add", space])
            undo.callback(_end_line, _delay_line(delay_ms, spaces))
            commands = [command for number, space in enumerate(spaces) for command in links.plug(space, number)]
        else:
            commands = links.switch(switch)
            for number, space in enumerate(spaces):
                commands += links.cable(space, number, switch)
        shapes = [c for space in spaces for c in links.shape(space, mbit, 0 if by_line else delay_ms, netem)]
        if not by_line:  # a cable has the same bandwidth in both directions
            both = [links.shape(switch, mbit, 0, netem, links.port(number)) for number in range(num_hosts)]
            shapes += [command for commands_of_one in both for command in commands_of_one]
        for command in [*commands, *shapes]:
            _run(command)
        kinds = [c[c.index("root") + 1] for c in shapes if "root" in c][:1] + (["a delay line"] if by_line else [])
        hosts = [
            Host(number, links.address(number), links.INTERFACE, ["ip", "netns", "exec", space], space)
            for number, space in enumerate(spaces)
        ]
        where = f"{num_hosts} network namespaces on one machine"
        yield Cluster(hosts, where, folder, " and ".join(kinds) or "nothing", "" if by_line else switch)


@contextlib.contextmanager
def loopback(num_hosts):
    """Make `num_hosts` hosts that are one and the same: each torchrun listens on and talks to 127.0.0.1.

    Raises OSError on Windows.
    """
    if os.name == "nt":
        raise OSError("These hosts need Linux or macOS: on Windows use WSL 2, or open the chapter on Binder.")
    interface = "lo0" if sys.platform == "darwin" else "lo"
    with _folder() as folder:
        hosts = [Host(number, "127.0.0.1", interface) for number in range(num_hosts)]
        yield Cluster(hosts, f"{num_hosts} torchrun agents on loopback", folder)


def why_no_namespaces():
    """Return why network namespaces cannot be made here, in a few words, or "" where they can."""
    if sys.platform != "linux":
        return "network namespaces are a thing of Linux"
    if not (shutil.which("ip") and shutil.which("tc")):
        return "ip and tc are not installed (Debian: apt-get install iproute2)"
    if os.geteuid() != 0:
        return "making network namespaces needs root"
    space = links.name(os.getpid(), "try")
    try:
        for command in links.switch(space):
            _run(command)
    except (OSError, RuntimeError) as error:
        return f"this machine does not allow them ({error})"
    finally:
        _remove(space)
    return ""


def has_netem():
    """Return whether the kernel has netem; tried on loopback inside a namespace made for it."""
    space = links.name(os.getpid(), "try")
    try:
        _run(["ip", "netns", "add", space])
        _run(["tc", "-n", space, "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"])
    except RuntimeError:
        return False
    finally:
        _remove(space)
    return True


def sweep():
    """Remove the namespaces of runs that were killed before they could do it themselves."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, timeout=_LIMIT_S).stdout
    for line in listed.splitlines():
        space = line.split()[0] if line.strip() else ""
        owner = space.removeprefix("d2lite-").partition("-")[0]
        if space.startswith("d2lite-") and owner.isdigit() and not running(int(owner)):
            _remove(space)


def free_port():
    """Return a TCP port that nobody listens on now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def _remove(space):
    """End what runs in a namespace, then delete it; nothing happens where there is none."""
    listed = subprocess.run(["ip", "netns", "pids", space], capture_output=True, text=True, timeout=_LIMIT_S)
    if listed.returncode == 0:
        end([int(pid) for pid in listed.stdout.split()])
        _run(["ip", "netns", "delete", space])


def _delay_line(delay_ms, spaces):
    """Start the delay line and wait until its devices are there."""
    command = [sys.executable, "-m", "tools.cluster.delay_without_netem", str(delay_ms), *spaces]
    line = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    if line.stdout.readline() != "ready\n":  # it has ended, and said why on its standard error
        _end_line(line)
        raise RuntimeError("the delay line could not open its devices: is /dev/net/tun there?")
    return line


def _end_line(line):
    end([line.pid])
    line.wait()
    line.stdout.close()


@contextlib.contextmanager
def _folder():
    path, lock = make_tempdir()
    try:
        yield path
    finally:
        remove_tempdir(path, lock)


def _run(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise RuntimeError(f"`{' '.join(command)}` said: {done.stderr.strip() or done.returncode}")
