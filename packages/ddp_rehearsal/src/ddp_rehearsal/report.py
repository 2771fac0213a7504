"""The report of a rehearsal: as text of one screen, and as JSON."""

import json
import os
from dataclasses import asdict

from ddp_rehearsal.finding import Finding
from ddp_rehearsal.observations import Place
from ddp_rehearsal.rehearsal import Rehearsal
from notebook_ranks.shared.format import printable

__all__ = ["place_text", "rank_text", "report_json", "report_text", "verdict_text"]

MOST_NOTES = 4
LAST_LINES = 6


def report_text(rehearsal: Rehearsal) -> str:
    """Return the report for a terminal."""
    lines = [verdict_text(rehearsal), ""]
    if rehearsal.error:
        output = next((out for out in rehearsal.outputs.values() if out.strip()), "")
        return "\n".join([*lines, *output.strip().splitlines()[-LAST_LINES:]])
    for finding in rehearsal.findings:
        lines += _lines("✗", finding)
    for note in rehearsal.notes[:MOST_NOTES]:
        lines += _lines("?", note)
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
    if rehearsal.same_as_one is not None:
        said += ", and the same as on 1 GPU" if rehearsal.same_as_one else "; not shown to be the same as on 1 GPU"
    return f"{run}, {rehearsal.steps} step{'s' * (rehearsal.steps != 1)} in {rehearsal.seconds:.0f} s: {said}."


def _lines(mark: str, finding: Finding) -> list[str]:
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
