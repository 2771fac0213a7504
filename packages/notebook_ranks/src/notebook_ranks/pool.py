"""Workers: a pool of real ranks; it sends them functions written in cells, and waits for their answers.

Each rank is a process of its own (`rank.py`) at the end of a private pipe; the only network sockets are those
that torch.distributed opens on loopback. Functions are pickled by value (cloudpickle), so that they may be defined in a
cell.
"""

import contextlib
import math
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Generator, Sequence
from typing import Any, NoReturn, TypeVar

from notebook_ranks.events import Stopped, emit
from notebook_ranks.failures import WorkersError, describe_failure
from notebook_ranks.flight_recorder import FlightRecord
from notebook_ranks.interrupts_held import interrupts_held
from notebook_ranks.machine import MAX_RANKS, num_cores, num_gpus
from notebook_ranks.output import Cell
from notebook_ranks.pickling import load_answer, pickled_job, require_generator_function
from notebook_ranks.pipe import pack
from notebook_ranks.rank_handle import PING_S, RankHandle, ask_records, end_all, last_reports, start_ranks, wait
from notebook_ranks.rank_support import why_no_ranks
from notebook_ranks.shared.checks import all_of, module_name, positive_int, positive_number, require_plain_function

__all__ = ["Workers", "WorkersError"]

START_S = 60  # bounds the start, in which the ranks import PyTorch
JOIN_S = 20  # bounds the time in which they form their group: it takes milliseconds unless somebody disturbs it
LEAVE_S = 1.0  # bounds an orderly end, in which the ranks leave their group
_Pool = TypeVar("_Pool", bound="Workers")
RankMessage = tuple[str, int | None, Any]  # kind, rank, value


class _Call:
    """One call on the pool: its number, and its state."""

    def __init__(self) -> None:
        self.number, self.uses_ranks, self.done, self.stopped = 0, False, False, False


