"""The report of a rehearsal: the facts of its run in sentences, the text of one screen, and JSON."""

import json
import os
import statistics
from dataclasses import asdict

from ddp_rehearsal.bad_endings import where_ranks_are
from ddp_rehearsal.finding import Finding, Rehearsal
from ddp_rehearsal.fingerprint import MOST_ROWS
from ddp_rehearsal.held_memory import most_held
from ddp_rehearsal.observations import (
    ONE_PROCESS,
    OWN_RANKS,
    Ended,
    Forward,
    LoaderBegins,
    Memory,
    NotObserved,
    Place,
    RankObservations,
    Scheduled,
    Sent,
    Update,
)
from ddp_rehearsal.pretend_gpus.cards import card_of
from ddp_rehearsal.ranks import Outcome
from ddp_rehearsal.rules.copies import are_copies, said_of_copies
from ddp_rehearsal.rules.minibatches import minibatch_rows
from notebook_ranks.shared.format import format_bytes, printable

__all__ = ["place_text", "rank_text", "report_json", "report_text", "run_facts", "step_costs", "verdict_text"]

MOST_NOTES = 4
LAST_LINES = 6
WARNS = "UserWarning: "
USUAL_GB = (8, 24, 80)  # of GPUs


def report_text(rehearsal: Rehearsal) -> str:
    """Return the report for a terminal."""
    lines = [verdict_text(rehearsal), ""]
    if rehearsal.error:
        output = next((out for out in rehearsal.outputs.values() if out.strip()), "")
        printed = output.strip().splitlines()
        lines += [line.partition(WARNS)[2] for line in printed if f"{WARNS}pretend GPUs: " in line]
        return "\n".join([*lines, *printed[-LAST_LINES:]])
    for finding in rehearsal.findings:
        lines += _finding_lines("✗", finding)
    for note in rehearsal.notes[:MOST_NOTES]:
        lines += _finding_lines("?", note)
    if more := len(rehearsal.notes) - MOST_NOTES:
        lines += [f"? and {more} more to look at"] if more > 0 else []
    return "\n".join([*lines, *(f"  {fact}" for fact in rehearsal.facts), f"  {rehearsal.unknown}"])


def verdict_text(rehearsal: Rehearsal) -> str:
    """Return the first line of the report."""
    kind = ("GPU" if rehearsal.are_real else "pretend GPU") + "s" * (rehearsal.gpus != 1)
    run = f"{printable(rehearsal.command)} on {rehearsal.gpus} {kind}"
    if rehearsal.error:
        return f"{run}: could not be run. {printable(rehearsal.error)}"
    n = len(rehearsal.findings)
    said = "nothing found" if not n else f"{n} finding" + "s" * (n > 1)
    said = said if rehearsal.is_checked or n else "not checked"
    if rehearsal.same_as_one is not None:
        said += ", and the same as on 1 GPU" if rehearsal.same_as_one else "; not shown to be the same as on 1 GPU"
    return f"{run}, {rehearsal.steps} step{'s' * (rehearsal.steps != 1)} in {rehearsal.seconds:.0f} s: {said}."


def _finding_lines(mark: str, finding: Finding) -> list[str]:
    where = ", ".join(filter(None, [rank_text(finding), place_text(finding.place)]))
    head = f"{mark} {finding.kind}" + (f" ({where})" if where else "")
    return [f"{head}: {printable(finding.words)}", f"    {printable(finding.repair)}", ""]


def rank_text(finding: Finding) -> str:
    """Return "rank 1, step 3" of a finding; "" if it names none."""
    ranks = ", ".join(map(str, finding.ranks))
    said = f"rank{'s' * (len(finding.ranks) > 1)} {ranks}" if ranks else ""
    return ", ".join(filter(None, [said, f"step {finding.step}" if finding.step else ""]))


def place_text(place: Place | None) -> str:
    """Return "train.py line 12"; "" for no place."""
    return f"{os.path.basename(place[0])} line {place[1]}" if place else ""


def report_json(rehearsal: Rehearsal) -> str:
    """Return the report as JSON, without the collectives."""
    facts = {name: value for name, value in asdict(rehearsal).items() if name not in ("records", "outputs")}
    return json.dumps({"exit_code": rehearsal.exit_code, **facts, "unknown": rehearsal.unknown}, indent=2) + "\n"


