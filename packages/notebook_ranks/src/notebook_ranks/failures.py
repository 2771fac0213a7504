"""Turn the reports of all ranks into one message that explains a failure: functions, no processes."""

import atexit
import functools
import linecache
import os
import re
import signal
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from notebook_ranks.flight_recorder import FlightRecord, Frame, file_label, waits_in
from notebook_ranks.hang_diagnosis import Diagnosis, diagnose_hang
from notebook_ranks.shared.explained import explanation_of
from notebook_ranks.shared.format import printable
from notebook_ranks.shared.own_code import is_own_code
from notebook_ranks.tempdir import make_tempdir, remove_tempdir

__all__ = ["NOT_SURE", "Report", "WorkersError", "describe_failure", "ended_by", "failure_headline", "short_message"]

Report = dict[str, Any]  # the state of one rank, see `describe_failure`

# messages of gloo and NCCL on a rank whose peer has gone: a consequence, never the cause
BYSTANDER = re.compile(
    r"closed by peer|reset by peer|broken pipe|connection refused|connection was closed|read error|write error"
    r"|remote process exited|was likely disconnected|ncclRemoteError",
    re.IGNORECASE,
)
TORCH_ERRORS = {"RuntimeError", "DistError", "DistBackendError", "DistStoreError", "DistNetworkError"}
OF_GROUP = re.compile(
    r"gloo|nccl|c10d|ProcessGroup|process group|store|rank|socket|pair\.cc|pair closure", re.IGNORECASE
)
TIMEOUT = re.compile(r"timed? ?out|timeout", re.IGNORECASE)
FOLDERS = os.path.dirname(os.path.dirname(__file__)), os.path.dirname(os.__file__), os.path.join("torch", "distributed")
OURS = [os.path.join(folder, "") for folder in FOLDERS]  # this package, Python's modules, torch.distributed
POINT_TO_POINT = {"send", "recv", "isend", "irecv", "batch_isend_irecv"}
NOT_SURE = "not sure which rank is at fault"
MOST_CHARS, LINE_CHARS, BODY_LINES, OTHER_LINES = 4000, 400, 28, 8  # of a message, together 40 lines at most


class WorkersError(RuntimeError):
    """A function failed on the ranks: `rank` is the rank at fault, and `reports` holds the state of each rank.

    `rank` is None if it is not sure which rank is at fault; the message says so then. `records` holds the FlightRecord
    of each rank, as it was when the call failed.
    """

    def __init__(
        self,
        message: str,
        rank: int | None,
        reports: dict[int, Report],
        records: Mapping[int, FlightRecord] | None = None,
    ) -> None:
        super().__init__(message)
        self.rank, self.reports, self.records = rank, reports, dict(records or {})


def describe_failure(
    reports: Mapping[int, Report], timeout_s: float, records: Mapping[int, FlightRecord] | None = None
) -> tuple[int | None, str]:
    """Return (rank at fault, message): what it did, its traceback, and what the other ranks were doing.

    A report is a dict with "state": "error" (type, message, frames, and the same of its causes), "died" (exitcode,
    output), "done", "silent", or "running" (frames). A rank is at fault if it raised an error of its own, if its
    process has ended, or if it does not answer. An abort in C++, a lost connection and a time-out are often
    consequences: then `diagnose_hang` decides from the `records`. The rank is None, and the message says so, if it
    is not sure.

    A message has at most 40 lines and 4,000 characters. What is longer is in a file, which the last line names.
    """
    shown, found = _judged(reports, records)
    head, at_fault = _head(shown, reports, timeout_s, found)
    body: list[str] = []
    if reports[shown].get("frames") and reports[shown]["state"] == "error":
        body = ["", *error_lines(reports[shown])]
    described = shown if body or found is None else None  # all is said of this rank
    error = reports[at_fault] if at_fault is not None and reports[at_fault]["state"] == "error" else {}
    if explained := explanation_of(f"{error['type']}: {error['message']}") if error else "":
        body += ["", explained]
    others = [f"rank {r} {_doing(x, timeout_s)}" for r, x in sorted(reports.items()) if r != described]
    return at_fault, short_message(head, body, ["", *others] if others else [])


def failure_headline(
    reports: Mapping[int, Report], timeout_s: float, records: Mapping[int, FlightRecord] | None = None
) -> tuple[int | None, str]:
    """Return (rank at fault, the first line of the message) as `describe_failure` does; no file is written."""
    shown, found = _judged(reports, records)
    head, at_fault = _head(shown, reports, timeout_s, found)
    return at_fault, head


