"""From what each rank reported to one message that says what happened: pure, no processes."""

import linecache
import os
import re
import signal
import sys

__all__ = ["WorkersError", "cause", "describe_failure"]

# what gloo and NCCL say in a rank whose peer has gone: a consequence, never the cause
BYSTANDER = re.compile(
    r"closed by peer|reset by peer|broken pipe|connection refused|connection was closed|read error|write error"
    r"|remote process exited|was likely disconnected|ncclRemoteError",
    re.IGNORECASE,
)
TIMEOUT = re.compile(r"timed? ?out|timeout", re.IGNORECASE)
OURS = (os.path.dirname(os.path.dirname(__file__)), os.path.dirname(os.__file__), "torch" + os.sep + "distributed")


class WorkersError(RuntimeError):
    """A function failed on the workers: `rank` is the rank at fault, `reports` what was known of each."""

    def __init__(self, message, rank, reports):
        super().__init__(message)
        self.rank, self.reports = rank, reports


def cause(reports):
    """Return the rank at fault among {rank: report}.

    A report is a dict with "state": "error" (type, message, frames), "died" (exitcode, said), "done",
    "silent", or "running" (frames). An error that only tells of a lost connection is a consequence; a time-out
    points at a rank that is silent, has left early or is elsewhere.
    """
    errors = {r: x for r, x in reports.items() if x["state"] == "error"}
    own = [r for r, x in errors.items() if not (BYSTANDER.search(x["message"]) or TIMEOUT.search(x["message"]))]
    timed_out = [r for r, x in errors.items() if TIMEOUT.search(x["message"])]
    by_state = {
        state: [r for r, x in reports.items() if x["state"] == state] for state in ("died", "silent", "done", "running")
    }
    for candidates in (
        own,
        by_state["died"],
        by_state["silent"],
        *((by_state["done"], by_state["running"]) if timed_out else ()),
        list(errors),
    ):
        if candidates:
            return candidates[0]
    return min(reports)


def describe_failure(reports, timeout_s):
    """Return (rank at fault, message): what it did, its traceback, and what the other ranks were doing."""
    rank = cause(reports)
    lines = [_headline(rank, reports[rank], timeout_s)]
    if reports[rank].get("frames") and reports[rank]["state"] == "error":
        lines += ["", *traceback_lines(reports[rank]["frames"]), f"{reports[rank]['type']}: {reports[rank]['message']}"]
    lines += ["", *(f"rank {r} {_doing(x)}" for r, x in sorted(reports.items()) if r != rank)]
    return rank, "\n".join(lines).rstrip()


def _headline(rank, report, timeout_s):
    if report["state"] == "error":
        return f"rank {rank} failed: {report['type']}: {report['message'].splitlines()[0] if report['message'] else ''}"
    if report["state"] == "died":
        said = report["said"].strip()
        if report["exitcode"] == -signal.SIGABRT:
            return (
                f"rank {rank} was aborted inside PyTorch's C++ code, mostly because sizes or dtypes differ between "
                f"ranks. It said last: {_last(said)}"
            )
        name = signal.Signals(-report["exitcode"]).name if report["exitcode"] < 0 else f"exit code {report['exitcode']}"
        return f"rank {rank} died ({name})." + (f" It said last: {_last(said)}" if said else "")
    if report["state"] == "silent":
        return f"rank {rank} was silent for {timeout_s:g} s: it is stopped, or its machine is overloaded."
    if report["state"] == "done":
        return f"rank {rank} had returned while others waited {timeout_s:g} s for it: it left out a collective."
    return (
        f"rank {rank} did not come to the collective in which others waited {timeout_s:g} s for it: it {_at(report)}."
    )


def _doing(report):
    if report["state"] == "error":
        if BYSTANDER.search(report["message"]):
            return "lost its connection to it, as a consequence."
        if TIMEOUT.search(report["message"]):
            return f"waited in vain: {_at(report)}."
        return f"failed as well: {report['type']}: {report['message'].splitlines()[0] if report['message'] else ''}"
    if report["state"] == "died":
        return f"died as well (exit code {report['exitcode']})."
    return {"done": "had returned.", "silent": "did not answer."}.get(report["state"]) or f"{_at(report)}."


def _at(report):
    """Where a rank was: the innermost line that is the learner's own."""
    frames = report.get("frames") or []
    mine = [f for f in frames if not any(part in f[0] for part in OURS)] or frames
    if not mine:
        return "had not begun this call yet"
    file, number, name = mine[-1]
    return f"was in {name}, {place(file)} line {number}: {linecache.getline(file, number).strip()}"


def traceback_lines(frames):
    """Return the lines of a traceback with the source of cells, which only the notebook's process has."""
    out = ["Traceback (most recent call last):"]
    for file, number, name in frames:
        if not file.startswith(OURS[0]):
            out += [f"  {place(file)}, line {number}, in {name}", f"    {linecache.getline(file, number).strip()}"]
    return out


def place(file):
    """Return "Cell In[3]" for a file name that IPython made up for a cell, else File "..."."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    name = shell.compile.format_code_name(file) if shell is not None else None
    return " ".join(name) if name else f'File "{file}"'


def _last(text):
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "(nothing)"