class Workers:
    """A pool of `world_size` processes, the ranks, with torch.distributed initialised in each.

    Use it as a context manager, or call `close()`. The ranks start at the first call, stay for later calls, and start
    again after a failure, an interrupt or `stop`. The backend is NCCL if each rank has a GPU of its own, else gloo with
    one thread per rank. Each call begins in the group, with torchrun's variables, even if the last one left the group.

    A rank that does not answer for `timeout_s` is given up. A silent rank that keeps its core busy is inside one long C
    call; it gets ten times `timeout_s`. What the ranks start (forks, programs) ends with them. On a shared server the
    program of a different user can connect to the ports that gloo opens on loopback, and disturb a group that forms:
    gloo does not check who connects. The ranks then start again, once.

    Args:
        world_size: Number of ranks, from 1 to 64; a warning is given if it exceeds the number of CPU cores.
        timeout_s: Seconds after which a collective fails, and after which a rank that does not answer is given up.
        preload: Names of modules that the ranks import once for all, and share the memory of, where ranks are forks.

    Raises:
        TypeError: If world_size is not a whole number, timeout_s is not a number, or preload is not a list of texts.
        ValueError: If world_size is outside 1..64, timeout_s is not finite and above 0, or
            preload has a text that names no module.
        OSError: On Windows, where there are no such pools.

    Example:
        >>> import os
        >>> with Workers(2) as workers:
        ...     first = workers.run(os.getpid)
        ...     print(len(set(first)), workers.run(os.getpid) == first)  # two processes, which stay
        2 True
    """

    def __init__(self, world_size: int, timeout_s: float = 60, *, preload: Sequence[str] = ()) -> None:
        self.world_size = positive_int("world_size", world_size, MAX_RANKS, "Each rank is a process.")
        self.timeout_s = positive_number("timeout_s", timeout_s)
        self.preload = all_of("preload", preload, module_name)
        self.backend = "nccl" if num_gpus() >= world_size else "gloo"
        if why := why_no_ranks():
            raise OSError(why)
        if self.backend == "gloo" and world_size > num_cores():
            warnings.warn(
                f"{world_size} ranks share {num_cores()} CPU cores: it works, and is no faster than fewer ranks.",
                stacklevel=2,
            )
        self._ranks: list[RankHandle] = []
        self._records: dict[int, FlightRecord] = {}  # of the last failure
        self._cell = Cell()
        self._call: _Call | None = None  # the one that has not ended
        self._num_calls = 0
        self._state = threading.Lock()  # guards the two above
        self._pipes = threading.RLock()  # guards the ranks: nobody closes a pipe that another thread reads
        self._finalize = weakref.finalize(self, end_all, self._ranks)  # also when the interpreter ends

    def __enter__(self: _Pool) -> _Pool:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def run(self, fn: Callable[..., Any], *args: Any) -> list[Any]:
        """Call `fn(*args)` on every rank; return the results in rank order.

        What a rank and its child processes write appears in the calling cell, as "[rank 0] ...". An interrupt ends the
        ranks; the next call starts new ones. Modules of your own that were edited are imported again.

        Args:
            fn: The function; it may be defined in a cell, and finds its rank with `dist.get_rank()`.
            *args: Its arguments, copied to every rank.

        Returns:
            A list with the result of each rank, in rank order.

        Raises:
            WorkersError: If a rank fails, dies or does not answer; the message names the rank at fault, or says that it
                is not sure, with a traceback and what the other ranks were doing. Also if a result exists in a rank
                only: the ranks stay then.
            TypeError: If fn is not a function, is async or yields, or if something cannot be pickled.
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
        require_plain_function(
            "fn", fn, hint="Use stream for a function that yields, and asyncio.run for an async one."
        )
        with contextlib.closing(self._messages(fn, args)) as messages:
            for kind, _, value in messages:
                if kind == "event":
                    emit(value[0], **value[1])
                elif kind == "results":
                    results = value
        return [load_answer(rank, result) for rank, result in enumerate(results)]

    def stream(self, fn: Callable[..., Any], *args: Any) -> Generator[tuple[int, Any], None, None]:
        """Call `fn(*args)`, a generator function, on every rank; yield its items while the ranks run.

        Leaving the loop early ends the ranks, since they may be in the middle of a step; the next call starts new ones.

        Args:
            fn: The generator function; it may be defined in a cell.
            *args: Its arguments, copied to every rank.

        Yields:
            (rank, item) for each item that a rank yields: in order for each rank, in any order between ranks.

        Raises:
            TypeError: If fn is not a generator function, immediately.
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
        require_generator_function(fn)
        return self._items(fn, args)

    def _items(self, fn: Callable[..., Any], args: tuple[Any, ...]) -> Generator[tuple[int, Any], None, None]:
        with contextlib.closing(self._messages(fn, args)) as messages:
            for kind, rank, value in messages:
                if kind == "item" and rank is not None:
                    yield rank, load_answer(rank, value)

    def flight_records(self) -> dict[int, FlightRecord]:
        """Return {rank: its last collectives, and where it is} of the call that hangs or of the last one that ran.

        Another thread may ask during a call. Takes 1 s at most; after a failure they are those that were kept then.
        """
        return ask_records(list(self._ranks), self._pipes, lambda: self._call is None) or self._records

    def stop(self) -> None:
        """End the ranks immediately; a call that waits for them in another thread raises Stopped."""
        with self._state:
            if self._call is not None:
                self._call.stopped = True
        for starter in {rank.starter for rank in list(self._ranks)}:
            starter.kill()

    def close(self) -> None:
        """End the ranks and all that they have started, and remove what they left behind; may be called twice.

        A call that waits for them in another thread raises Stopped.
        """
        with interrupts_held():
            if self._call is not None:
                self.stop()
            with self._pipes:
                leave, deadline = pack(("job", 0, None)), time.monotonic() + LEAVE_S
                for rank in self._ranks:
                    rank.pipe.send(leave)
                for rank in self._ranks:
                    rank.starter.exitcode(rank.rank, max(0.0, deadline - time.monotonic()))
                self._finalize()
                self._finalize = weakref.finalize(self, end_all, self._ranks)
            self._call = None

    def _messages(self, fn: Callable[..., Any], args: tuple[Any, ...]) -> Generator[RankMessage, None, None]:
        """Yield ("item" | "event", rank, value) of one call on all ranks; at the end ("results", None, list)."""
        call = _Call()
        try:
            try:
                self._begin(call)
                job = pack(("job", call.number, pickled_job(fn, args, self.world_size)))
                call.uses_ranks = True
                if not self._ranks or not all(rank.alive() for rank in self._ranks):
                    self._start(call)
                with self._held(call):
                    for rank in self._ranks:
                        rank.begin(call.number)
                        rank.pipe.send(job)
                yield from self._answers(call, "result")
                call.done = True
            finally:
                self._end(call)
        finally:
            self._end(call)  # a second interrupt may come just before the first `_end`

    def _begin(self, call: _Call) -> None:
        with self._state:
            if self._call is not None:
                busy = "These workers are busy with another call: wait for it, stop() it, or make a second pool."
                raise RuntimeError(busy)
            self._num_calls += 1
            self._call, call.number, self._records = call, self._num_calls, {}

    def _end(self, call: _Call) -> None:
        """End the ranks unless all have answered; the next call may begin. Does nothing the second time."""
        with interrupts_held(), self._pipes:
            if self._call is call:
                if call.uses_ranks and not call.done:
                    end_all(self._ranks)
                self._call = None

    def _start(self, call: _Call) -> None:
        """Start the ranks, a second time if they cannot form their group: another process may have disturbed them."""
        for last_try in (False, True):
            with interrupts_held(), self._held(call):
                end_all(self._ranks)
                self._ranks.extend(start_ranks(self.world_size, self.backend, self.timeout_s, self.preload))
            try:
                list(self._answers(call, "ready", START_S))
                return
            except WorkersError as error:
                if last_try or any(report["state"] == "died" for report in error.reports.values()):
                    raise

    @contextlib.contextmanager
    def _held(self, call: _Call) -> Generator[None, None, None]:
        """Keep other threads from ending the ranks; raise Stopped if one has done so."""
        with self._pipes:
            if call.stopped:
                raise Stopped
            yield

    def _answers(self, call: _Call, last: str, limit_s: float = math.inf) -> Generator[RankMessage, None, None]:
        """Print or yield what the ranks send until each has sent its `last`; raise WorkersError if one cannot."""
        deadline, num_joining, results = time.monotonic() + limit_s, 0, dict[int, Any]()
        while len(results) < self.world_size:
            waiting = [rank for rank in self._ranks if rank.rank not in results]
            if not waiting:  # the interpreter ends, and has ended the ranks
                raise Stopped
            emit("waiting")  # a panel's listener raises Stopped here
            with self._held(call):
                received = [(r.rank, *message) for r in wait(waiting, PING_S / 4) for message in r.receive()]
                # Not after the loop below: its yields may take longer than a time-out, and answers may have come since.
                # While the ranks start they cannot answer: they import PyTorch.
                late = last == "result" and any(rank.given_up(self.timeout_s) for rank in waiting)
            for rank, kind, value in received:
                if kind == last:
                    results[rank] = value
                elif kind == "joining":
                    num_joining += 1
                    deadline = time.monotonic() + JOIN_S if num_joining == self.world_size else deadline
                elif kind in ("print", "bar"):
                    self._cell.show(rank, kind, value)
                elif kind in ("item", "event"):
                    yield kind, rank, value
                elif kind in ("error", "died"):
                    self._fail(call)
            if late or time.monotonic() > deadline:
                self._fail(call)
        yield "results", None, [results[rank] for rank in range(self.world_size)]

    def _fail(self, call: _Call) -> NoReturn:
        """Collect what each rank was doing, end all ranks, and raise one error."""
        with self._held(call):
            reports, self._records = last_reports(self._ranks)
            if call.stopped or not reports:  # in the meantime, or by the interpreter, which ends
                raise Stopped
        at_fault, message = describe_failure(reports, self.timeout_s, self._records)
        raise WorkersError(message, at_fault, reports, self._records)
