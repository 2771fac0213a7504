"""What a step costs (messages, memory), against what it cost before."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from ddp_rehearsal.finding import Finding, Rehearsal
from notebook_ranks.shared.files import replace_file
from notebook_ranks.shared.format import format_bytes

__all__ = ["compare_with_baseline"]

MORE = 1.01  # times what it was: less is no growth
NAMES = {
    "collectives": "collectives in a step",
    "bytes": "bytes that a rank hands to collectives in a step",
    "memory": "bytes of a GPU's memory (predicted)",
}


def compare_with_baseline(rehearsal: Rehearsal, path: Path) -> Rehearsal:
    """Return a rehearsal with a finding for each cost that is larger than in a file; write the file if there is none.

    Raises ValueError if the file is no baseline, OSError if it cannot be read or written.
    """
    if rehearsal.error or not rehearsal.costs:
        return replace(rehearsal, facts=[*rehearsal.facts, "No costs were seen, so that none were compared."])
    if not path.exists():
        replace_file(path, json.dumps({"gpus": rehearsal.gpus, "costs": dict(rehearsal.costs)}, indent=2) + "\n")
        return replace(rehearsal, facts=[*rehearsal.facts, f"The costs of a step are in {path} from now on."])
    before = _read(path)
    if before["gpus"] != rehearsal.gpus:
        raise ValueError(f"{path}: expected costs on {rehearsal.gpus} GPUs, got {before['gpus']}. Write another file.")
    grown = [
        Finding("costs", f"{text}: {_said(name, now)}, and {_said(name, old)} in {path.name}.", REPAIR)
        for name, text in NAMES.items()
        if name in rehearsal.costs
        and name in before["costs"]
        and (now := rehearsal.costs[name]) > MORE * (old := before["costs"][name])
    ]
    return replace(rehearsal, findings=[*rehearsal.findings, *grown])


REPAIR = "Look for what sends or keeps more. If it is meant, remove the file, and the next rehearsal writes it anew."


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        costs = {name: float(n) for name, n in found["costs"].items()}
        return {"gpus": int(found["gpus"]), "costs": costs}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{path}: expected a file that --baseline has written, got {error!r}. Remove it.") from None


def _said(name: str, n: float) -> str:
    return f"{n:g}" if name == "collectives" else format_bytes(int(n))
