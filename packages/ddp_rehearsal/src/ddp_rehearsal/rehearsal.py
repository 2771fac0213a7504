"""`rehearse`: run a script on several ranks for a few steps, and say what is wrong with it."""

import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from ddp_rehearsal.endings import could_not_run, how_it_ended, where_ranks_are
from ddp_rehearsal.finding import Finding
from ddp_rehearsal.gpu_arguments import gpu_arguments
from ddp_rehearsal.observations import Forward, LoaderBegins, Memory, RankObservations, Scheduled, Update
from ddp_rehearsal.ranks import Run, run_ranks
from ddp_rehearsal.rules import RULES, minibatch_rows, replicas
from ddp_rehearsal.same_as_one import compare_with_one
from notebook_ranks.flight_recorder import FlightRecord
from notebook_ranks.shared.checks import positive_int, positive_number
from notebook_ranks.shared.format import format_bytes

__all__ = ["Rehearsal", "judge", "rehearse", "with_comparison"]

UNKNOWN = (
    "Not known without GPUs: speed, errors of NCCL itself, kernels that round differently, and the memory that CUDA "
    "takes."
)
# on real GPUs
NOT_LOOKED_AT = "Not looked at: speed, the memory that CUDA takes, and, with one GPU, messages between GPUs."
SIZES = (8, 24, 80)  # GB of usual GPUs
MOST_RANKS = 64
FIRST = ("copies", "examples", "devices", "hang", "error")  # kinds of findings without which runs are compared
SEED = 0  # of runs that are compared


@dataclass(frozen=True)
class Rehearsal:
    """What a rehearsal found. `error` says why the script could not be run, "" if it could.

    `findings` are sure, `notes` are something to look at, and `facts` are sentences about the run. `records` and
    `outputs` hold the last collectives and the last lines of each rank. `same_as_one` says whether a comparison has
    shown that the updates are those of a run on one GPU; None without a comparison.
    """

    command: str
    gpus: int
    are_real: bool
    steps: int
    seconds: float
    findings: Sequence[Finding] = ()
    notes: Sequence[Finding] = ()
    facts: Sequence[str] = ()
    error: str = ""
    records: Mapping[int, FlightRecord] = field(default_factory=dict)
    outputs: Mapping[int, str] = field(default_factory=dict)
    same_as_one: bool | None = None

    @property
    def exit_code(self) -> int:
        """0 without findings; 1 with, or if runs were not shown to be the same; 2 if the script could not be run."""
        return 2 if self.error else int(bool(self.findings) or self.same_as_one is False)

    @property
    def unknown(self) -> str:
        """The sentence about what the run did not find out."""
        return NOT_LOOKED_AT if self.are_real else UNKNOWN


def rehearse(
    script: str,
    arguments: Sequence[str] = (),
    gpus: int = 2,
    steps: int = 20,
    patience_s: float = 15.0,
    limit_s: float = 600.0,
    same: str | None = None,
) -> Rehearsal:
    """Run a script as `torchrun --nproc-per-node=GPUS` would, and return what was found.

    Each rank is a process with one GPU: a real one where the machine has enough, else a pretend one on the CPU. The
    run ends after `steps` updates by an optimizer on all ranks, or earlier if the script ends, fails or hangs.

    With `same` the script runs a second time, on one GPU, and the updates of both runs are compared: the first step and
    tensor in which they differ by more than rounding. Random numbers of rank 0 begin alike in both.

    Args:
        script: the path of a Python file.
        arguments: the script's own arguments.
        gpus: how many ranks, up to 64.
        steps: updates after which the run ends.
        patience_s: seconds without any progress, in a collective, after which the ranks count as hanging.
        limit_s: seconds after which a run ends, whatever it does.
        same: further arguments, in which {256/k} is 256 on one GPU and 64 on four; "" for none.

    Raises:
        TypeError, ValueError: for other numbers, and for an expression in `same` whose value is not whole.
        FileNotFoundError: if there is no such script.

    Example:
        >>> rehearse("train_ddp.py", ["--synthetic", "512"], gpus=2, steps=4).exit_code
        0
    """
    gpus, steps = positive_int("gpus", gpus, most=MOST_RANKS), positive_int("steps", steps)
    patience_s, limit_s = positive_number("patience_s", patience_s), positive_number("limit_s", limit_s)
    if not os.path.isfile(script):
        raise FileNotFoundError(f"{script}: expected the path of a Python file, got none. Is it in a different folder?")
    are_real = torch.cuda.device_count() >= gpus
    seed = None if same is None else SEED
    of_one, of_all = ([*arguments, *(gpu_arguments(same, k) if same is not None else ())] for k in (1, gpus))
    run = run_ranks(script, of_all, gpus, steps, patience_s, limit_s, not are_real, seed)
    found = judge(run, " ".join([script, *of_all]), are_real)
    if same is None or found.error:
        return found
    if any(finding.kind in FIRST for finding in found.findings):
        fact = "Not compared with 1 GPU: mend what was found first."
        return replace(found, facts=[fact, *found.facts], same_as_one=False)
    on_one = run_ranks(script, of_one, 1, steps, patience_s, limit_s, not are_real, seed)
    return with_comparison(found, run, on_one)


