"""How a run ended that did not end well: an error of the script, a GPU's refusal, a process that died, a hang.

A run that ends well is stopped by the observer, which counts the updates.
"""

import re
from collections.abc import Sequence

from ddp_rehearsal.finding import Finding
from ddp_rehearsal.observations import OWN_RANKS, Place, Update
from ddp_rehearsal.observer import script_place
from ddp_rehearsal.ranks import Outcome
from ddp_rehearsal.repairs import refusal_of_a_gpu, repair_of
from ddp_rehearsal.rules.copies import UNFINISHED
from notebook_ranks.failures import NOT_SURE, Report, failure_headline
from notebook_ranks.flight_recorder import waits_in
from notebook_ranks.hang_diagnosis import diagnose_hang
from notebook_ranks.shared.explained import explanation_of

__all__ = ["could_not_run", "how_it_ended", "where_ranks_are"]

NOT_PRETENDED = "pretend GPUs: "  # the beginning of what pretend GPUs refuse
# what PyTorch says of a GPU that is not there
NO_SUCH_GPU = ("invalid device ordinal", "Invalid device id", "no GPUs found", "No CUDA GPUs are available")


def could_not_run(outcome: Outcome) -> str:
    """Return why the script could not be run: the error that all ranks raised before any update; "" if it could.

    What cannot be pretended counts after updates, too.
    """
    if outcome.ending != "failed":
        return ""
    errors = [outcome.reports[one.rank] for one in outcome.observed]
    if all(NOT_PRETENDED in e.get("message", "") for e in errors):
        step = _step_of(outcome, range(len(errors)))
        return f"{f'Stopped in step {step}. ' if step > 1 else ''}{_error_words(errors[0])}"
    if any(one.num_updates for one in outcome.observed):
        return ""
    if wanted := _wants_more_gpus(outcome, errors):
        return wanted
    if len({(e.get("type"), str(script_place(e.get("frames", ())))) for e in errors}) > 1:
        return ""
    first = errors[0]
    if first["state"] == "died":
        return f"the ranks ended ({first['exitcode']}) before the script began. {first['output']}".strip()
    if first["state"] != "error" or refusal_of_a_gpu(first["message"]):
        return ""
    if repair_of(f"{first['type']}: {first['message']}", is_alone=bool(outcome.alone)):
        return ""
    rank, _ = failure_headline(outcome.reports, outcome.waited_s, outcome.records)
    if rank is None:  # a time-out or a lost connection: a consequence of what ranks did
        return ""
    return _error_words(first)


def _wants_more_gpus(outcome: Outcome, errors: Sequence[Report]) -> str:
    """Return why a script that starts its ranks itself, or is one process, needs more GPUs; "" if it does not."""
    ranks = len(outcome.observed)
    if not outcome.alone or (outcome.alone == OWN_RANKS and ranks <= outcome.offered):
        return ""
    first = next((e for e in errors if any(part in e.get("message", "") for part in NO_SUCH_GPU)), None)
    if first is None:
        return ""
    who = f"the script starts {ranks} ranks" if outcome.alone == OWN_RANKS else "the script asks for another GPU"
    more = max(ranks, outcome.offered + 1)
    return f"{who}, and there is --gpus {outcome.offered}: try --gpus {more}. {_error_words(first)}"


def how_it_ended(outcome: Outcome) -> list[Finding]:
    """Return the finding of a run that failed or hangs, [] for all others."""
    if outcome.ending in ("enough", "limit"):
        return [] if outcome.ending == "enough" else [_limit(outcome)]
    if outcome.ending == "failed":
        return [_failure(outcome)]
    return [_hang(outcome)]


def _failure(outcome: Outcome) -> Finding:
    rank, head = failure_headline(outcome.reports, outcome.waited_s, outcome.records)
    head = head.splitlines()[0].removeprefix(f"{NOT_SURE}: ")
    report = outcome.reports[rank] if rank is not None else {}
    place = script_place(report.get("frames", ()))
    step = _step_of(outcome, [rank] if rank is not None else range(len(outcome.reports)))
    if report.get("state") != "error":
        kind = "error" if report.get("state") == "died" else "hang"
        return Finding(kind, head, _REPAIR[kind], ranks=() if rank is None else (rank,), step=step, place=place)
    same = (report["type"], place)
    others = {r: (x.get("type"), script_place(x.get("frames", ()))) for r, x in sorted(outcome.reports.items())}
    ranks = tuple(r for r in others if others[r] == same)
    if "Duplicate GPU" in report["message"]:  # one rank raises it, several are there
        ranks = tuple(sorted({*ranks, *map(int, re.findall(r"rank (\d+)", report["message"]))} & set(others)))
    said = _error_words(report)
    if repair := refusal_of_a_gpu(report["message"]):
        return Finding("devices", f"a GPU refuses this. {said}", repair, ranks=ranks, step=step, place=place)
    if named := _named(report["message"], outcome, ranks):
        return Finding(*named, ranks=ranks, step=step, place=place)
    of_all = len(ranks) == len(outcome.reports)
    repair = repair_of(f"{report['type']}: {report['message']}", of_all, bool(outcome.alone))
    repair = repair or "Read the traceback in the rank's output: --html shows it."
    repair = " ".join(filter(None, [repair, explanation_of(f"{report['type']}: {report['message']}")]))
    who = "all ranks" if len(ranks) == len(outcome.reports) > 1 else ", ".join(f"rank {r}" for r in ranks)
    return Finding("error", f"{who} raised {said}", repair, ranks=ranks, step=step, place=place)


