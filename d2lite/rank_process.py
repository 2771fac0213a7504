"""The parent's side of one rank: its process, its pipe, and what is known of it."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from multiprocessing.connection import Connection
from socket import socketpair

from d2lite.scratch import remove

__all__ = ["RankProcess", "end_all"]

PING_S = 1.0  # how often a rank that says nothing is asked where it is


class RankProcess:
    """A process that will be `rank`; what it writes past Python goes to a file in the pool's `scratch` folder."""

    def __init__(self, rank, scratch):
        self.rank, self.scratch, self.folder = rank, scratch, scratch[0]
        mine, theirs = socketpair()
        self.connection = Connection(mine.detach())
        with open(self.folder / f"rank-{rank}.txt", "wb") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "d2lite.rank", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                pass_fds=[theirs.fileno()],
                env=_environment(),
            )
        theirs.close()
        self.begin()

    def begin(self):
        """Forget the last call."""
        self.report = {"state": "running"}
        self.heard = self.asked = time.monotonic()

    def alive(self):
        return self.process.poll() is None

    def send(self, message):
        with contextlib.suppress(OSError):  # a dead rank is found out when it is read
            self.connection.send(message)

    def kill(self):
        with contextlib.suppress(OSError):
            self.process.send_signal(signal.SIGKILL)

    def ask(self):
        """Ask where the rank is; its listening thread answers even from within a collective."""
        self.asked = time.monotonic()
        self.send(("where", None))

    def receive(self):
        """Read one message and keep what it tells of the rank's state."""
        try:
            kind, value = self.connection.recv()
        except (EOFError, OSError):
            exitcode = self.process.wait(5)
            self.report = {"state": "died", "exitcode": exitcode, "said": self.said()}
            return "died", None
        self.heard = time.monotonic()
        if kind == "error":
            self.report = {"state": "error", **value}
        elif kind == "result":
            self.report = {"state": "done"}
        elif kind == "here":
            self.report["frames"] = value
        return kind, value

    def silent_s(self):
        """Seconds since a question has been left without any answer; asks when it is time to."""
        now = time.monotonic()
        if now - max(self.heard, self.asked) > PING_S and self.heard >= self.asked:
            self.ask()
        return now - self.asked if self.heard < self.asked else 0.0

    def final_report(self):
        """Return what is known of the rank after it was asked: without an answer it counts as silent."""
        if self.report["state"] == "running" and self.heard < self.asked:
            return {"state": "silent"}
        return self.report

    def said(self):
        """What the process wrote past Python: C++ aborts, the interpreter's last words."""
        with contextlib.suppress(OSError):
            return (self.folder / f"rank-{self.rank}.txt").read_text(errors="replace")[-4000:]
        return ""


def _environment():
    """The rank's environment: the notebook's modules can be imported, one core, and nobody listens beyond loopback."""
    loopback = "lo0" if sys.platform == "darwin" else "lo"
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": loopback,
        "NCCL_SOCKET_IFNAME": loopback,
    }


def end_all(ranks):
    """Kill what is left of `ranks`, wait for it, close the pipes, remove the folder, and empty the list."""
    ending = list(ranks)
    ranks.clear()
    for rank in ending:
        rank.kill()
    for rank in ending:
        rank.process.wait()
        rank.connection.close()
    for scratch in {rank.scratch for rank in ending}:
        remove(*scratch)
