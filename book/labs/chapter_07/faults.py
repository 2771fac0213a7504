"""The causes of a hang and other faults, and a small training job in which one rank has the fault that you choose.

The ranks call four collectives in each step, and one after the last step. At the end of a step two neighbours exchange
a tensor.

The same job runs on real ranks (`train_job` in `Workers.run`), and without any, in microseconds (`simulated_records`).
"""

import functools
import math
import os
import random
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any, NoReturn, Protocol, cast

import torch
import torch.distributed as dist

from notebook_ranks.flight_recorder import C10D, Collective, FlightRecord

__all__ = ["CAUSES", "FAULTS", "Job", "first_not_finite", "reduce_gradients", "simulated_records", "train_job"]

CAUSES: dict[str, str] = {
    "uneven": "it took fewer or more steps than the others (uneven minibatches)",
    "missing": "it left out a collective",
    "branch": "it left out collectives at a branch: its own loss was not a number",
    "extra": "it called one more collective than the others",
    "order": "it called two collectives in a different order",
    "size": "it sent a tensor of a different size",
    "dtype": "it sent a tensor of a different type",
    "group": "it called the collective in a different group",
    "send": "it sends and receives in the wrong order, and its neighbour waits, too",
    "data": "it waits for its data",
    "save": "it is still saving, while the others wait at the barrier",
    "dead": "its process has ended",
    "stopped": "its process is stopped",
    "slow": "it is slow, and the others wait for it in every step",
}
# what the fault lab offers: {a line for the reader: a cause of above, "raise", "skip" or "nan"}
FAULTS: dict[str, str] = {
    "raise: an exception on one rank": "raise",
    "kill: one rank is killed": "dead",
    "stop: one rank is stopped, but not ended": "stopped",
    "slow: one rank sleeps 0.25 s in each step": "slow",
    "size: one rank reduces a shorter tensor": "size",
    "skip: one rank leaves out a step": "skip",
    "NaN: one gradient is not a number": "nan",
}
STEPS, SLOW_S, LONG_S = 12, 0.25, 600.0
STEP_S, CALL_S = 0.02, 0.001  # of a simulated step and call


@dataclass(frozen=True)
class Job:
    """A job of `STEPS` steps in which rank `rank` has the fault `cause` in step `step`, counted from 0.

    `cause` is one of `CAUSES`; or "raise" (the rank raises an error), "skip" (it leaves out the whole step) or "nan"
    (its gradient is not a number); or "", a job without a fault. The fault "save" is of rank 0, which alone saves;
    "slow" lasts from its step to the end; the rank of "uneven" takes one step fewer, whatever `step` is. The rank of
    "send" must have a neighbour. `sizes` are the numbers of weights and of biases of the network.
    """

    cause: str
    rank: int
    step: int = 2
    sizes: tuple[int, int] = (1000, 10)

    @classmethod
    def drawn(cls, cause: str, world_size: int, draw: random.Random) -> "Job":
        """Return a job with that cause whose rank, step and sizes are drawn."""
        rank = 0 if cause == "save" else draw.randrange(world_size - world_size % 2 if cause == "send" else world_size)
        step = 1 if cause in ("slow", "save") else draw.randrange(1, STEPS)
        return cls(cause, rank, step, (draw.randrange(200, 5000), draw.randrange(4, 100)))


class Ranks(Protocol):
    """What a job needs of the rank on which it runs: a real one, or a simulated one."""

    rank: int
    world_size: int

    def all_reduce(self, tensor: torch.Tensor, group: object = None) -> None:
        """Sum over the ranks."""

    def broadcast(self, tensor: torch.Tensor) -> None:
        """Copy from rank 0."""

    def barrier(self) -> None:
        """Wait for all ranks."""

    def send(self, tensor: torch.Tensor, dst: int) -> None:
        """Send to a rank, and wait until it receives."""

    def recv(self, tensor: torch.Tensor, src: int) -> Any:
        """Wait for what a rank sends."""

    def sleep(self, seconds: float) -> None:
        """Compute nothing."""

    def end(self, number: int) -> None:
        """End or stop this process by a signal."""

    def second_group(self) -> Any:
        """Return a second group of all ranks."""


