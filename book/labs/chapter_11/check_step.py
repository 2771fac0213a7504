"""`check_step`: a learner's training step on several devices against one device, and which bug it looks like."""

import contextlib
import functools
import os
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from d2lite.exercises.learner_pool import REASON_CHARS, quiet_pool, why_it_ended
from d2lite.exercises.learner_time_limit import TookTooLong, time_limit
from d2lite.replica_threads import one_intra_op_thread
from d2lite.training import replicate as copies
from d2lite.workers import Workers, WorkersError
from ddp_rehearsal.tolerances import FLOAT32_STEP_RTOL, FLOAT64_STEP_RTOL, SAME_BUG_RTOL, SIXTEEN_BIT_STEP_RTOL
from notebook_ranks.shared import malloc as _malloc
from notebook_ranks.shared.checks import positive_number, true_or_false
from notebook_ranks.shared.format import text_of

from .bug_formulas import KNOWN_BUGS, MASKED_BUGS, RIGHT, Bug, simulate
from .check_replicas import judge_replicas
from .fitted_bugs import fitted_bugs
from .step_case import CASES, MASKED_CASES, SEED, Replicate, StepCase, TrainBatch, examples, flat, start_params
from .verdict import Verdict

__all__ = ["check_step", "judge_step"]

LIMIT_S = 30.0
CPU = torch.device("cpu")

# what is said of a step whose bug has no name
SAME = "same"
DRAWS = " The step draws random numbers; without them it could be compared."
STATE = (
    " Two calls with the same seed differ: the step keeps something between calls, such as an optimizer or a generator."
)
ALIKE = (
    " Your step gives the same weights on several devices as on one. The split is right; something else differs from "
    "plain SGD."
)


