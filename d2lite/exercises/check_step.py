"""`check_step`: a learner's training step on several devices against one device, and which bug it looks like."""

import contextlib
import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from d2lite import _malloc
from d2lite._checks import positive_number
from d2lite._text import text_of
from d2lite.exercises.bounded import REASON_CHARS, TookTooLong, at_most, quiet_pool, why_it_ended
from d2lite.exercises.check_replicas import judge_replicas
from d2lite.exercises.finding import UNKNOWN, Finding
from d2lite.exercises.known_bugs import KNOWN_BUGS, RIGHT, Bug, Start, flat, simulate
from d2lite.models import lenet_params
from d2lite.parallel import one_intra_op_thread
from d2lite.training import replicate as copies
from d2lite.workers import Workers, WorkersError

__all__ = ["CASES", "Case", "check_step", "judge_step"]

LIMIT_S = 30.0
EXACT, SINGLE, SAME = 1e-9, 1e-4, 1e-6  # of the largest change: float64, float32 inside, and the same bug
SEED = 11
CPU = torch.device("cpu")
Step = Callable[..., Any]  # train_batch(X, y, device_params, devices, lr)
Make = Callable[..., Any]  # replicate(params, devices)


@dataclass(frozen=True)
class Case:
    """A few steps with minibatches of `n` examples on `k` devices."""

    k: int
    n: int
    steps: int
    lr: float

    def __str__(self) -> str:
        devices, steps = f"{self.k} device{'s' * (self.k > 1)}", f"{self.steps} step{'s' * (self.steps > 1)}"
        return f"{self.n} examples on {devices}, {steps}, lr {self.lr:g}"


CASES = (
    Case(1, 10, 2, 0.05), Case(2, 8, 1, 0.05), Case(2, 7, 2, 0.1), Case(4, 6, 1, 0.05), Case(3, 11, 3, 0.02),
    Case(2, 77, 1, 0.1),
)  # fmt: skip


def check_step(
    train_batch: Step, replicate: Make = copies, *, workers: Workers | None = None, limit_s: float = LIMIT_S
) -> Finding:
    """Run a training step on 1 to 4 devices, compare it with one device, and print and return which bug it looks like.

    The step trains LeNet in float64 on the CPU: shards of unequal sizes, fewer examples than two for each device,
    several steps, other learning rates. The verdict passes if all replicas equal one device. Otherwise it names most
    bugs only if the step computes what that bug computes, in every case. Four are named by other signs: memory that
    replicas share, initial weights that differ, gradients that are equal after an update with other ones, and random
    numbers that two replicas have in common. Else it says "different, cause unknown", and in which case, by how much,
    and whether the replicas are still copies.

    The step runs in a process of its own, which has ended afterwards, and for `limit_s` seconds at most.

    Args:
        train_batch: train_batch(X, y, device_params, devices, lr) updates LeNet's parameters in place. X is float64
            [b, 1, 28, 28], y is int64 [b], with b at least the number of devices. What it returns is ignored.
        replicate: replicate(params, devices) returns one list of parameters per device, for your own one.
        workers: a pool to run in, which stays, for several checks in a row; its rank 0 does the work.
        limit_s: seconds for all cases together; the start of the process does not count.

    Raises:
        TypeError: if train_batch or replicate is no function, or cannot be sent to a process.
        ValueError: if limit_s is not above 0.

    Example:
        >>> from d2lite import train_batch
        >>> check_step(train_batch).passed
        equal: 6 of 6 cases: k devices equal one, uneven shards included.
        True
    """
    for name, function in (("train_batch", train_batch), ("replicate", replicate)):
        if not callable(function):
            raise TypeError(f"{name}: expected a function, got {type(function).__name__}. Pass its name, uncalled.")
    positive_number("limit_s", limit_s)
    verdict = _bounded(train_batch, replicate, workers, limit_s)
    print(verdict)
    return verdict