def train_job(job: Job, ranks: Ranks | None = None) -> list[bool]:
    """Run the job on this rank of a real group, or on `ranks`.

    Returns, for each step that the rank completed, whether its own gradient was finite before the sum over the ranks.
    """
    here = cast(Ranks, _Real()) if ranks is None else ranks
    second, is_finite = here.second_group(), []
    for step in range(STEPS - (job.cause == "uneven" and here.rank == job.rank)):
        mine = job.cause if here.rank == job.rank and step == job.step else ""
        if mine == "skip":
            continue
        slow = job.cause == "slow" and here.rank == job.rank and step >= job.step
        X = load_batch(here, LONG_S if mine == "data" else SLOW_S if slow else 0.0)
        weights, bias = torch.zeros(job.sizes[0]) * X, torch.zeros(job.sizes[1])
        if mine == "raise":
            raise RuntimeError("a bug on one rank only")
        if mine in ("dead", "stopped"):
            here.end(signal.SIGKILL if mine == "dead" else signal.SIGSTOP)
        if mine == "nan":
            weights = weights * math.nan
        is_finite.append(bool(weights.isfinite().all()))
        loss = torch.tensor(math.nan if mine == "branch" else 0.7)
        if loss.isfinite():  # each rank decides alone
            reduce_gradients(here, weights, bias, mine, second)
        if mine == "extra":
            here.all_reduce(torch.zeros(1))  # "only to print the loss"
        here.broadcast(torch.zeros(3))  # the next learning rate
        if here.rank == 0:
            save_checkpoint(here, LONG_S if mine == "save" else 0.0)
        here.barrier()  # until rank 0 has saved
        swap_with_neighbour(here, mine)
    here.all_reduce(torch.zeros(2))  # of the evaluation: how many are right, of how many
    return is_finite


def first_not_finite(results: Sequence[Sequence[bool]]) -> tuple[int, int] | None:
    """Return (rank, step) of the first gradient that was not finite, from what `train_job` returned on each rank.

    None if all were finite. No flight record shows it: a record has shapes and types, and no values.
    """
    bad = [(step, rank) for rank, is_finite in enumerate(results) for step, ok in enumerate(is_finite) if not ok]
    return min(bad)[::-1] if bad else None


def load_batch(here: Ranks, seconds: float) -> torch.Tensor:
    """Stand for a data loader that takes `seconds`."""
    here.sleep(seconds)
    return torch.ones(())


def save_checkpoint(here: Ranks, seconds: float) -> None:
    """Stand for a file system that takes `seconds`."""
    here.sleep(seconds)