def check_step(
    train_batch: TrainBatch,
    replicate: Replicate = copies,
    *,
    workers: Workers | None = None,
    limit_s: float = LIMIT_S,
    masked: bool = False,
) -> Verdict:
    """Run a training step on 1 to 4 devices, compare it with one device, and print and return which bug it looks like.

    The step trains LeNet in float64 on the CPU: shards of unequal sizes, fewer examples than two for each device,
    several steps, several learning rates. The verdict passes if all replicas equal one device. Otherwise it names the
    bug. Most bugs are named only if the step computes exactly what the bug computes, in every case; a divisor, a norm
    or a momentum that belongs to the bug is read from one case and must fit the others. Four bugs are recognised by
    other signs: two replicas share memory; the initial weights of the replicas differ; the replicas were updated with
    different gradients, and hold equal ones afterwards; or two replicas draw the same random numbers. If no bug fits,
    the verdict is called "different, cause unknown". Its words are about one step, if one step differs: in which case,
    which tensors differ, how many times as far as one device replica 0 has moved, whether in the same direction, and
    whether the replicas are still copies. They also say whether the step draws random numbers (two seeds tell), and
    whether it does on several devices what it does on one.

    The step runs in a process of its own, for `limit_s` seconds at most. The process has ended when the check returns.

    Args:
        train_batch: train_batch(X, y, device_params, devices, lr) updates LeNet's parameters in place. X is float64
            [b, 1, 28, 28], y is int64 [b], with b at least the number of devices. What it returns is ignored.
        replicate: replicate(params, devices) returns one list of parameters per device. Pass your own function to
            check it together with the step.
        workers: a pool whose rank 0 runs the check. It stays open, so that several checks in a row start no process.
        limit_s: the limit of time in seconds, for all cases together; the start of the process does not count.
        masked: two examples of the first shard have the label -100, which cross_entropy leaves out, as it does with
            places without a character. Right is the mean over the labels of all shards.

    Raises:
        TypeError: if train_batch or replicate is not a function, or cannot be sent to a process; if masked is no bool.
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
    true_or_false("masked", masked)
    verdict = _bounded(train_batch, replicate, workers, limit_s, masked)
    print(verdict)
    return verdict


def _bounded(
    train_batch: TrainBatch, replicate: Replicate, workers: Workers | None, limit_s: float, masked: bool
) -> Verdict:
    """Return the verdict of a process with a limit of time."""
    if os.name == "nt":  # Windows has no pools: the step runs in this process, without a limit
        return judge_step(train_batch, replicate, masked)
    with contextlib.ExitStack() as stack:
        if workers is None:
            workers = stack.enter_context(quiet_pool(1))
        workers.run(judge_replicas, [[torch.zeros(1)]])  # start the process, which is not part of the limit
        try:
            with time_limit(limit_s, workers):
                found: Verdict = workers.run(_on_rank_0, train_batch, replicate, masked)[0]
            return found
        except TookTooLong as error:
            return Verdict(False, "did not end", f"{error}. Is there a loop without an end?")
        except WorkersError as error:
            return Verdict(False, "error", why_it_ended(error))


def _on_rank_0(train_batch: TrainBatch, replicate: Replicate, masked: bool) -> Verdict | None:
    if dist.get_rank() != 0:
        return None
    found = judge_step(train_batch, replicate, masked)
    _malloc.give_back()  # otherwise a pool that stays open keeps the memory that was freed
    return found


def judge_step(train_batch: TrainBatch, replicate: Replicate = copies, masked: bool = False) -> Verdict:
    """Return the verdict of `check_step`, from this process and without a limit of time."""
    with one_intra_op_thread([CPU]):
        return _verdict_of(train_batch, replicate, MASKED_CASES if masked else CASES)


def _verdict_of(train_batch: TrainBatch, replicate: Replicate, cases: Sequence[StepCase]) -> Verdict:
    results: list[tuple[StepCase, list[torch.Tensor]]] = []
    most, wrong, notes = 0.0, None, []
    for case in cases:
        try:
            made = replicate([p.clone() for p in start_params()], [CPU] * case.k)
            if not (start := judge_replicas(made)).passed:
                return _wrong_start(start, train_batch, made, case)
            _take_steps(train_batch, made, case)
            got = [flat(params).double() for params in made]
            off = _distance(got, _simulated(RIGHT, case), case)
        except Exception as error:
            what = f"{type(error).__name__}: {text_of(error)[:REASON_CHARS]}"
            return Verdict(False, "error", f"it raised {what} ({case}).")
        results.append((case, got))
        most = max(most, off)
        if not off <= FLOAT32_STEP_RTOL and wrong is None:
            wrong = len(results) - 1
        if case.k > 1 and not off <= FLOAT32_STEP_RTOL:
            notes.append(_equal_gradients(made))
    if wrong is None:
        return _passed(most, len(cases))
    if bug := _bug(results):
        case = results[wrong][0]
        name, words = bug.name, bug.words
        if name == "no all-reduce" and all(notes):
            name = "update before all-reduce"
            words = "each replica is updated with its own gradient; the gradients are added up only afterwards."
        return Verdict(False, name, f"{words} (First case that differs: {case}.)")
    try:
        draws = _draws(train_batch, replicate)
    except Exception:  # it has run before without an error, so it keeps a state between calls
        draws = STATE
    if draws == SAME:
        words = (
            "on one device each example has random numbers of its own; on two devices both shards get the same ones."
        )
        return Verdict(False, "same random numbers on each replica", f"{words} Make the rank a part of the seed.")
    more = draws or (ALIKE if _is_its_own_one_device(train_batch, replicate, results) else "")
    return _unknown_cause(results, most, more)


@functools.lru_cache(8)  # up to 4 MB each
def _simulated(bug: Bug, case: StepCase) -> list[torch.Tensor]:
    """Return what a bug gives in a case; kept, because most checks need it again."""
    return simulate(bug, case)


def _take_steps(train_batch: TrainBatch, device_params: Sequence[Sequence[torch.Tensor]], case: StepCase) -> None:
    for X, y in case.batches:
        train_batch(X.clone(), y.clone(), device_params, [CPU] * case.k, case.lr)


def _distance(got: list[torch.Tensor], other: list[torch.Tensor], case: StepCase) -> float:
    """Return the largest difference between two results, relative to the largest change of a right step.

    NaN counts as a difference of 1.
    """
    change = float((_simulated(RIGHT, case)[0] - flat(start_params())).abs().max())
    apart = [float((p - q).abs().max().nan_to_num(change)) for p, q in zip(got, other, strict=True)]
    return max(apart) / change


def _equal_gradients(device_params: list[list[torch.Tensor]]) -> bool:
    """Return whether every parameter has a gradient after the step, equal on all replicas and not zero everywhere."""
    grads = [[p.grad for p in params] for params in device_params]
    if any(grad is None for own in grads for grad in own):
        return False
    is_zero = all(not bool(grad.any()) for own in grads for grad in own if grad is not None)
    return not is_zero and all(torch.allclose(a, b) for own in grads for a, b in zip(grads[0], own, strict=True))  # type: ignore[arg-type]


def _passed(most: float, num_cases: int) -> Verdict:
    words = f"{num_cases} of {num_cases} cases: k devices equal one, uneven shards included."
    if most > FLOAT64_STEP_RTOL:
        words += f" They differ by up to {most:.0e} of a step, as 32-bit numbers do: something is in float32."
    return Verdict(True, "equal", words)


def _wrong_start(start: Verdict, train_batch: TrainBatch, made: Any, case: StepCase) -> Verdict:
    """Return the verdict on replicas that are not copies before the first step.

    For replicas that share memory, it also says how far a step then moves them.
    """
    if start.name != "aliased replicas":
        if start.name == "different replicas":
            words = start.words.split(" Before", 1)[0]
            return Verdict(False, "different initial weights", f"before the first step, {words} Copy one to all.")
        return start
    _take_steps(train_batch, made, case)
    times = _times_as_far(flat(made[0]).double(), case)
    far = f"({case}: they have moved {times:.3g} times as far as one device.)"
    return Verdict(False, start.name, f"{start.words} {far}")


def _bug(results: list[tuple[StepCase, list[torch.Tensor]]]) -> Bug | None:
    """Return the first bug that computes the same in all cases. The cases of one step come first: they are fast."""
    order = sorted(results, key=lambda result: (result[0].steps, result[0].n))
    masked = order[0][0].masked
    for bug in MASKED_BUGS if masked else KNOWN_BUGS:
        if all(_distance(got, _simulated(bug, case), case) <= SAME_BUG_RTOL for case, got in order):
            return bug
    for bug in () if masked else fitted_bugs(results):
        if all(_distance(got, simulate(bug, case), case) <= SAME_BUG_RTOL for case, got in order):
            return bug
    return None


def _draws(train_batch: TrainBatch, replicate: Replicate) -> str:
    """Return SAME if two replicas draw the same random numbers; else what is seen of random numbers, or "" if nothing.

    A step draws random numbers if two seeds give different results, on one device. It may also set a seed of its own.
    Then what it makes of an example depends on the place of the example in the minibatch, and several copies of one
    example have a gradient of a different direction than one.

    To see which replica draws what, feed four examples twice. If every copy draws its own numbers, the mean gradient
    changes, on one device and on two. If it changes on one device but not on two, the two replicas have drawn the same
    numbers.
    """
    X, y = examples(4, torch.Generator().manual_seed(SEED))

    def moved(places: list[int], k: int = 1, seed: int = SEED) -> torch.Tensor:
        return _change_in_a_step(train_batch, replicate, X[places], y[places], k, seed)

    half, whole = [0, 1, 2, 3], [0, 1, 2, 3, 0, 1, 2, 3]
    once = moved(half)
    if not _equal(once, moved(half)):
        return STATE
    if _equal(once, moved(half, seed=SEED + 1)):
        copies_of_one = [moved(places) for places in ([0], [0, 0, 0, 0])]
        if _equal(once, moved(half[::-1])) or _parallel(*copies_of_one):
            return ""
    return SAME if not _equal(once, moved(whole)) and _equal(once, moved(whole, k=2)) else DRAWS


def _equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    return float((other - one).abs().max()) <= SAME_BUG_RTOL * float(one.abs().max())


def _parallel(one: torch.Tensor, other: torch.Tensor) -> bool:
    return float(torch.nn.functional.cosine_similarity(one, other, dim=0)) > 1 - SAME_BUG_RTOL**2


def _change_in_a_step(
    train_batch: TrainBatch, replicate: Replicate, X: torch.Tensor, y: torch.Tensor, k: int, seed: int
) -> torch.Tensor:
    """Return the change of the parameters of replica 0 in one step, after all seeds were set."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)
    made = replicate([p.clone() for p in start_params()], [CPU] * k)
    train_batch(X.clone(), y.clone(), made, [CPU] * k, 0.1)
    return flat(made[0]).double() - flat(start_params())


