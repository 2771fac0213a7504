"""Workers: a warm pool of real ranks, for functions written in cells.

Each rank is a process of its own (`workers/rank.py`) at the end of a private pipe; nothing listens on a network but
what torch.distributed opens on loopback. Functions travel by value (cloudpickle), so that they may come from a cell.
"""

import contextlib
import os
import sys
import threading
import time
import warnings
import weakref
from multiprocessing.connection import wait

import cloudpickle

from d2lite._checks import positive_int, positive_number
from d2lite.devices import MAX_REPLICAS, num_cores, num_gpus
from d2lite.events import Stopped, emit
from d2lite.workers.failures import WorkersError, describe_failure
from d2lite.workers.process import PING_S, Agent, RankProcess, end_all

__all__ = ["Workers", "WorkersError"]

START_S = 60  # a rank that has not joined its group by then never will
LEAVE_S = 1.0  # to leave the group in an orderly way
GRACE_S = 0.4  # after a first failure, how long the others may take to report theirs


class Workers:
    """`world_size` ranks with torch.distributed ready in each; use as a context manager, or `close()` it.

    The backend is NCCL when each rank has a GPU of its own, else gloo, one core a rank. `timeout_s` bounds every
    collective and every silence. The ranks start at the first `run`, and again after a failure, an interrupt or `stop`.
    Raises ValueError or TypeError for a world_size outside 1..64, and warns when it exceeds the cores.
    """

    def __init__(self, world_size, timeout_s=60):
        self.world_size = positive_int("world_size", world_size, MAX_REPLICAS, "Each rank is a process.")
        self.timeout_s = positive_number("timeout_s", timeout_s)
        self.backend = "nccl" if num_gpus() >= world_size else "gloo"
        if os.name == "nt":
            raise OSError("Workers needs Linux or macOS: on Windows use WSL 2, or open the chapter on Colab or Binder.")
        if self.backend == "gloo" and world_size > num_cores():
            warnings.warn(
                f"{world_size} ranks share {num_cores()} CPU cores: it works, and is no faster than fewer ranks.",
                stacklevel=2,
            )
        self._ranks, self._busy, self._stopping = [], threading.Lock(), False
        self._finalize = weakref.finalize(self, end_all, self._ranks)  # also when the interpreter ends

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def run(self, fn, *args):
        """Call fn(*args) on every rank; return the results in rank order. What a rank prints appears here.

        Raises WorkersError with the rank at fault, its traceback and what the others were doing. An interrupt ends the
        ranks; the next call starts new ones.
        """
        results = None
        with contextlib.closing(self._call(fn, args)) as messages:
            for kind, rank, value in messages:
                if kind == "print":
                    print(f"[rank {rank}] {value}")
                elif kind == "event":
                    emit(value[0], **value[1])
                elif kind == "results":
                    results = value
        return results

    def stream(self, fn, *args):
        """Call fn(*args), a generator function, on every rank; yield (rank, record) as the records come.

        Leaving the loop early ends the ranks, since they may be in the middle of a step; the next call starts new ones.
        """
        with contextlib.closing(self._call(fn, args)) as messages:
            for kind, rank, value in messages:
                if kind == "print":
                    print(f"[rank {rank}] {value}")
                elif kind == "record":
                    yield rank, value

    def stop(self):
        """End the ranks at once, whatever they do; a call that waits for them in another thread raises Stopped."""
        self._stopping = True
        for agent in {rank.agent for rank in list(self._ranks)}:
            agent.kill()

    def close(self):
        """End the ranks and remove what they left behind; may be called twice."""
        for rank in self._ranks:
            rank.send(("job", None))
        deadline = time.monotonic() + LEAVE_S
        for rank in self._ranks:
            rank.agent.exitcode(rank.rank, max(0.0, deadline - time.monotonic()))
        self._finalize()
        self._finalize = weakref.finalize(self, end_all, self._ranks)

    def _call(self, fn, args):
        """Yield ("print" | "record" | "event", rank, value) of one call on all ranks, last ("results", None, list)."""
        if not callable(fn):
            raise TypeError(f"fn: expected a function, got {type(fn).__name__}.")
        job = cloudpickle.dumps((fn, args))
        if not self._busy.acquire(blocking=False):
            raise RuntimeError(
                "These workers are busy with another call: wait for it, stop() it, or make a second pool."
            )
        try:
            self._stopping = False
            if not self._ranks or not all(rank.alive() for rank in self._ranks):
                self._start()
            for rank in self._ranks:
                rank.begin()
                rank.send(("job", job))
            yield from self._listen("result")
        except BaseException:
            end_all(self._ranks)
            raise
        finally:
            self._busy.release()

    def _start(self):
        end_all(self._ranks)
        agent = Agent(self.world_size)
        self._ranks.extend(RankProcess(rank, agent) for rank in range(self.world_size))
        for rank in self._ranks:
            rank.send(
                {
                    "rank": rank.rank,
                    "world_size": self.world_size,
                    "backend": self.backend,
                    "timeout_s": self.timeout_s,
                    "folder": str(agent.folder),
                    "path": sys.path,
                }
            )
        for _ in self._listen("ready", START_S):
            pass

    def _listen(self, last, limit_s=None):
        """Pass on what the ranks send until each has sent its `last`; raise WorkersError if one cannot."""
        began, results = time.monotonic(), {}
        while len(results) < self.world_size:
            waiting = {rank.connection: rank for rank in self._ranks if rank.rank not in results}
            emit("waiting")  # a panel's Stop is heard here too
            for connection in wait(list(waiting), PING_S / 4):
                rank = waiting[connection]
                kind, value = rank.receive()
                if kind == last:
                    results[rank.rank] = cloudpickle.loads(value) if value is not None else None
                elif kind in ("record", "print", "event"):
                    yield kind, rank.rank, cloudpickle.loads(value) if kind == "record" else value
                elif kind in ("error", "died"):
                    self._fail()
            late = limit_s is not None and time.monotonic() - began > limit_s
            starting = limit_s is not None  # before it listens, a rank imports torch
            if late or not starting and any(rank.silent_s() > self.timeout_s for rank in waiting.values()):
                self._fail()
        yield "results", None, [results[rank] for rank in range(self.world_size)]

    def _fail(self):
        """Find out what each rank was doing, end all, and raise the one error."""
        for rank in self._ranks:
            rank.ask()
        deadline = time.monotonic() + GRACE_S
        while (left := deadline - time.monotonic()) > 0:
            talking = {rank.connection: rank for rank in self._ranks if rank.report["state"] in ("running", "silent")}
            for connection in wait(list(talking), left) if talking else []:
                talking[connection].receive()
            if not talking:
                break
        reports = {rank.rank: rank.final_report() for rank in self._ranks}
        end_all(self._ranks)
        if self._stopping:
            raise Stopped
        at_fault, message = describe_failure(reports, self.timeout_s)
        raise WorkersError(message, at_fault, reports)
