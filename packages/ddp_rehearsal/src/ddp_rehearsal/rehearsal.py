"""`rehearse`: run a script on several ranks for a few steps, and say what is wrong with it."""

import os
from collections.abc import Collection, Sequence
from dataclasses import replace

import torch

from ddp_rehearsal.bad_endings import could_not_run, how_it_ended
from ddp_rehearsal.finding import KINDS, Rehearsal, with_allowed
from ddp_rehearsal.gpu_arguments import gpu_arguments
from ddp_rehearsal.pretend_gpus.cards import card_of
from ddp_rehearsal.ranks import Outcome, run_ranks
from ddp_rehearsal.report import run_facts, step_costs
from ddp_rehearsal.rules import RULES
from ddp_rehearsal.rules.copies import are_copies
from ddp_rehearsal.same_as_one import compare_with_one
from notebook_ranks.shared.checks import positive_int, positive_number

__all__ = ["rehearsal_of", "rehearse", "with_comparison"]

MOST_RANKS = 64
BEFORE_COMPARING = ("copies", "examples", "devices", "hang", "error")  # with one of these runs are not compared
SEED = 0  # of runs that are compared


def rehearse(
    script: str,
    arguments: Sequence[str] = (),
    gpus: int = 2,
    steps: int = 20,
    *,
    patience_s: float = 15.0,
    limit_s: float = 600.0,
    same: str | None = None,
    card: str = "",
    allow: Collection[str] = (),
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
        card: the card that pretend GPUs stand for, such as "t4", "h100" or "24GB": its memory ends, as predicted.
        allow: kinds of findings, such as "copies", that become notes: what the script does on purpose.

    Raises:
        TypeError, ValueError: for other numbers, an unknown card or kind, and an expression in `same` whose value is
            not whole.
        FileNotFoundError: if there is no such script.

    Example:
        >>> rehearse("train_ddp.py", ["--synthetic", "512"], gpus=2, steps=4).exit_code
        0
    """
    gpus, steps = positive_int("gpus", gpus, most=MOST_RANKS), positive_int("steps", steps)
    patience_s, limit_s = positive_number("patience_s", patience_s), positive_number("limit_s", limit_s)
    if not os.path.isfile(script):
        raise FileNotFoundError(f"{script}: expected the path of a Python file, got none. Is it in a different folder?")
    if card:
        card_of(card)
    if unknown := sorted(set(allow) - set(KINDS)):
        raise ValueError(f"allow: expected kinds of findings ({', '.join(KINDS)}), got {unknown[0]!r}.")
    are_real = torch.cuda.device_count() >= gpus
    of_one, of_all = ([*arguments, *(gpu_arguments(same, k) if same is not None else ())] for k in (1, gpus))

    def ran(arguments: Sequence[str], k: int) -> Outcome:
        seed = None if same is None else SEED
        limits = {"patience_s": patience_s, "limit_s": limit_s}
        return run_ranks(script, arguments, k, steps=steps, pretend=not are_real, seed=seed, card=card, **limits)

    outcome = ran(of_all, gpus)
    found = with_allowed(rehearsal_of(outcome, " ".join([script, *of_all]), are_real), allow)
    if same is None or found.error:
        return found
    if any(finding.kind in BEFORE_COMPARING for finding in found.findings):
        fact = "Not compared with 1 GPU: mend what was found first."
        return replace(found, facts=[fact, *found.facts], same_as_one=False)
    return with_allowed(with_comparison(found, outcome, ran(of_one, 1)), allow)


def rehearsal_of(outcome: Outcome, command: str = "", are_real: bool = False) -> Rehearsal:
    """Return the rehearsal of a run: all rules on its observations."""
    ended, error = how_it_ended(outcome), could_not_run(outcome)
    of_rules = [finding for rule in RULES for finding in rule(outcome.observed)]
    steps = min(one.num_updates for one in outcome.observed)
    if error and steps and any(finding.is_sure for finding in of_rules):  # what was found until then counts
        ended, error = [replace(finding, is_sure=False) for finding in ended], ""
    found = [*ended, *of_rules]
    return Rehearsal(
        command=command,
        gpus=outcome.gpus,
        are_real=are_real,
        steps=steps,
        seconds=outcome.seconds,
        findings=[finding for finding in found if finding.is_sure],
        notes=[finding for finding in found if not finding.is_sure],
        facts=run_facts(outcome),
        error=error,
        records=outcome.records,
        outputs=outcome.outputs,
        is_checked=steps > 0,
        costs=step_costs(outcome),
    )


def with_comparison(found: Rehearsal, outcome: Outcome, on_one: Outcome) -> Rehearsal:
    """Return a rehearsal with what the comparison with the same run on one GPU adds to it."""
    if (error := could_not_run(on_one)) and found.findings:  # what was found on several GPUs counts
        return replace(found, facts=[f"Not compared with 1 GPU: {error}", *found.facts], same_as_one=False)
    if error:
        return replace(found, error=f"On 1 GPU: {error}", outputs=on_one.outputs)
    if on_one.ending != "enough":
        more = [replace(finding, words=f"on 1 GPU {finding.words}", ranks=()) for finding in how_it_ended(on_one)]
        fact, same = "Not compared with 1 GPU.", False
    else:
        compared = compare_with_one(on_one.observed[0], outcome.observed)
        more, same = [compared.finding] if compared.finding else [], compared.finding is None
        n = compared.steps
        fact = f"The same as on 1 GPU in {n} step{'s' * (n != 1)}, rounding aside (at most {compared.largest:.0e})."
        fact = fact if n else ""
        if compared.ended:
            fact += f" In later ones only examples and learning rates were compared: {compared.ended}."
        if same and len(outcome.observed) > 1 and not are_copies(outcome.observed):
            fact, same = f"{fact} That is rank 0 alone: the other ranks train other weights.", False
    return replace(
        found,
        findings=[*found.findings, *(finding for finding in more if finding.is_sure)],
        notes=[*(finding for finding in more if not finding.is_sure), *found.notes],
        facts=[*filter(None, [fact, "Both runs were without TF32." if found.are_real else ""]), *found.facts],
        same_as_one=same,
    )