def _is_its_own_one_device(train_batch: TrainBatch, replicate: Replicate, results: list[Any]) -> bool:
    """Return whether the step does on several devices what the same step does on one device."""
    for case, got in results:
        if case.k > 1:
            alone = StepCase(1, case.n, case.steps, case.lr, case.masked)
            made = replicate([p.clone() for p in start_params()], [CPU])
            _take_steps(train_batch, made, alone)
            if not _distance(got, [flat(made[0]).double()] * case.k, case) <= FLOAT32_STEP_RTOL:
                return False
    return True


def _times_as_far(got: torch.Tensor, case: StepCase) -> float:
    """Return how many times as far as it should replica 0 has moved."""
    begin = flat(start_params())
    return float((got - begin).norm() / (_simulated(RIGHT, case)[0] - begin).norm())


def _unknown_cause(results: list[tuple[StepCase, list[torch.Tensor]]], most: float, more: str) -> Verdict:
    wrong = [(c, got) for c, got in results if not _distance(got, _simulated(RIGHT, c), c) <= FLOAT32_STEP_RTOL]
    of_one_step = [(case, got) for case, got in wrong if case.steps == 1]
    case, got = (of_one_step or wrong)[0]  # later steps have other gradients, which hide a factor
    which = "one step" if of_one_step else "the first case that"
    words = f"{which} differs: {case}. {_tensors_that_differ(got, case)} "
    words += f"Replica 0 has moved {_times_as_far(got[0], case):.3g} times as far as one device"
    words += ", in the same direction." if _is_same_direction(got[0], case) else ", in another direction."
    if most <= SIXTEEN_BIT_STEP_RTOL:
        words += f" All cases differ by at most {most:.0e} of a step, as 16-bit numbers may."
    if case.k > 1:
        same = judge_replicas([[p] for p in got]).passed
        words += " The replicas are still copies." if same else " The replicas are no longer copies."
    return Verdict(False, "different, cause unknown", words + more)


