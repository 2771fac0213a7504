"""How a run ended that did not end well: an error of the script, a GPU's refusal, a process that died, a hang."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ddp_rehearsal.finding import Finding
from ddp_rehearsal.observations import Place, Update
from ddp_rehearsal.observer import script_place
from ddp_rehearsal.ranks import Run
from ddp_rehearsal.rules import UNFINISHED
from notebook_ranks.failures import failure_headline
from notebook_ranks.hang_diagnosis import diagnose_hang

__all__ = ["could_not_run", "how_it_ended", "where_ranks_are"]

# {a part of what PyTorch says on GPUs: how to mend it}
REFUSALS = {
    "Expected all tensors to be on the same device": "Move each to the rank's device: X.to(device), y.to(device).",
    "can't convert cuda": "Call .cpu() before .numpy(): X.detach().cpu().numpy().",
    "invalid device ordinal": 'Use the number of the GPU on this host: int(os.environ["LOCAL_RANK"]).',
    "No backend type associated with device type cpu": "NCCL sends what is on GPUs: move it to one first.",
    "Duplicate GPU detected": "Call torch.cuda.set_device(local_rank) first, and move tensors to this device.",
    "attempting to assign a gradient with device type": "Move the gradient to the device of its parameter.",
    "should be the same or input should be a MKLDNN": "Move each minibatch to the rank's device, as the network.",
}
NOT_SURE = re.compile(r"^not sure which rank is at fault: ")


def _refusal(message: str) -> str:
    """Return how to mend what a GPU has refused with this message; "" if it is a different error."""
    return next((repair for part, repair in REFUSALS.items() if part in message), "")


def could_not_run(run: Run) -> str:
    """Return why the script could not be run: the error that all ranks raised before any update; "" if it could."""
    if run.ending != "failed" or any(one.num_updates for one in run.observed):
        return ""
    errors = [run.reports[one.rank] for one in run.observed]
    if len({(e.get("type"), str(script_place(e.get("frames", ())))) for e in errors}) > 1:
        return ""
    first = errors[0]
    if first["state"] == "died":
        return f"the ranks ended ({first['exitcode']}) before the script began. {first['output']}".strip()
    if first["state"] != "error" or _refusal(first["message"]):
        return ""
    rank, _ = failure_headline(run.reports, run.waited_s, run.records)
    if rank is None:  # a time-out or a lost connection: a consequence of what ranks did
        return ""
    return _said(first)


def how_it_ended(run: Run) -> list[Finding]:
    """Return the finding of a run that failed or hangs, [] for all others."""
    if run.ending in ("enough", "limit"):
        return [] if run.ending == "enough" else [_limit(run)]
    if run.ending == "failed":
        return [_failed(run)]
    return [_hang(run)]


def _failed(run: Run) -> Finding:
    rank, head = failure_headline(run.reports, run.waited_s, run.records)
    head = NOT_SURE.sub("", head.splitlines()[0])
    report = run.reports[rank] if rank is not None else {}
    place = script_place(report.get("frames", ()))
    step = _step(run, [rank] if rank is not None else range(len(run.reports)))
    if report.get("state") != "error":
        kind = "error" if report.get("state") == "died" else "hang"
        return Finding(kind, head, _REPAIR[kind], () if rank is None else (rank,), step, place)
    same = (report["type"], place)
    others = {r: (x.get("type"), script_place(x.get("frames", ()))) for r, x in sorted(run.reports.items())}
    ranks = tuple(r for r in others if others[r] == same)
    if "Duplicate GPU" in report["message"]:  # one rank raises it, several are there
        ranks = tuple(sorted({*ranks, *map(int, re.findall(r"rank (\d+)", report["message"]))} & set(others)))
    said = _said(report)
    if repair := _refusal(report["message"]):
        return Finding("devices", f"a GPU refuses this. {said}", repair, ranks, step, place)
    if named := _named(report["message"], run, ranks):
        return Finding(*named, ranks, step, place)
    who = "all ranks" if len(ranks) == len(run.reports) > 1 else ", ".join(f"rank {r}" for r in ranks)
    return Finding("error", f"{who} raised {said}", "Read the traceback in the rank's output.", ranks, step, place)


def _named(message: str, run: Run, ranks: Sequence[int]) -> tuple[str, str, str] | None:
    """Return (kind, words, repair) of an error whose cause is known."""
    if UNFINISHED in message:
        updates = run.observed[ranks[0]].of(Update)
        grads = updates[-1].grads if updates else {}
        name = next((name for name, grad in grads.items() if grad is None), "a parameter")
        return (
            "arithmetic",
            f"DistributedDataParallel cannot average while a gradient is missing, that of {name}: it was frozen after "
            "the network was wrapped, or the loss does not depend on it.",
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


def _said(report: Mapping[str, Any]) -> str:
    """Return the type and the first line of an error's message."""
    return f"{report['type']}: {next((line for line in report['message'].splitlines() if line.strip()), '')}"


_REPAIR = {
    "error": "Read the last lines of the rank's output.",
    "hang": "All ranks must call the same collectives in the same order.",
}


def _hang(run: Run) -> Finding:
    found = diagnose_hang(run.records)
    waiting = [rank for rank, report in sorted(run.reports.items()) if report["state"] != "done"]
    rank = found.rank if found.rank_is_sure else None
    words = f"no rank has moved for {run.waited_s:.0f} s: {found.words}"
    if not found.cause:
        words = f"no rank has moved for {run.waited_s:.0f} s, and the collectives agree."
    shown = rank if rank is not None and run.reports[rank].get("frames") else next(iter(waiting), None)
    place = script_place(run.reports[shown].get("frames", ())) if shown is not None else None
    ranks = () if rank is None else (rank,)
    return Finding("hang", words, _REPAIR["hang"], ranks, _step(run, waiting), place, run.ending == "hang")


def _limit(run: Run) -> Finding:
    words = f"ended after {run.seconds:.0f} s, before the last step: {'; '.join(where_ranks_are(run))}."
    return Finding("hang", words, "Ask for fewer steps, a smaller network, or more time: --limit.", is_sure=False)


def where_ranks_are(run: Run) -> list[str]:
    """Return where each rank is, "rank 0 is in main, line 12", at the end of a run that did not end well."""
    return [f"rank {rank} {_where(run, rank)}" for rank in sorted(run.reports)]


def _where(run: Run, rank: int) -> str:
    place: Place | None = script_place(run.reports[rank].get("frames", ()))
    if place is None:
        return {"done": "has ended", "silent": "did not answer"}.get(run.reports[rank]["state"], "is elsewhere")
    return f"is in {place[2]}, line {place[1]}"


def _step(run: Run, ranks: Sequence[int]) -> int:
    return min((run.observed[rank].num_updates for rank in ranks), default=0) + 1
