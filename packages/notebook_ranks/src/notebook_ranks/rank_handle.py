"""The notebook's side of its ranks: the pipe to each, its state, and when one that does not answer is given up."""

import os
import select
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from notebook_ranks.failures import Report
from notebook_ranks.flight_recorder import FlightRecord, flight_record
from notebook_ranks.output import last_output
from notebook_ranks.pipe import pack
from notebook_ranks.rank_starter_handle import StarterHandle, import_path

__all__ = ["RankHandle", "ask_records", "end_all", "last_reports", "start_ranks", "wait"]

PING_S = 1.0  # a rank that has sent nothing for so long is asked for its frames
EXITCODE_S = 2.0  # bounds the wait for the exit code of a rank whose pipe is closed
WORKING = 0.01  # share of a core: a rank that uses less does not work
GRACE_S = 0.4  # bounds the wait for the reports of the other ranks after a first failure
PATIENCE = 10  # a rank that works and does not answer is given up after so many time-outs
RECORDS_S = 1.0  # bounds the wait for the flight recorders while no rank has failed
ASK_FRAMES = pack(("frames", 0, None))
ASK_RECORDS = pack(("records", 0, None))


class RankHandle:
    """One rank, as the notebook sees it: its pipe, and a report of its state in the current call."""

    def __init__(self, rank: int, starter: StarterHandle) -> None:
        self.rank, self.starter, self.pipe = rank, starter, starter.pipes[rank]
        self.pid: int | None = None
        self.begin(0)

    def begin(self, call: int) -> None:
        """Forget the last call; from now on a message counts only if it has the number `call`."""
        self.call = call
        self.report: Report = {"state": "running"}
        self.records: dict[str, Any] | None = None  # what its flight recorder gave last
        self.records_due = False  # whether it was asked for more
        self.last_message_s = self.last_request_s = self.window_s = time.monotonic()
        self.window_cpu_s = 0.0  # what the process had used when the window began

    def alive(self) -> bool:
        """Return whether the process has not ended, and nobody is ending it."""
        return not self.starter.killed and self.starter.exitcode(self.rank) is None

    def request_frames(self) -> None:
        """Ask for the frames of the main thread; the rank's receiving thread answers even during a collective."""
        self.last_request_s = self.window_s = time.monotonic()
        self.window_cpu_s = self._cpu_s()
        self.pipe.send(ASK_FRAMES)

    def request_records(self) -> None:
        """Ask for what the flight recorder has kept of this call."""
        self.records_due = True
        self.pipe.send(ASK_RECORDS)

    def flush(self) -> None:
        """Send more of what the pipe could not take at once; a rank that takes it is alive."""
        if self.pipe.flush():
            self.last_message_s = time.monotonic()

    def receive(self) -> list[tuple[str, Any]]:
        """Receive what has come, update the report, and return (kind, value) of each message of this call.

        The last is ("died", None) if the process has ended: its exit code says so, or the end of its pipe.
        """
        ended = self.rank in self.starter.exitcodes  # before its last messages are read
        received: list[tuple[str, Any]] = []
        while True:
            before = self.pipe.n_received
            messages = self.pipe.receive()
            received += [self._reported(kind, value) for call, kind, value in messages if call == self.call]
            if self.pipe.n_received > before:
                self.last_message_s = time.monotonic()
            if not ended or self.pipe.n_received == before:
                break
        if (ended or self.pipe.closed) and self.report["state"] == "running":
            exitcode = self.starter.exitcode(self.rank, EXITCODE_S)
            self.report = {"state": "died", "exitcode": exitcode, "output": self.output()}
            received.append(("died", None))
        return received

    def _reported(self, kind: str, value: Any) -> tuple[str, Any]:
        """Update the report with a message."""
        if kind == "ready":
            self.pid = value
        elif kind == "error":
            self.report = {"state": "error", **value}
        elif kind == "result":
            self.report = {"state": "done"}
        elif kind == "records":
            self.records, self.records_due = value, False
        elif kind == "frames" and self.report["state"] == "running":  # else it came after an error, which has its own
            self.report["frames"] = value
        return kind, value

    def owes_records(self) -> bool:
        """Return whether the rank was asked for its flight recorder and can still answer."""
        ended = self.pipe.closed or self.rank in self.starter.exitcodes
        return self.records_due and not ended

    def answered(self) -> bool:
        """Return whether something has come from the rank since its last request."""
        return self.last_message_s >= self.last_request_s

    def given_up(self, timeout_s: float) -> bool:
        """Return whether the rank has not answered for `timeout_s`, in which it did not work either.

        A silent rank that keeps its core busy is inside one long C call, which lets no other thread run: it gets
        `PATIENCE` times `timeout_s`. Sends a request when one is due.
        """
        now = time.monotonic()
        if self.answered():
            if now - self.last_message_s > PING_S:
                self.request_frames()
            return False
        if now - self.window_s <= timeout_s:
            return False
        if not self.works() or now - self.last_request_s > PATIENCE * timeout_s:
            return True
        self.window_s, self.window_cpu_s = now, self._cpu_s()
        return False

    def works(self) -> bool:
        """Return whether the process has used its core since the last request, or in the last time-out."""
        seconds = time.monotonic() - self.window_s
        return self._cpu_s() - self.window_cpu_s > WORKING * seconds

    def _cpu_s(self) -> float:
        """Return the CPU time of the process in seconds; 0.0 where the system does not say (macOS)."""
        try:
            fields = Path(f"/proc/{self.pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # user and system, see proc(5)
        except (OSError, IndexError, ValueError):
            return 0.0

    def final_report(self) -> Report:
        """Return the report after a last request; a running rank that did not answer it is silent."""
        if self.report["state"] == "running" and not self.answered():
            return {"state": "silent", "works": self.works()}
        return self.report

    def output(self) -> str:
        """Return the end of what the process wrote past Python's streams: C++ aborts, the interpreter's last lines."""
        names = f"rank-{self.rank}.txt", "starter.txt"  # the starter's, if there never was a rank
        return next(filter(None, (last_output(self.starter.folder / name) for name in names)), "")


def wait(ranks: Sequence[RankHandle], limit_s: float) -> list[RankHandle]:
    """Send what is unsent, and return those of `ranks` that have sent something or ended; wait up to `limit_s`."""
    if not ranks:
        return []
    starter, poll = ranks[0].starter, select.poll()
    poll.register(starter.control, select.POLLIN)
    for rank in ranks:
        poll.register(rank.pipe, select.POLLIN | (select.POLLOUT if rank.pipe.unsent else 0))
    events = dict(poll.poll(1000 * limit_s))
    if starter.control.fileno() in events:
        starter.read_exitcodes()
    for rank in ranks:
        if rank.pipe.unsent:
            rank.flush()
    return [r for r in ranks if events.get(r.pipe.fileno(), 0) & ~select.POLLOUT or r.rank in starter.exitcodes]


def last_reports(ranks: Sequence[RankHandle]) -> tuple[dict[int, Report], dict[int, FlightRecord]]:
    """Return {rank: report} and {rank: record} after a failure: ask what each rank is doing, wait `GRACE_S` at most.

    An error may be the consequence of one that has not come yet. A rank that has died is the cause: then the answers of
    the others are enough, and they come within milliseconds.
    """
    for rank in ranks:
        rank.request_frames()
        if rank.report["state"] != "died":  # it may have sent its records before it ended
            rank.request_records()
    deadline = time.monotonic() + GRACE_S
    while (left := deadline - time.monotonic()) > 0:
        died = any(rank.report["state"] == "died" for rank in ranks)
        running = [r for r in ranks if r.report["state"] == "running" and not (died and r.answered())]
        waiting = [r for r in ranks if r in running or r.owes_records()]
        if not waiting:
            break
        for rank in wait(waiting, left):
            rank.receive()
    return {rank.rank: rank.final_report() for rank in ranks}, _records(ranks)


def ask_records(
    ranks: Sequence[RankHandle], pipes: threading.RLock, is_idle: Callable[[], bool]
) -> dict[int, FlightRecord]:
    """Ask each rank for its flight recorder, wait `RECORDS_S` at most, and return {rank: record}.

    `pipes` guards the ranks. While a call runs (not `is_idle`), the thread that waits for it receives the answers.
    """
    with pipes:
        asked = [rank for rank in ranks if rank.alive()]
        for rank in asked:
            rank.request_records()
    deadline = time.monotonic() + RECORDS_S
    while time.monotonic() < deadline:
        with pipes:
            waiting = [rank for rank in asked if rank.alive() and rank.owes_records()]
            if not waiting:
                break
            for rank in wait(waiting, RECORDS_S / 50) if is_idle() else ():
                rank.receive()
        time.sleep(RECORDS_S / 500)
    return _records(ranks)


def _records(ranks: Sequence[RankHandle]) -> dict[int, FlightRecord]:
    """Return the FlightRecord of each rank: what it gave last, with the state and the frames of its report."""
    return {r.rank: flight_record(r.rank, r.records, r.final_report()) for r in ranks}


def start_ranks(world_size: int, backend: str, timeout_s: float, preload: Sequence[str] = ()) -> list[RankHandle]:
    """Start a starter and its ranks, and send each its settings; raise OSError if there is no room for them."""
    starter = StarterHandle(world_size, preload)
    ranks = [RankHandle(rank, starter) for rank in range(world_size)]
    settings = {"world_size": world_size, "backend": backend, "timeout_s": timeout_s, "folder": str(starter.folder)}
    for rank in ranks:
        rank.pipe.send(pack({"rank": rank.rank, "path": import_path(), **settings}))
    return ranks


def end_all(ranks: list[RankHandle]) -> None:
    """End `ranks`, remove what they left behind, and empty the list."""
    starters = {rank.starter for rank in ranks}
    ranks.clear()
    for starter in starters:
        starter.end()