def _judged(reports: Mapping[int, Report], records: Mapping[int, FlightRecord] | None) -> tuple[int, Diagnosis | None]:
    """Return (the rank to show, the diagnosis of the records if it says more than the reports)."""
    shown, found = _rank_to_show(reports), None
    if not _is_cause(reports[shown]):
        found = diagnose_hang(records) if records else None
        known = not any(record.missing for record in (records or {}).values())
        agree = found is not None and found.cause in ("unknown", "send") and known
        if found is not None and (found.cause == "slow" or (found.rank is None and not agree)):
            found = None
        if found is not None and found.rank is not None:
            shown = found.rank
    return shown, found


def _rank_to_show(reports: Mapping[int, Report]) -> int:
    """Return the rank that the reports alone point at: the first with an error of its own, else one that has ended.

    A time-out points at a rank that has returned early or is elsewhere.
    """

    def in_state(state: str) -> list[int]:
        return [r for r, x in reports.items() if x["state"] == state]

    errors = in_state("error")
    timed_out = [r for r in errors if _timed_out(reports[r])]
    own = [r for r in errors if _is_cause(reports[r])]
    died = sorted(in_state("died"), key=lambda r: not _is_cause(reports[r]))
    late = [*in_state("done"), *in_state("running")] if timed_out else []
    return [*own, *died, *in_state("silent"), *late, *errors, *sorted(reports)][0]


def _is_cause(report: Report) -> bool:
    """Return whether a report shows a fault of its rank, and no consequence of what a different rank did."""
    if report["state"] == "error":
        return not (_timed_out(report) or _lost_connection(report))
    if report["state"] == "died":
        return bool(report["exitcode"] != -signal.SIGABRT)
    return bool(report["state"] == "silent")


def _timed_out(report: Report) -> bool:
    return _is_of_the_group(report) and TIMEOUT.search(report["message"]) is not None


def _lost_connection(report: Report) -> bool:
    return _is_of_the_group(report) and BYSTANDER.search(report["message"]) is not None


def _is_of_the_group(report: Report) -> bool:
    """Return whether an error is one of torch.distributed, and not one of the learner's code with similar words."""
    if report["type"] not in TORCH_ERRORS:
        return False
    frames = report.get("frames")
    return not frames or bool(waits_in(frames)) or OF_GROUP.search(report["message"]) is not None


def _head(
    rank: int, reports: Mapping[int, Report], timeout_s: float, found: Diagnosis | None
) -> tuple[str, int | None]:
    """Return the first line of a message about `rank`, and the rank at fault: None if it is not sure."""
    if found is not None:
        return (found.words, rank) if found.rank_is_sure else (f"{NOT_SURE}: {found.words}", None)
    line = _headline(rank, reports[rank], timeout_s)
    elsewhere = [r for r, x in reports.items() if x["state"] in ("running", "done")]
    is_late = reports[rank]["state"] == "running" and elsewhere == [rank] and not _collective(reports[rank])
    if _is_cause(reports[rank]) or is_late:
        return line, rank
    return f"{NOT_SURE}: {_different_collectives(rank, reports) or line}", None


def short_message(head: str, body: Sequence[str] = (), others: Sequence[str] = ()) -> str:
    """Return the lines as one message of bounded length; what is left out is in a file, named in the last line."""
    whole = "\n".join([head, *body, *others]).rstrip()
    lines = [head, *_middle_left_out(body, BODY_LINES), *_middle_left_out(others, OTHER_LINES)]
    lines = [line if len(line) <= LINE_CHARS else line[:LINE_CHARS] + " ..." for line in lines]
    short = "\n".join(lines).rstrip()
    if len(short) > MOST_CHARS:
        short = f"{short[: MOST_CHARS // 2]}\n...\n{short[-MOST_CHARS // 3 :]}"
    if short == whole:
        return short
    try:
        return f"{short}\nThe whole message is in {_keep(whole)}."
    except OSError:  # a full disk, or the folder was removed: what happened matters more
        return short


def _middle_left_out(lines: Sequence[str], most: int) -> list[str]:
    """Return at most `most` lines, a third of them from the beginning."""
    if len(lines) <= most:
        return list(lines)
    first = most // 3
    last = most - first - 1
    return [*lines[:first], f"... {len(lines) - first - last} lines ...", *lines[-last:]]


def _keep(text: str) -> Path:
    """Write the last long message into a file of this process, which ends with it."""
    file = _folder(os.getpid()) / "message.txt"
    file.write_text(text, encoding="utf-8", errors="backslashreplace")
    return file


@functools.cache
def _folder(pid: int) -> Path:
    folder, lock = make_tempdir()

    def remove() -> None:
        if os.getpid() == pid:  # not in a fork
            remove_tempdir(folder, lock)

    atexit.register(remove)
    return folder


def ended_by(exitcode: int | None) -> str:
    """Return the name of the signal that ended a process (real-time signals included), or its exit code in words."""
    if exitcode is None:
        return "exit code unknown"
    if exitcode >= 0:
        return f"exit code {exitcode}"
    try:
        return signal.Signals(-exitcode).name
    except ValueError:  # Python names the first and the last real-time signal only
        first = getattr(signal, "SIGRTMIN", None)
        return f"signal {-exitcode}" if first is None or -exitcode < first else f"SIGRTMIN+{-exitcode - first}"