def reduce_gradients(here: Ranks, weights: torch.Tensor, bias: torch.Tensor, mine: str, second: object) -> None:
    """Sum two gradients over the ranks; `mine` is the fault of this rank now."""
    if mine == "size":
        weights = weights[: len(weights) // 2]
    if mine == "dtype":
        weights = weights.double()
    if mine == "order":
        here.all_reduce(bias)
        here.all_reduce(weights)
        return
    if mine != "missing":
        here.all_reduce(weights, group=second if mine == "group" else None)
    here.all_reduce(bias)


def swap_with_neighbour(here: Ranks, mine: str) -> None:
    """Exchange a tensor with the neighbour, 0 with 1 and 2 with 3; the even rank sends first."""
    is_even = here.rank % 2 == 0
    neighbour = here.rank + 1 if is_even else here.rank - 1
    if neighbour >= here.world_size:  # the last one of an odd number of ranks has none
        return
    if is_even != (mine == "send"):
        here.send(torch.ones(4), neighbour)
        here.recv(torch.empty(4), neighbour)
    else:
        here.recv(torch.empty(4), neighbour)
        here.send(torch.ones(4), neighbour)


class _Real:
    """A rank of the group that torch.distributed has."""

    def __init__(self) -> None:
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        # torch's own functions: the recorder then names the job's lines
        self.all_reduce, self.barrier, self.sleep = dist.all_reduce, dist.barrier, time.sleep
        self.broadcast = functools.partial(dist.broadcast, src=0)
        self.send, self.recv = dist.send, dist.recv

    def end(self, number: int) -> None:
        os.kill(os.getpid(), number)

    def second_group(self) -> Any:
        return dist.new_group(list(range(self.world_size)))


_Frames = tuple[tuple[str, int, str], ...]


class _Blocked(Exception):
    """A simulated rank goes no further: `state` and `frames` are those of its report."""

    def __init__(self, state: str, frames: _Frames = ()) -> None:
        super().__init__(state)
        self.state, self.frames = state, frames


class _Simulated:
    """A rank that notes what it calls and waits for nobody, until it ends or is at rest for longer than a time-out."""

    def __init__(self, rank: int, world_size: int) -> None:
        self.rank, self.world_size = rank, world_size
        self.called: list[Collective] = []
        self.sent: list[tuple[str, int, _Frames]] = []  # send or recv, how many collectives came before, the frames
        self.now_s, self.counts = 0.0, {"0": 0, "1": 0}

    def _call(self, name: str, tensor: torch.Tensor | None, group: Any = None) -> None:
        frame = sys._getframe(2)
        number = self.counts[group or "0"] = self.counts[group or "0"] + 1
        sizes = () if tensor is None else (tuple(tensor.shape),)
        dtype = "" if tensor is None else str(tensor.dtype).removeprefix("torch.")
        stack = _stack(frame)
        (file, line, function), path = stack[0], tuple((file, line) for file, line, _ in stack)
        self.called.append(
            Collective(name, sizes, dtype, group=group or "0", number=number, file=file, line=line, function=function,
                       at_s=self.now_s, path=path)
        )  # fmt: skip
        self.now_s += STEP_S if name == "barrier" else CALL_S

    def all_reduce(self, tensor: torch.Tensor, group: object = None) -> None:
        self._call("all_reduce", tensor, group)

    def broadcast(self, tensor: torch.Tensor) -> None:
        self._call("broadcast", tensor)

    def barrier(self) -> None:
        self._call("barrier", None)

    def send(self, tensor: torch.Tensor, dst: int) -> None:
        self._swaps("send")

    def recv(self, tensor: torch.Tensor, src: int) -> None:
        self._swaps("recv")

    def _swaps(self, name: str) -> None:
        of_torch = os.path.join(os.path.dirname(torch.__file__), "distributed", C10D)
        frames = (*_stack(sys._getframe(2))[::-1], (of_torch, 0, name))
        self.sent.append((name, len(self.called), frames))

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        if seconds >= LONG_S:
            self._block("running")

    def end(self, number: int) -> None:
        self._block("died" if number == signal.SIGKILL else "silent")

    def second_group(self) -> Any:
        return "1"

    def _block(self, state: str) -> NoReturn:
        raise _Blocked(state, _stack(sys._getframe(2))[::-1])


def _stack(frame: FrameType | None) -> _Frames:
    """Return the frames of this file, innermost first: (file, line, function) of each."""
    found = []
    while frame is not None and frame.f_code.co_filename == __file__:
        found.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    return tuple(found)


def simulated_records(job: Job, world_size: int) -> dict[int, FlightRecord]:
    """Return the records that `world_size` ranks would give: each one up to the collective in which it waits for ever.

    A collective ends when all ranks of its group have called the same one, with the same sizes and type. A send ends
    when the neighbour receives.
    """
    ranks = [_Simulated(rank, world_size) for rank in range(world_size)]
    ends: dict[int, _Blocked] = {rank: _Blocked("done") for rank in range(world_size)}
    for here in ranks:
        try:
            train_job(job, here)
        except _Blocked as blocked:
            ends[here.rank] = blocked
    for one, other in zip(ranks[::2], ranks[1::2], strict=False):
        stuck = next((both for both in zip(one.sent, other.sent, strict=False) if both[0][0] == both[1][0]), ())
        for here, (_, num_called, frames) in zip((one, other), stuck, strict=False):
            del here.called[num_called:]  # what it would do afterwards does not happen
            ends[here.rank] = _Blocked("error", frames)
    at, time_s = _advance(ranks)
    groups = {name: tuple(range(world_size)) for name in ("0", "1")}
    return {r: _record_of(ranks[r], at, ends[r], groups, time_s) for r in range(world_size)}


def _advance(ranks: list[_Simulated]) -> tuple[int, float]:
    """Let the ranks call their collectives while they agree; return how many have ended, and the time of the last.

    Each collective gets the time at which it is called if all before it have waited for the last rank.
    """
    free = [[c.at_s for c in here.called] for here in ranks]  # the times if nobody waits
    at, time_s = 0, 0.0
    while all(at < len(here.called) for here in ranks):
        heads = [here.called[at] for here in ranks]
        if not all(head.agrees(heads[0]) and head.group == heads[0].group for head in heads):
            break
        for r, here in enumerate(ranks):
            alone_s = free[r][at] - (free[r][at - 1] if at else 0.0)
            here.called[at] = replace(heads[r], at_s=time_s + alone_s)
        time_s = max(here.called[at].at_s for here in ranks)
        at += 1
    return at, time_s


def _record_of(
    here: _Simulated, ended: int, end: _Blocked, groups: Mapping[str, tuple[int, ...]], time_s: float
) -> FlightRecord:
    """Return the record of one rank that has ended `ended` of its collectives, and may wait in the next one."""
    if ended < len(here.called):  # it waits there; what it would do afterwards does not happen
        head = here.called[ended]
        called = (*here.called[:ended], replace(head, at_s=time_s + CALL_S))
        frames = ((head.file, head.line, head.function), (C10D, 0, head.name))
        return FlightRecord(here.rank, called, groups=groups, state="error", frames=frames)
    if end.state in ("died", "silent"):
        why = "its process has ended" if end.state == "died" else "it did not answer"
        return FlightRecord(here.rank, (), groups=groups, state=end.state, frames=(), missing=why)
    return FlightRecord(here.rank, tuple(here.called), groups=groups, state=end.state, frames=end.frames)