def judge(run: Run, command: str = "", are_real: bool = False) -> Rehearsal:
    """Return the rehearsal of a run: all rules on its observations."""
    ended = how_it_ended(run)
    found = [*ended, *(finding for rule in RULES for finding in rule(run.observed))]
    steps = min(one.num_updates for one in run.observed)
    return Rehearsal(
        command,
        len(run.observed),
        are_real,
        steps,
        run.seconds,
        [finding for finding in found if finding.is_sure],
        [finding for finding in found if not finding.is_sure],
        [*_where_it_hangs(run), *_facts(run.observed, run.ending == "enough")],
        could_not_run(run),
        run.records,
        run.outputs,
    )


def with_comparison(found: Rehearsal, run: Run, on_one: Run) -> Rehearsal:
    """Return a rehearsal with what the comparison with the same run on one GPU adds to it."""
    if error := could_not_run(on_one):
        return replace(found, error=f"On 1 GPU: {error}", outputs=on_one.outputs)
    if on_one.ending != "enough":
        more = [replace(finding, words=f"on 1 GPU {finding.words}", ranks=()) for finding in how_it_ended(on_one)]
        fact, same = "Not compared with 1 GPU.", False
    else:
        compared = compare_with_one(on_one.observed[0], run.observed)
        more, same = [compared.finding] if compared.finding else [], compared.finding is None
        n = compared.steps
        fact = f"The same as on 1 GPU in {n} step{'s' * (n != 1)}, rounding aside (at most {compared.largest:.0e})."
        fact = fact if n else ""
        if compared.ended:
            fact += f" In later ones only examples and learning rates were compared: {compared.ended}."
        if same and len(run.observed) > 1 and not replicas(run.observed):
            fact, same = f"{fact} That is rank 0 alone: the other ranks train other weights.", False
    return replace(
        found,
        findings=[*found.findings, *(finding for finding in more if finding.is_sure)],
        notes=[*(finding for finding in more if not finding.is_sure), *found.notes],
        facts=[*filter(None, [fact, "Both runs were without TF32." if found.are_real else ""]), *found.facts],
        same_as_one=same,
    )


def _where_it_hangs(run: Run) -> list[str]:
    return [f"At the end {', '.join(where_ranks_are(run))}."] if run.ending in ("hang", "idle") else []


def _facts(observed: Sequence[RankObservations], ended_well: bool) -> list[str]:
    """Return sentences about the minibatch, the learning rate, the copies and the memory."""
    updates = observed[0].of(Update)
    if not updates:
        return ["No step of an optimizer was seen, so that weights and gradients were not compared."]
    facts = []
    rows = [_usual_minibatch(one) for one in observed]
    sizes = list(map(len, rows))
    lr = ", ".join(f"{lr:g}" for lr in dict.fromkeys(updates[0].lrs))
    rule = f"{updates[0].name}, learning rate {lr}"
    if len(observed) > 1 and sizes[0] and all(of == rows[0] for of in rows):
        facts.append(f"Minibatch: {sizes[0]} rows, the same on all ranks. {rule}.")
    elif all(sizes):
        each = f"{len(sizes)} × {sizes[0]}" if len(set(sizes)) == 1 else " + ".join(map(str, sizes))
        facts.append(f"Global minibatch: {sum(sizes)} = {each} rows. {rule}.")
    else:
        facts.append(f"{rule}.")
    if scheduled := len(observed[0].of(Scheduled)):
        facts.append(f"Learning rates: {scheduled} steps of a scheduler in {len(updates)} updates.")
    if ended_well and (left := _left_of_the_epoch(observed[0])):
        facts.append(left)
    if len(observed) > 1 and replicas(observed):
        facts.append("The weights are the same on all ranks after each update.")
    memory = [found for one in observed for found in one.of(Memory)]
    if memory:
        facts.append(_memory(max(memory, key=_n_bytes)))
    return facts


def _usual_minibatch(one: RankObservations) -> list[str]:
    """Return the rows of the first step of the usual size: a GradScaler that skips updates makes the first one long."""
    rows = list(minibatch_rows(one).values())
    if not rows:
        return []
    usual = statistics.mode(map(len, rows))
    return next(mine for mine in rows if len(mine) == usual)


def _left_of_the_epoch(one: RankObservations) -> str:
    """Return a sentence if the run was stopped before the end of the first epoch; "" otherwise."""
    trained = {(forward.loader, forward.epoch) for forward in one.of(Forward)}
    for begins in one.of(LoaderBegins):
        others = [key for key in trained if key[0] == begins.loader and key[1] != begins.epoch]
        if (begins.loader, begins.epoch) in trained and not others and begins.num_batches > one.num_updates:
            n = begins.num_batches
            return (
                f"The first epoch has not ended: it has {n} minibatches on each rank. See its end with --steps {n + 1}."
            )
    return ""


def _n_bytes(memory: Memory) -> int:
    return memory.parameters + memory.gradients + memory.optimizer + max(0, memory.activations)


def _memory(memory: Memory) -> str:
    parts = {"parameters": memory.parameters, "gradients": memory.gradients, "optimizer": memory.optimizer}
    if memory.activations >= 0:
        parts["kept by the forward pass"] = memory.activations
    said = ", ".join(f"{format_bytes(n)} {name}" for name, n in parts.items())
    fits = next((f"fits in {size} GB" for size in SIZES if _n_bytes(memory) < size * 1e9), "does not fit in 80 GB")
    return f"Memory of a GPU: {said}; {fits} (predicted)."