def _bounded(train_batch: Step, replicate: Make, workers: Workers | None, limit_s: float) -> Finding:
    if os.name == "nt":  # no pools: without a bound, and in this process
        return judge_step(train_batch, replicate)
    with contextlib.ExitStack() as stack:
        if workers is None:
            workers = stack.enter_context(quiet_pool(1))
        workers.run(judge_replicas, [[torch.zeros(1)]])  # the start is not part of the limit
        try:
            with at_most(limit_s, workers):
                found: Finding = workers.run(_on_rank_0, train_batch, replicate)[0]
            return found
        except TookTooLong as error:
            return Finding(False, "did not end", f"{error}. Is there a loop without an end?")
        except WorkersError as error:
            return Finding(False, "error", why_it_ended(error))


def _on_rank_0(train_batch: Step, replicate: Make) -> Finding | None:
    if dist.get_rank() != 0:
        return None
    found = judge_step(train_batch, replicate)
    _malloc.give_back()  # otherwise a pool that stays keeps what was freed
    return found


def judge_step(train_batch: Step, replicate: Make = copies) -> Finding:
    """Return the verdict of `check_step`, in this process and without a limit of time."""
    with one_intra_op_thread([CPU]):
        return _judged(train_batch, replicate)


def _judged(train_batch: Step, replicate: Make) -> Finding:
    results: list[tuple[Case, list[torch.Tensor]]] = []
    most, wrong, notes = 0.0, None, []
    for case in CASES:
        try:
            made = replicate([p.clone() for p in _params()], [CPU] * case.k)
            if not (start := judge_replicas(made)).passed:
                return _wrong_start(start, train_batch, made, case)
            _run(train_batch, made, case)
            got = [flat(params).double() for params in made]
            off = _distance(got, _simulated(RIGHT, case), case)
        except Exception as error:
            what = f"{type(error).__name__}: {text_of(error)[:REASON_CHARS]}"
            return Finding(False, "error", f"it raised {what} ({case}).")
        results.append((case, got))
        most = max(most, off)
        if not off <= SINGLE and wrong is None:
            wrong = len(results) - 1
        if case.k > 1 and not off <= SINGLE:
            notes.append(_equal_gradients(made))
    if wrong is None:
        return _passed(most)
    if bug := _bug(results):
        case = results[wrong][0]
        name, words = bug.name, bug.words
        if name == "no all-reduce" and all(notes):
            name = "update before all-reduce"
            words = "each replica is updated with its own gradient; the gradients are added up only afterwards."
        return Finding(False, name, f"{words} (First case that differs: {case}.)")
    try:
        random = _random(train_batch, replicate)
    except Exception:  # it has run before: it keeps something between calls
        random = ""
    if random == "same":
        words = (
            "on one device each example has random numbers of its own, on two devices both shards get the same ones."
        )
        return Finding(False, "same random numbers on each replica", f"{words} Make the rank a part of the seed.")
    return _unknown(*results[wrong], is_random=bool(random))


@functools.cache
def _params() -> tuple[torch.Tensor, ...]:
    """The parameters before the first step; nothing writes into them."""
    return tuple(p.double() for p in lenet_params(SEED))


@functools.cache
def _start(case: Case) -> Start:
    return Start(_params(), case.k, _batches(case), case.lr)


@functools.lru_cache(8)  # up to 4 MB each
def _simulated(bug: Bug, case: Case) -> list[torch.Tensor]:
    """Return what a bug gives in a case; kept, because most checks need it again."""
    return simulate(bug, _start(case))


@functools.cache
def _batches(case: Case) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(SEED + case.n)
    return [_examples(case.n, generator) for _ in range(case.steps)]


