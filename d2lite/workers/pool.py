"""Workers: a pool of real ranks that stay between calls, for functions written in cells.

Each rank is a process of its own (`workers/rank.py`) at the end of a private pipe; the only network sockets are those
that torch.distributed opens on loopback. Functions are pickled by value (cloudpickle), so that they may be defined in a
cell.
"""

import contextlib
import os
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Generator
from multiprocessing.connection import wait
from typing import Any, NoReturn

import cloudpickle

from d2lite._checks import positive_int, positive_number
from d2lite.devices import MAX_REPLICAS, num_cores, num_gpus
from d2lite.events import Stopped, emit
from d2lite.workers.failures import WorkersError, describe_failure
from d2lite.workers.process import PING_S, Agent, RankProcess, end_all

__all__ = ["Workers", "WorkersError"]

START_S = 60  # bounds the start: from the first process to all ranks in their group
LEAVE_S = 1.0  # bounds an orderly end, in which the ranks leave their group
GRACE_S = 0.4  # bounds the wait for the reports of the other ranks after a first failure
Message = tuple[str, int | None, Any]  # kind, rank, value


class Workers:
    """A pool of `world_size` processes, the ranks, with torch.distributed initialised in each.

    Use it as a context manager, or call `close()`. The ranks start at the first call, stay for later calls, and start
    again after a failure, an interrupt or `stop`. The backend is NCCL if each rank has a GPU of its own, else gloo with
    one core per rank.

    Args:
        world_size: Number of ranks, from 1 to 64; a warning is given if it exceeds the number of CPU cores.
        timeout_s: Seconds after which a collective fails, and after which a rank that does not answer is given up.

    Raises:
        TypeError: If world_size is not a whole number or timeout_s is not a number.
        ValueError: If world_size is outside 1..64, or timeout_s is not finite and above 0.
        OSError: On Windows, where there are no such pools.

    Example:
        >>> with Workers(2) as workers:
        ...     first = workers.run(os.getpid)
        ...     print(len(set(first)), workers.run(os.getpid) == first)  # two processes, which stay
        2 True
    """

    def __init__(self, world_size: int, timeout_s: float = 60) -> None:
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
        self._ranks: list[RankProcess] = []
        self._busy, self._stopping = threading.Lock(), False
        self._finalize = weakref.finalize(self, end_all, self._ranks)  # also when the interpreter ends

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def run(self, fn: Callable[..., Any], *args: Any) -> list[Any]:
        """Call `fn(*args)` on every rank; return the results in rank order.

        What a rank prints appears in the calling cell, as "[rank 0] ...". An interrupt ends the ranks; the next call
        starts new ones.

        Args:
            fn: The function; it may be defined in a cell, and finds its rank with `dist.get_rank()`.
            *args: Its arguments, copied to every rank.

        Returns:
            A list with the result of each rank, in rank order.

        Raises:
            WorkersError: If a rank fails, dies or does not answer; the message holds the rank at fault, its traceback,
                and what the other ranks were doing.
            TypeError: If fn is not callable, or fn or its arguments cannot be pickled.
            RuntimeError: If another call on these workers has not ended yet.
            Stopped: If another thread calls `stop()` during the call.

        Example:
            >>> import torch
            >>> import torch.distributed as dist
            >>> def sum_of_ranks():
            ...     total = torch.tensor(dist.get_rank())
            ...     dist.all_reduce(total)
            ...     return total.item()
            >>> with Workers(2) as workers:
            ...     workers.run(sum_of_ranks)
            [1, 1]
        """
        results: list[Any] = []
        with contextlib.closing(self._call(fn, args)) as messages:
            for kind, _, value in messages:
                if kind == "event":
                    emit(value[0], **value[1])
                elif kind == "results":
                    results = value
        return results

    def stream(self, fn: Callable[..., Any], *args: Any) -> Generator[tuple[int, Any], None, None]:
        """Call `fn(*args)`, a generator function, on every rank; yield its items while the ranks run.

        Leaving the loop early ends the ranks, since they may be in the middle of a step; the next call starts new ones.

        Args:
            fn: The generator function; it may be defined in a cell.
            *args: Its arguments, copied to every rank.

        Yields:
            (rank, item) for each item that a rank yields: in order for each rank, in any order between ranks.

        Raises:
            WorkersError, TypeError, RuntimeError, Stopped: As `run` does, when the loop begins or during it.

        Example:
            >>> def count():
            ...     for i in range(3):
            ...         yield 10 * dist.get_rank() + i
            >>> import torch.distributed as dist
            >>> with Workers(2) as workers:
            ...     sorted(workers.stream(count))
            [(0, 0), (0, 1), (0, 2), (1, 10), (1, 11), (1, 12)]
        """
        with contextlib.closing(self._call(fn, args)) as messages:
            for kind, rank, value in messages:
                if kind == "item" and rank is not None:
                    yield rank, value

    def stop(self) -> None:
        """End the ranks immediately; a call that waits for them in another thread raises Stopped."""
        self._stopping = True
        for agent in {rank.agent for rank in list(self._ranks)}:
            agent.kill()

    def close(self) -> None:
        """End the ranks and remove what they left behind; may be called twice."""
        for rank in self._ranks:
            rank.send(("job", None))
        deadline = time.monotonic() + LEAVE_S
        for rank in self._ranks:
            rank.agent.exitcode(rank.rank, max(0.0, deadline - time.monotonic()))
        self._finalize()
        self._finalize = weakref.finalize(self, end_all, self._ranks)

    def _call(self, fn: Callable[..., Any], args: tuple[Any, ...]) -> Generator[Message, None, None]:
        """Yield ("item" | "event", rank, value) of one call on all ranks; at the end ("results", None, list)."""
        if not callable(fn):
            raise TypeError(f"fn: expected a function, got {type(fn).__name__}. Pass the function itself, uncalled.")
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
            yield from self._messages("result")
        except BaseException:
            end_all(self._ranks)
            raise
        finally:
            self._busy.release()

    def _start(self) -> None:
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
        for _ in self._messages("ready", START_S):
            pass

    def _messages(self, last: str, limit_s: float | None = None) -> Generator[Message, None, None]:
        """Print or yield what the ranks send until each has sent its `last`; raise WorkersError if one cannot."""
        began = time.monotonic()
        results: dict[int, Any] = {}
        while len(results) < self.world_size:
            waiting = [rank for rank in self._ranks if rank.rank not in results]
            emit("waiting")  # a panel's listener raises Stopped here
            for rank in _ready(waiting, PING_S / 4):
                kind, value = rank.receive()
                if kind == last:
                    results[rank.rank] = cloudpickle.loads(value) if value is not None else None
                elif kind == "print":
                    print(f"[rank {rank.rank}] {value}")
                elif kind in ("item", "event"):
                    yield kind, rank.rank, cloudpickle.loads(value) if kind == "item" else value
                elif kind in ("error", "died"):
                    self._fail()
            if limit_s is None:
                late = any(rank.silent_s() > self.timeout_s for rank in waiting)
            else:  # the ranks start: they import torch before they can answer
                late = time.monotonic() - began > limit_s
            if late:
                self._fail()
        yield "results", None, [results[rank] for rank in range(self.world_size)]

    def _fail(self) -> NoReturn:
        """Collect what each rank was doing, end all ranks, and raise one error."""
        for rank in self._ranks:
            rank.request_frames()
        deadline = time.monotonic() + GRACE_S
        while (left := deadline - time.monotonic()) > 0:
            running = [rank for rank in self._ranks if rank.report["state"] == "running"]
            if not running:
                break
            for rank in _ready(running, left):
                rank.receive()
        reports = {rank.rank: rank.final_report() for rank in self._ranks}
        end_all(self._ranks)
        if self._stopping:
            raise Stopped
        at_fault, message = describe_failure(reports, self.timeout_s)
        raise WorkersError(message, at_fault, reports)


def _ready(ranks: list[RankProcess], limit_s: float) -> list[RankProcess]:
    """Return those of `ranks` that have sent a message or ended; wait up to `limit_s` for the first."""
    ready = wait([rank.connection for rank in ranks], limit_s)
    return [rank for rank in ranks if rank.connection in ready]
