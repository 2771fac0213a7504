"""Run one submission in the sandbox, in bounds of time and memory, and collect what was observed of its answers."""

import contextlib
import json
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from d2lite.exercises.learner_time_limit import MOST_TIMES
from d2lite_course.bounds import (
    JOIN_S,
    LINE_BYTES,
    MEMORY_BYTES_OF_ALL,
    PRINTED_BYTES,
    SPARE_S,
    START_S,
    WHOLE_S,
)
from d2lite_course.sandbox import Sandbox, module_runner

__all__ = ["Collected", "run_in_sandbox"]

SHOWN_CHARS = 50_000  # of an answer
LOOK_S = 0.2  # between two looks at the memory
TOO_MUCH_MEMORY = "it needs too much memory: its processes were ended."


@dataclass(kw_only=True)
class Collected:
    """What came back of an exercise; all of it was written by the submission or may have been.

    `runs` is whether there is code to run, `problem` the first error of the statements that an answer depends on, and
    `saved` what the notebook's own check said: "right", "not right", or "" if nothing is saved.
    """

    code: str = ""
    runs: bool = False
    problem: str = ""
    saved: str = ""
    file: str = ""
    notes: list[str] = field(default_factory=list)
    got: dict[tuple[int, int], Any] = field(default_factory=dict)  # (rank, case) -> data
    stub: bool = False
    unfit: str = ""
    why: str = ""
    printed: str = ""


def run_in_sandbox(
    sandbox: Sandbox, notebooks: Mapping[str, str], exercises: Sequence[Mapping[str, Any]]
) -> tuple[dict[str, Collected], list[str]]:
    """Return {name: what came back} of all exercises, and in words which notebooks could not be read.

    If an answer ends the process that watches it, or leaves something behind, the sandbox is made anew for the others.
    """
    found = {exercise["name"]: Collected() for exercise in exercises}
    unread: list[str] = []
    left = list(exercises)
    while left:
        begun, done, why = "", set(), ""
        request = {"notebooks": dict(notebooks), "exercises": left, "alone": sandbox.is_alone}
        for message in _messages_of_sandbox(sandbox, request):
            name = str(message.get("exercise"))
            if "ended" in message:
                why = str(message["ended"])
            elif "wrong" in message:
                text = f"{message.get('notebook')}: {message['wrong']}."
                unread += [text] if text not in unread else []
            elif name in found and message.get("begins"):
                begun = name
            elif name in found and message.get("done"):
                done.add(name)
            elif name in found:
                _collect(found[name], message)
        left = [exercise for exercise in left if exercise["name"] not in done]
        if not left:
            break
        guilty = [e for e in left if e["name"] == begun] or ([] if done and not why else left)
        for exercise in guilty:
            found[exercise["name"]].why = why or "it ended the process that watches it."
        left = [exercise for exercise in left if exercise not in guilty]
    return found, unread


def _collect(found: Collected, message: dict[str, Any]) -> None:
    rank, case = message.get("rank"), message.get("case")
    if type(rank) is int and type(case) is int and "got" in message:
        found.got[rank, case] = message["got"]
    if "code" in message:
        found.code, found.file = str(message["code"])[:SHOWN_CHARS], str(message.get("file", ""))[:200]
        found.notes = [str(note)[:500] for note in message.get("notes", [])[:20]]
        found.runs, found.saved = bool(message.get("runs")), str(message.get("saved"))
    found.stub = found.stub or "stub" in message
    found.unfit = found.unfit or str(message.get("unfit", ""))
    found.problem = found.problem or str(message.get("problem", ""))
    found.why = found.why or str(message.get("why", ""))
    found.printed = found.printed or str(message.get("printed", ""))


def _messages_of_sandbox(sandbox: Sandbox, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield what one sandbox prints, and at last {"ended": why} if it was ended from here."""
    with tempfile.TemporaryDirectory(prefix="d2lite-grade-", ignore_cleanup_errors=True) as root:
        process = subprocess.Popen(
            sandbox.command(root, module_runner("d2lite_course.in_sandbox")),
            env=sandbox.environment(root),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd=root,
        )
        assert process.stdin is not None and process.stdout is not None
        ended: list[str] = []
        until = [time.monotonic() + START_S]  # of what it does now
        limits = {e["name"]: MOST_TIMES * e["limit_s"] + JOIN_S + WHOLE_S + SPARE_S for e in request["exercises"]}
        watcher = threading.Thread(target=_watch, args=(process, until, ended), daemon=True)
        watcher.start()
        try:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                process.stdin.write(json.dumps(request).encode())
                process.stdin.close()
            num_bytes = 0
            while line := process.stdout.readline(LINE_BYTES):
                num_bytes += len(line)
                if num_bytes > PRINTED_BYTES or (len(line) == LINE_BYTES and line[-1:] != b"\n"):
                    ended.append("it gives back too much.")
                    break
                with contextlib.suppress(ValueError, RecursionError):
                    message = json.loads(line)
                    if isinstance(message, dict):
                        if message.get("begins"):
                            until[0] = time.monotonic() + limits.get(str(message.get("exercise")), 0)
                        yield {key: value for key, value in message.items() if key != "ended"}
        finally:
            _end_family(process)
            watcher.join()
            process.stdout.close()
        if ended:
            yield {"ended": ended[0]}


def _watch(process: subprocess.Popen[bytes], until: list[float], ended: list[str]) -> None:
    """End a process that takes too long, or whose family needs too much memory."""
    while process.poll() is None:
        if _memory_of(_family(process.pid)) > MEMORY_BYTES_OF_ALL:
            ended.append(TOO_MUCH_MEMORY)
        elif time.monotonic() > until[0]:
            ended.append("it took too long.")
        if ended:
            _end_family(process)
            return
        time.sleep(LOOK_S)


def _end_family(process: subprocess.Popen[bytes]) -> None:
    """End a process and all that it has started: they are in its namespace or in its family."""
    family = _family(process.pid)
    for pid in (process.pid, *family):
        with contextlib.suppress(OSError):
            os.kill(pid, 9)
    process.wait()


def _family(pid: int) -> list[int]:
    """Return the numbers of the processes that a process has started, directly or not (Linux; elsewhere none)."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(path.parent.name))
    found, todo = [], [pid]
    while todo:
        new = children.get(todo.pop(), [])
        found += new
        todo += new
    return found


def _memory_of(pids: Sequence[int]) -> int:
    """Return the bytes of memory that processes have for themselves."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError, ValueError):
            for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                if line.startswith(("RssAnon:", "RssShmem:")):
                    total += 1024 * int(line.split()[1])
    return total