def _examples(n: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    X = torch.rand(n, 1, 28, 28, generator=generator, dtype=torch.float64)
    return X, torch.randint(0, 10, (n,), generator=generator)


def _run(train_batch: Step, device_params: Any, case: Case) -> None:
    for X, y in _batches(case):
        train_batch(X.clone(), y.clone(), device_params, [CPU] * case.k, case.lr)


def _distance(got: list[torch.Tensor], other: list[torch.Tensor], case: Case) -> float:
    """Return the largest difference between two results, over the largest change that is right; NaN counts as 1."""
    change = float((_simulated(RIGHT, case)[0] - _start(case).params).abs().max())
    apart = [float((p - q).abs().max().nan_to_num(change)) for p, q in zip(got, other, strict=True)]
    return max(apart) / change


def _equal_gradients(device_params: list[list[torch.Tensor]]) -> bool:
    """Return whether the gradients that a step has left are there, not zero, and the same on all replicas."""
    grads = [[p.grad for p in params] for params in device_params]
    if any(grad is None for own in grads for grad in own):
        return False
    is_zero = all(not bool(grad.any()) for own in grads for grad in own if grad is not None)
    return not is_zero and all(torch.allclose(a, b) for own in grads for a, b in zip(grads[0], own, strict=True))  # type: ignore[arg-type]


def _passed(most: float) -> Finding:
    words = f"{len(CASES)} of {len(CASES)} cases: k devices equal one, uneven shards included."
    if most > EXACT:
        words += f" The differences of up to {most:.0e} of a step are those of 32-bit numbers: something is in float32."
    return Finding(True, "equal", words)


def _wrong_start(start: Finding, train_batch: Step, made: Any, case: Case) -> Finding:
    """Return the verdict on replicas that are no copies before the first step; for shared memory with what it does."""
    if start.name != "aliased replicas":
        if start.name == "different replicas":
            words = start.words.split(" Before", 1)[0]
            return Finding(False, "different initial weights", f"before the first step, {words} Copy one to all.")
        return start
    _run(train_batch, made, case)
    times = _times(flat(made[0]).double(), case)
    far = f"({case}: they have moved {times:.3g} times as far as one device.)"
    return Finding(False, start.name, f"{start.words} {far}")


def _bug(results: list[tuple[Case, list[torch.Tensor]]]) -> Bug | None:
    """Return the first bug that computes the same in all cases; those of one step are compared first, being fast."""
    order = sorted(results, key=lambda result: (result[0].steps, result[0].n))
    for bug in KNOWN_BUGS:
        if all(_distance(got, _simulated(bug, case), case) <= SAME for case, got in order):
            return bug
    return None


def _random(train_batch: Step, replicate: Make) -> str:
    """Return "same" if two replicas draw the same random numbers, "random" if numbers are drawn, else "".

    A minibatch holds the same examples twice, so that the mean gradient over it is that over one half, unless the
    halves have random numbers of their own: they have on one device, and two devices must differ from that as well.
    """
    X, y = _examples(4, torch.Generator().manual_seed(SEED))
    once, twice, on_two = (
        _moved(train_batch, replicate, X.repeat(times, 1, 1, 1), y.repeat(times), k)
        for times, k in ((1, 1), (2, 1), (2, 2))
    )
    change = float((once - flat(_params())).abs().max())
    if float((twice - once).abs().max()) <= SAME * change:
        return ""
    return "same" if float((on_two - once).abs().max()) <= SAME * change else "random"


def _moved(train_batch: Step, replicate: Make, X: torch.Tensor, y: torch.Tensor, k: int) -> torch.Tensor:
    torch.manual_seed(SEED)
    made = replicate([p.clone() for p in _params()], [CPU] * k)
    train_batch(X, y, made, [CPU] * k, 0.1)
    return flat(made[0])


def _times(got: torch.Tensor, case: Case) -> float:
    """Return how many times as far as it should replica 0 has moved."""
    begin = _start(case).params
    return float((got - begin).norm() / (_simulated(RIGHT, case)[0] - begin).norm())


def _unknown(case: Case, got: list[torch.Tensor], is_random: bool) -> Finding:
    words = f"the first case that differs is {case}. "
    words += f"Replica 0 has moved {_times(got[0], case):.3g} times as far as one device."
    if case.k > 1:
        same = judge_replicas([[p] for p in got]).passed
        words += " The replicas are still copies." if same else " The replicas are no longer copies."
    if is_random:
        words += " The step draws random numbers; without them it could be compared."
    return Finding(False, UNKNOWN, words)
