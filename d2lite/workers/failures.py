"""Turn the reports of all ranks into one message that explains a failure: pure functions, no processes."""

import linecache
import os
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["WorkersError", "cause", "describe_failure"]

Frame = tuple[str, int, str]  # file, line, function
Report = dict[str, Any]  # the state of one rank, see `cause`

# messages of gloo and NCCL on a rank whose peer has gone: a consequence, never the cause
BYSTANDER = re.compile(
    r"closed by peer|reset by peer|broken pipe|connection refused|connection was closed|read error|write error"
    r"|remote process exited|was likely disconnected|ncclRemoteError",
    re.IGNORECASE,
)
TIMEOUT = re.compile(r"timed? ?out|timeout", re.IGNORECASE)
OURS = (os.path.dirname(os.path.dirname(__file__)), os.path.dirname(os.__file__), "torch" + os.sep + "distributed")


class WorkersError(RuntimeError):
    """A function failed on the ranks: `rank` is the rank at fault, and `reports` holds the state of each rank."""

    def __init__(self, message: str, rank: int, reports: dict[int, Report]) -> None:
        super().__init__(message)
        self.rank, self.reports = rank, reports


def cause(reports: Mapping[int, Report]) -> int:
    """Return the rank at fault among {rank: report}.

    A report is a dict with "state": "error" (type, message, frames), "died" (exitcode, output), "done", "silent", or
    "running" (frames). An error that reports a lost connection is a consequence. A time-out points at a rank that is
    silent, has returned early or is elsewhere.
    """

    def in_state(state: str) -> list[int]:
        return [r for r, x in reports.items() if x["state"] == state]

    errors = in_state("error")
    timed_out = [r for r in errors if TIMEOUT.search(reports[r]["message"])]
    own = [r for r in errors if r not in timed_out and not BYSTANDER.search(reports[r]["message"])]
    late = [*in_state("done"), *in_state("running")] if timed_out else []
    return [*own, *in_state("died"), *in_state("silent"), *late, *errors, *sorted(reports)][0]


def describe_failure(reports: Mapping[int, Report], timeout_s: float) -> tuple[int, str]:
    """Return (rank at fault, message): what it did, its traceback, and what the other ranks were doing."""
    rank = cause(reports)
    lines = [_headline(rank, reports[rank], timeout_s)]
    if reports[rank].get("frames") and reports[rank]["state"] == "error":
        lines += ["", *traceback_lines(reports[rank]["frames"]), f"{reports[rank]['type']}: {reports[rank]['message']}"]
    lines += ["", *(f"rank {r} {_doing(x)}" for r, x in sorted(reports.items()) if r != rank)]
    return rank, "\n".join(lines).rstrip()


def _headline(rank: int, report: Report, timeout_s: float) -> str:
    if report["state"] == "error":
        return f"rank {rank} failed: {_error(report)}"
    if report["state"] == "died":
        last = next((line for line in reversed(report["output"].splitlines()) if line.strip()), "")
        output = f" Its last output: {last}" if last else ""
        if report["exitcode"] == -signal.SIGABRT:
            return (
                f"rank {rank} was aborted inside PyTorch's C++ code, mostly because sizes or dtypes differ between "
                f"ranks.{output}"
            )
        name = signal.Signals(-report["exitcode"]).name if report["exitcode"] < 0 else f"exit code {report['exitcode']}"
        return f"rank {rank} died ({name}).{output}"
    if report["state"] == "silent":
        return f"rank {rank} was silent for {timeout_s:g} s: it is stopped, or its machine is overloaded."
    if report["state"] == "done":
        return f"rank {rank} had returned while others waited {timeout_s:g} s for it: it left out a collective."
    return f"rank {rank} did not reach the collective in which others waited {timeout_s:g} s for it: it {_at(report)}."


def _doing(report: Report) -> str:
    if report["state"] == "error":
        if BYSTANDER.search(report["message"]):
            return "lost its connection to that rank, as a consequence."
        if TIMEOUT.search(report["message"]):
            return f"timed out: it {_at(report)}."
        return f"failed, too: {_error(report)}"
    if report["state"] == "died":
        return f"died, too (exit code {report['exitcode']})."
    return {"done": "had returned.", "silent": "did not answer."}.get(report["state"]) or f"{_at(report)}."


def _error(report: Report) -> str:
    """Return the type and the first line of the message of an error."""
    return f"{report['type']}: {next(iter(report['message'].splitlines()), '')}"


def _at(report: Report) -> str:
    """Describe the place of a rank: the innermost line that the learner wrote."""
    frames = report.get("frames") or []
    mine = [f for f in frames if not any(part in f[0] for part in OURS)] or frames
    if not mine:
        return "had not begun this call yet"
    file, number, name = mine[-1]
    return f"was in {name}, {place(file)} line {number}: {linecache.getline(file, number).strip()}"


def traceback_lines(frames: Sequence[Frame]) -> list[str]:
    """Return the lines of a traceback with the source of cells, which only the notebook's process has."""
    out = ["Traceback (most recent call last):"]
    for file, number, name in frames:
        if not file.startswith(OURS[0]):
            out += [f"  {place(file)}, line {number}, in {name}", f"    {linecache.getline(file, number).strip()}"]
    return out


def place(file: str) -> str:
    """Return "Cell In[3]" for a file name that IPython made up for a cell, else 'File "..."'."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    name = shell.compile.format_code_name(file) if shell is not None else None
    return " ".join(name) if name else f'File "{file}"'
