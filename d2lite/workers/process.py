"""The notebook's side of its ranks: their parent (`d2lite.workers.agent`), their pipes, and the state of each."""

import contextlib
import os
import subprocess
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from socket import socketpair
from typing import Any

from d2lite import _memory as memory
from d2lite.devices import num_gpus
from d2lite.workers.failures import Report
from d2lite.workers.tempdir import make_tempdir, remove_tempdir

__all__ = ["Agent", "RankProcess", "end_all"]

AGENT = Path(__file__).with_name("agent.py")
START = "fork" if sys.platform == "linux" else "spawn"
PING_S = 1.0  # a rank that has sent nothing for so long is asked for its frames
END_S = 5.0  # bounds the wait for the end of a killed process, which takes milliseconds


class Agent:
    """The process that starts `world_size` ranks, reports how they ended, and ends them; with the pool's folder.

    `connections` are the pipes to the ranks. Raises OSError if no process or folder can be made.
    """

    def __init__(self, world_size: int) -> None:
        memory.give_back()  # the ranks need it
        self.tempdir = self.folder, _ = make_tempdir()
        self.exitcodes: dict[int, int] = {}
        pairs = [socketpair() for _ in range(world_size + 1)]
        theirs = [their.fileno() for _, their in pairs]
        try:
            with open(self.folder / "agent.txt", "wb") as output:
                self.process = subprocess.Popen(
                    [sys.executable, AGENT, START, str(num_gpus()), str(theirs[0]), self.folder, *map(str, theirs[1:])],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
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

    def exitcode(self, rank: int, limit_s: float = 0.0) -> int | None:
        """Return the exit code of a rank, or None if it has not ended within `limit_s`.

        All ranks end when the agent ends.
        """
        deadline = time.monotonic() + limit_s
        while rank not in self.exitcodes:
            try:
                if not self.control.poll(max(0.0, deadline - time.monotonic())):
                    return None
                self.exitcodes.update([self.control.recv()])
            except (EOFError, OSError):
                return self.process.wait(END_S)
        return self.exitcodes[rank]

    def kill(self) -> None:
        """End all ranks immediately."""
        self.process.terminate()

    def end(self) -> None:
        """End all ranks, wait for them, close the pipes and remove the folder."""
        self.kill()
        try:
            self.process.wait(END_S)
        except subprocess.TimeoutExpired:  # it is stopped, and does not react
            self.process.kill()
            self.process.wait()
        for connection in (self.control, *self.connections):
            connection.close()
        remove_tempdir(*self.tempdir)


class RankProcess:
    """One rank, as the notebook sees it: its pipe, and a report of its state in the current call."""

    def __init__(self, rank: int, agent: Agent) -> None:
        self.rank, self.agent, self.connection = rank, agent, agent.connections[rank]
        self.begin()

    def begin(self) -> None:
        """Forget the last call."""
        self.report: Report = {"state": "running"}
        self.last_message_s = self.last_request_s = time.monotonic()

    def alive(self) -> bool:
        """Return whether the process has not ended yet."""
        return self.agent.exitcode(self.rank) is None

    def send(self, message: Any) -> None:
        """Send a message; if the rank is dead, the next `receive` finds that out."""
        with contextlib.suppress(OSError):
            self.connection.send(message)

    def request_frames(self) -> None:
        """Ask for the frames of the main thread; the rank's receiving thread answers even during a collective."""
        self.last_request_s = time.monotonic()
        self.send(("frames", None))

    def receive(self) -> tuple[str, Any]:
        """Receive one message, update the report, and return the message as (kind, value)."""
        try:
            kind, value = self.connection.recv()
        except (EOFError, OSError):
            exitcode = self.agent.exitcode(self.rank, END_S)
            self.report = {"state": "died", "exitcode": exitcode, "output": self.output()}
            return "died", None
        self.last_message_s = time.monotonic()
        if kind == "error":
            self.report = {"state": "error", **value}
        elif kind == "result":
            self.report = {"state": "done"}
        elif kind == "frames":
            self.report["frames"] = value
        return kind, value

    def silent_s(self) -> float:
        """Return the seconds since an unanswered request, 0.0 if there is none; send a request when one is due."""
        now = time.monotonic()
        if self.last_message_s < self.last_request_s:
            return now - self.last_request_s
        if now - self.last_message_s > PING_S:
            self.request_frames()
        return 0.0

    def final_report(self) -> Report:
        """Return the report after a last request; a running rank that did not answer it is silent."""
        if self.report["state"] == "running" and self.last_message_s < self.last_request_s:
            return {"state": "silent"}
        return self.report

    def output(self) -> str:
        """Return the end of what the process wrote past Python's streams: C++ aborts, the interpreter's last lines."""
        for name in (f"rank-{self.rank}.txt", "agent.txt"):  # the agent's, if there never was a rank
            with contextlib.suppress(OSError):
                if text := (self.agent.folder / name).read_text(errors="replace"):
                    return text[-4000:]
        return ""


def _environment() -> dict[str, str]:
    """Return the ranks' environment: the notebook's modules can be imported, one thread, and only loopback is used."""
    loopback = "lo0" if sys.platform == "darwin" else "lo"
    return {
        **os.environ,
        **memory.tunables(),
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": loopback,
        "NCCL_SOCKET_IFNAME": loopback,
    }


def end_all(ranks: list[RankProcess]) -> None:
    """End `ranks`, remove what they left behind, and empty the list."""
    agents = {rank.agent for rank in ranks}
    ranks.clear()
    for agent in agents:
        agent.end()