def _named(message: str, outcome: Outcome, ranks: Sequence[int]) -> tuple[str, str, str] | None:
    """Return (kind, words, repair) of an error whose cause is known."""
    if UNFINISHED in message:
        updates = outcome.observed[ranks[0]].of(Update)
        grads = updates[-1].grads if updates else {}
        name = next((name for name, grad in grads.items() if grad is None), "a parameter")
        return (
            "arithmetic",
            f"DistributedDataParallel cannot average while a gradient is missing, that of {name}: it was frozen or "
            "replaced after the network was wrapped, or the loss does not depend on it.",
            "Freeze parameters before DistributedDataParallel is made. If a step leaves out a part of the network: "
            "find_unused_parameters=True.",
        )
    if "loading state_dict" in message and '"module.' in message:
        has, lacks = "begin with", "do not"
        if any("Missing" in line and '"module.' in line for line in message.splitlines()):
            has, lacks = lacks + " begin with", "do"
        return (
            "files",
            f'a network cannot load a state: the names in it {has} "module.", and those of the network {lacks}.',
            "Save model.module.state_dict() of a DistributedDataParallel, and load into model.module.",
        )
    return None


def _error_words(report: Report) -> str:
    """Return the type and the first line of an error's message; the last one of an error in another process."""
    lines = [line.strip() for line in report["message"].splitlines() if line.strip()] or [""]
    if "terminated with the following error" in lines[0] or "in replica" in lines[0]:  # of spawn, and nn.DataParallel
        return lines[-1]
    last = f" {lines[-1]}" if "in DataLoader worker process" in lines[0] else ""
    return f"{report['type']}: {lines[0]}{last}"


_REPAIR = {
    "error": "Read the last lines of the rank's output: --html shows them.",
    "hang": "All ranks must call the same collectives in the same order.",
}


# {a function of PyTorch in which a rank waits: what to do, if other ranks do not call it}
_OF_ONE_RANK = {
    "state_dict": "The state of a sharded network is gathered from all ranks: call state_dict() on all, and save it on "
    "rank 0.",
    "_sync_buffers": "DistributedDataParallel sends its buffers in each forward pass: let all ranks call it, or call "
    "model.module where one rank evaluates.",
}


EARLY_END = (
    "A rank has ended, and others wait for it. Give all ranks as many minibatches, or wrap the loop in "
    "`with model.join():`; let all ranks make the calls that come after the loop."
)


def _hang(outcome: Outcome) -> Finding:
    found = diagnose_hang(outcome.records)
    waiting = [rank for rank, report in sorted(outcome.reports.items()) if report["state"] != "done"]
    rank = found.rank if found.rank_is_sure else None
    words, repair = f"no rank has moved for {outcome.waited_s:.0f} s: {found.words}", _REPAIR["hang"]
    functions = {name for one in waiting for _, _, name in outcome.reports[one].get("frames", ())}
    repair = next((of for name, of in _OF_ONE_RANK.items() if name in functions), repair)
    if any(report["state"] == "done" for report in outcome.reports.values()) and repair == _REPAIR["hang"]:
        repair = EARLY_END
    if not found.cause:
        words, repair = _hang_outside(outcome, waiting)
    shown = rank if rank is not None and outcome.reports[rank].get("frames") else next(iter(waiting), None)
    place = script_place(outcome.reports[shown].get("frames", ())) if shown is not None else None
    ranks = () if rank is None else (rank,)
    return Finding(
        "hang",
        words,
        repair,
        ranks=ranks,
        step=_step_of(outcome, waiting),
        place=place,
        is_sure=outcome.ending == "hang",
    )


def _hang_outside(outcome: Outcome, waiting: Sequence[int]) -> tuple[str, str]:
    """Return (words, repair) of a hang whose collectives agree: in what is no collective of all ranks."""
    calls = {rank: waits_in(outcome.reports[rank].get("frames", ())) for rank in waiting}
    said = ", ".join(f"rank {rank} waits in {call}" for rank, call in calls.items() if call)
    words = f"no rank has moved for {outcome.waited_s:.0f} s, and the collectives agree"
    words += f": {said}." if said else "."
    functions = set(calls.values())
    if "init_process_group" in functions:
        return words, (
            "All ranks need the same MASTER_ADDR and MASTER_PORT, and all of the world size must come: choose a port "
            "once, before the processes start."
        )
    if functions & {"new_group", "new_subgroups", "split_group"}:
        return words, "All ranks must call new_group, also those that are not in it, in the same order."
    if functions & {"send", "recv"}:
        return words, (
            "For each send another rank must be in recv: let one receive first, or use batch_isend_irecv. A send that "
            "comes first works by luck, where a message is small."
        )
    return words, _REPAIR["hang"]


def _limit(outcome: Outcome) -> Finding:
    words = f"ended after {outcome.seconds:.0f} s, before the last step: {'; '.join(where_ranks_are(outcome))}."
    return Finding("hang", words, "Ask for fewer steps, a smaller network, or more time: --limit.", is_sure=False)


def where_ranks_are(outcome: Outcome) -> list[str]:
    """Return where each rank is, "rank 0 is in main, line 12", at the end of a run that did not end well."""
    return [f"rank {rank} {_whereabouts(outcome, rank)}" for rank in sorted(outcome.reports)]


def _whereabouts(outcome: Outcome, rank: int) -> str:
    place: Place | None = script_place(outcome.reports[rank].get("frames", ()))
    if place is None:
        return {"done": "has ended", "silent": "did not answer"}.get(outcome.reports[rank]["state"], "is elsewhere")
    return f"is in {place[2]}, line {place[1]}"


def _step_of(outcome: Outcome, ranks: Sequence[int]) -> int:
    return min((outcome.observed[rank].num_updates for rank in ranks), default=0) + 1