def _headline(rank: int, report: Report, timeout_s: float) -> str:
    if report["state"] == "error":
        return f"rank {rank} failed: {_error(report)}"
    if report["state"] == "died":
        if report["exitcode"] == -signal.SIGABRT:
            return f"rank {rank} {_aborted(report)}"
        return f"rank {rank} died ({ended_by(report['exitcode'])}).{_last_output(report)}"
    if report.get("works"):
        return (
            f"rank {rank} did not answer, although it used its core: one call of C code takes long, or never ends, and "
            "lets nothing else run."
        )
    if report["state"] == "silent":
        return f"rank {rank} was silent for {timeout_s:g} s: it is stopped, or its machine is overloaded."
    if report["state"] == "done":
        return f"rank {rank} had returned while others waited {timeout_s:g} s for it: it left out a collective."
    return f"rank {rank} did not reach the collective in which others waited {timeout_s:g} s for it: it {_at(report)}."


def _aborted(report: Report) -> str:
    return (
        "was aborted inside PyTorch's C++ code, mostly because sizes or dtypes differ between ranks, or the order of "
        f"collectives.{_last_output(report)}"
    )


def _last_output(report: Report) -> str:
    last = next((line for line in reversed(report["output"].splitlines()) if line.strip()), "")
    return f" Its last output: {printable(last)}" if last else ""


def _different_collectives(rank: int, reports: Mapping[int, Report]) -> str:
    """Return a sentence if `rank` and others waited for each other in collectives of different names, else ""."""
    waiting = {r: name for r, x in reports.items() if (name := _collective(x))}
    names = set(waiting.values())
    if rank not in waiting or len(names) < 2 or names & POINT_TO_POINT:
        return ""
    listed = [f"rank {r} in {name}" for r, name in sorted(waiting.items())]
    return (
        f"the ranks waited for each other in different collectives: {', '.join(listed)}. All ranks must call the same "
        f"collectives in the same order. rank {rank} {_at(reports[rank])}."
    )


def _collective(report: Report) -> str:
    """Return the name of the collective in which a rank waits, or waited until it timed out; "" if there is none."""
    lost = report["state"] == "error" and not _is_cause(report)
    return waits_in(report.get("frames") or []) if lost or report["state"] == "running" else ""


def _doing(report: Report, timeout_s: float) -> str:
    if report["state"] == "error":
        if _lost_connection(report):
            return "lost its connection to a different rank, as a consequence."
        if _timed_out(report):
            return f"timed out after {timeout_s:g} s: it {_at(report)}."
        return f"failed, too: {_error(report)}"
    if report["state"] == "died":
        if report["exitcode"] == -signal.SIGABRT:
            return _aborted(report)
        return f"died, too ({ended_by(report['exitcode'])})."
    return {"done": "had returned.", "silent": "did not answer."}.get(report["state"]) or f"{_at(report)}."


def _error(report: Report) -> str:
    """Return the type and the first line of the message of an error."""
    return f"{report['type']}: {next(iter(report['message'].splitlines()), '')}"


def _at(report: Report) -> str:
    """Describe the place of a rank: the innermost line that the learner wrote; else one that called the collective."""
    frames = report.get("frames") or []
    own = [f for f in frames if is_own_code(f[0])]
    mine = own or [f for f in frames if not any(part in f[0] for part in OURS)] or frames
    if not mine:
        return "had not begun this call yet"
    file, number, name = mine[-1]
    return f"was in {name}, {file_label(file)} line {number}: {linecache.getline(file, number).strip()}"


def error_lines(report: Report) -> list[str]:
    """Return the lines of an error's traceback, with the errors that caused it before it, as Python shows them."""
    lines: list[str] = []
    for above in reversed(report.get("causes", ())):
        word = "The above exception was the direct cause of" if above["direct"] else "During the handling of the above"
        link = f"{word} the following exception:" if above["direct"] else f"{word} exception, another one occurred:"
        lines += [*_one_error(above), "", link, ""]
    return [*lines, *_one_error(report)]


def _one_error(report: Report) -> list[str]:
    return [*traceback_lines(report["frames"]), *f"{report['type']}: {report['message']}".splitlines()]


def traceback_lines(frames: Iterable[Frame]) -> list[str]:
    """Return the lines of a traceback with the source of cells, which only the notebook's process has."""
    out = ["Traceback (most recent call last):"]
    for file, number, name in frames:
        if not file.startswith(OURS[0]):
            out += [f"  {file_label(file)}, line {number}, in {name}", f"    {linecache.getline(file, number).strip()}"]
    return out