def _is_same_direction(got: torch.Tensor, case: StepCase) -> bool:
    begin = flat(start_params())
    moved, right = got - begin, _simulated(RIGHT, case)[0] - begin
    factor = (moved @ right) / (right @ right)
    return bool(factor > 0) and float((moved - factor * right).norm()) <= SAME_BUG_RTOL * float(moved.norm())


def _tensors_that_differ(got: list[torch.Tensor], case: StepCase) -> str:
    """Return a sentence: which parameters differ from those of one device, on any replica."""
    start, right = start_params(), _simulated(RIGHT, case)
    change = (right[0] - flat(start)).abs().max()
    apart = torch.stack([(p - q).abs().nan_to_num(float(change)) for p, q in zip(got, right, strict=True)]).amax(0)
    parts = apart.split([p.numel() for p in start])
    wrong = [i for i, part in enumerate(parts) if not part.max() <= FLOAT32_STEP_RTOL * change]
    if len(wrong) == len(start):
        return f"All {len(start)} tensors differ."
    biases = [i for i, p in enumerate(start) if p.dim() == 1]
    weights = [i for i in range(len(start)) if i not in biases]
    for kind, places in ("weight", weights), ("bias", biases):
        if wrong == places:
            return f"All {'biases' if kind == 'bias' else 'weights'} differ, and nothing else."
        if len(wrong) == 1 and wrong[0] in places:
            which = {places[0]: "first ", places[-1]: "last "}.get(wrong[0], "")
            return f"Only params[{wrong[0]}] differs, {'the ' + which if which else 'a '}{kind}."
    listed = ", ".join(f"params[{i}]" for i in wrong)
    return f"{len(wrong)} of {len(start)} tensors differ: {listed}."
