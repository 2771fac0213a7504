"""The notebook's side of its ranks: their parent (`d2lite.workers.agent`), their pipes, and what is known of each."""

import contextlib
import os
import subprocess
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from socket import socketpair

from d2lite import _memory as memory
from d2lite.devices import num_gpus
from d2lite.workers.tempdir import make_tempdir, remove_tempdir

__all__ = ["Agent", "RankProcess", "end_all"]

AGENT = Path(__file__).with_name("agent.py")
START = "fork" if sys.platform == "linux" else "spawn"
PING_S = 1.0  # how often a rank that says nothing is asked where it is
END_S = 5.0  # to kill a rank and wait for it takes milliseconds


class Agent:
    """The process that starts `world_size` ranks, tells how they ended, and ends them; with the pool's folder.

    `connections` are the pipes to the ranks. Raises OSError where no process or folder can be made.
    """

    def __init__(self, world_size):
        memory.give_back()  # the ranks need it
        self.tempdir = self.folder, _ = make_tempdir()
        self.exitcodes = {}
        pairs = [socketpair() for _ in range(world_size + 1)]
        theirs = [their.fileno() for _, their in pairs]
        try:
            with open(self.folder / "agent.txt", "wb") as said:
                self.process = subprocess.Popen(
                    [sys.executable, AGENT, START, str(num_gpus()), str(theirs[0]), self.folder, *map(str, theirs[1:])],
                    stdin=subprocess.DEVNULL,
                    stdout=said,
                    stderr=said,
                    pass_fds=theirs,
                    env=_environment(),
                )
        except OSError:
            for mine, _ in pairs:
                mine.close()
            remove_tempdir(*self.tempdir)
            raise
        finally:
            for _, their in pairs:
                their.close()
        self.control, *self.connections = [Connection(mine.detach()) for mine, _ in pairs]

    def exitcode(self, rank, limit_s=0.0):
        """Return how a rank ended, or None if it has not within `limit_s`; all ranks end when the agent does."""
        deadline = time.monotonic() + limit_s
        while rank not in self.exitcodes:
            try:
                if not self.control.poll(max(0.0, deadline - time.monotonic())):
                    return None
                self.exitcodes.update([self.control.recv()])
            except (EOFError, OSError):
                return self.process.wait(END_S)
        return self.exitcodes[rank]

    def kill(self):
        """End all ranks at once."""
        self.process.terminate()

    def end(self):
        """End all ranks, wait for them, close the pipes and remove the folder."""
        self.kill()
        try:
            self.process.wait(END_S)
        except subprocess.TimeoutExpired:  # it is stopped: it must not be waited for
            self.process.kill()
            self.process.wait()
        for connection in (self.control, *self.connections):
            connection.close()
        remove_tempdir(*self.tempdir)


class RankProcess:
    """One rank, seen from the notebook."""

    def __init__(self, rank, agent):
        self.rank, self.agent, self.connection = rank, agent, agent.connections[rank]
        self.begin()

    def begin(self):
        """Forget the last call."""
        self.report = {"state": "running"}
        self.answered = self.asked = time.monotonic()

    def alive(self):
        return self.agent.exitcode(self.rank) is None

    def send(self, message):
        with contextlib.suppress(OSError):  # a dead rank is found out when it is read
            self.connection.send(message)

    def ask(self):
        """Ask where the rank is; its listening thread answers even from within a collective."""
        self.asked = time.monotonic()
        self.send(("where", None))

    def receive(self):
        """Read one message and keep what it tells of the rank's state."""
        try:
            kind, value = self.connection.recv()
        except (EOFError, OSError):
            self.report = {"state": "died", "exitcode": self.agent.exitcode(self.rank, END_S), "said": self.said()}
            return "died", None
        self.answered = time.monotonic()
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
        if now - max(self.answered, self.asked) > PING_S and self.answered >= self.asked:
            self.ask()
        return now - self.asked if self.answered < self.asked else 0.0

    def final_report(self):
        """Return what is known of the rank after it was asked: without an answer it counts as silent."""
        if self.report["state"] == "running" and self.answered < self.asked:
            return {"state": "silent"}
        return self.report

    def said(self):
        """What the process wrote past Python: C++ aborts, the interpreter's last words."""
        for name in (f"rank-{self.rank}.txt", "agent.txt"):  # the agent's, if there never was a rank
            with contextlib.suppress(OSError):
                if text := (self.agent.folder / name).read_text(errors="replace"):
                    return text[-4000:]
        return ""


def _environment():
    """The rank's environment: the notebook's modules can be imported, one core, and nobody listens beyond loopback."""
    loopback = "lo0" if sys.platform == "darwin" else "lo"
    return {
        **os.environ,
        **memory.tunables(),
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": loopback,
        "NCCL_SOCKET_IFNAME": loopback,
    }


def end_all(ranks):
    """End `ranks`, remove what they left behind, and empty the list."""
    agents = {rank.agent for rank in ranks}
    ranks.clear()
    for agent in agents:
        agent.end()