def run_facts(outcome: Outcome) -> list[str]:
    """Return sentences about a run: where it hangs, the minibatch, the learning rate, the copies and the memory."""
    observed = outcome.observed
    facts = [_ALONE[outcome.alone]] if outcome.alone else []
    if outcome.ending in ("hang", "idle"):
        facts.append(f"At the end {', '.join(where_ranks_are(outcome))}.")
    missed = [f"Not all of rank {one.rank} was observed: {of.error}" for one in observed for of in one.of(NotObserved)]
    updates = observed[0].of(Update)
    if not updates:
        return [*facts, *missed, "No update was seen, so that weights and gradients were not compared."]
    rows = [_usual_minibatch(one) for one in observed]
    sizes = list(map(len, rows))
    is_sharded = any(u.sharded for one in observed for u in one.of(Update))
    lr = ", ".join(f"{lr:g}" for lr in dict.fromkeys(updates[0].lrs))
    rule = f"{updates[0].name}, learning rate {lr}" if lr else "Updates by hand"
    if any(size >= MOST_ROWS for size in sizes):
        facts.append(f"{rule}.")  # not all rows were read
    elif len(observed) > 1 and sizes[0] and all(of == rows[0] for of in rows):
        facts.append(f"Minibatch: {sizes[0]} row{'s' * (sizes[0] != 1)}, the same on all ranks. {rule}.")
    elif all(sizes):
        each = f"{len(sizes)} × {sizes[0]}" if len(set(sizes)) == 1 else " + ".join(map(str, sizes))
        is_global = is_sharded or are_copies(observed)
        many = f"Global minibatch: {sum(sizes)} = {each}" if is_global else f"Minibatches of the ranks: {each}"
        many = many if len(sizes) > 1 else f"Minibatch: {sizes[0]}"
        facts.append(f"{many} row{'s' * (sum(sizes) != 1)}. {rule}.")
    else:
        facts.append(f"{rule}.")
    if scheduled := len(observed[0].of(Scheduled)):
        facts.append(f"Learning rates: {scheduled} steps of a scheduler in {observed[0].num_updates} updates.")
    was_stopped = any(end.how == "enough" for end in observed[0].of(Ended))
    if outcome.ending == "enough" and was_stopped and (left := _left_of_the_epoch(observed[0])):
        facts.append(left)
    if copies := said_of_copies(observed):
        facts.append(copies)
    if is_sharded:
        facts.append("Sharded weights were not compared: each rank has its own part of them.")
    facts += missed
    memory = [found for one in observed for found in one.of(Memory)]
    if memory:
        facts.append(_memory_of_a_gpu(max(memory, key=_sum_of_bytes), outcome.card))
    return facts


_ALONE = {
    OWN_RANKS: "The script starts its ranks itself, and was not run by torchrun.",
    ONE_PROCESS: "The script is one process that uses several GPUs, and was not run by torchrun.",
}


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
        n, each = begins.num_batches, max(1, statistics.mode(u.minibatches for u in one.of(Update)))
        if (begins.loader, begins.epoch) in trained and not others and n > each * one.num_updates:
            more = -(-n // each) + 1
            return f"The first epoch has not ended: it has {n} minibatches on rank 0. See its end with --steps {more}."
    return ""


def step_costs(outcome: Outcome) -> dict[str, float]:
    """Return {"collectives", "bytes", "memory"} of a step, of the rank that has most; {} without a complete run."""
    sent = [found for one in outcome.observed for found in one.of(Sent)]
    memory = [found for one in outcome.observed for found in one.of(Memory)]
    costs: dict[str, float] = {}
    if sent:
        costs["collectives"] = max(found.collectives / found.steps for found in sent)
        costs["bytes"] = max(found.n_bytes / found.steps for found in sent)
    if memory:
        costs["memory"] = max(map(_sum_of_bytes, memory))
    return costs


def _sum_of_bytes(memory: Memory) -> int:
    gradients = memory.gradients + memory.buckets
    return most_held(memory.parameters, gradients, memory.optimizer, memory.activations, memory.update)


def _memory_of_a_gpu(memory: Memory, card: str) -> str:
    parts = {"parameters": memory.parameters, "gradients": memory.gradients, "optimizer": memory.optimizer}
    if memory.activations >= 0:
        parts["kept by the forward pass"] = memory.activations
    if memory.buckets:
        parts["buckets of DDP"] = memory.buckets
    if memory.update:
        parts["for a moment in the update"] = memory.update
    said = ", ".join(f"{format_bytes(n)} {name}" for name, n in parts.items())
    if card:
        known = card_of(card)
        fits = f"{'fits' if _sum_of_bytes(memory) < known.n_bytes else 'does not fit'} on the {known.name}"
        return f"Memory of a GPU: {said}; {fits} (predicted)."
    fits = next(
        (f"fits in {size} GB" for size in USUAL_GB if _sum_of_bytes(memory) < size * 1e9), "does not fit in 80 GB"
    )
    return f"Memory of a GPU: {said}; {fits} (predicted)."
