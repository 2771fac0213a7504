"""One rank of a rehearsal: a process that runs the script under an observer and answers what it does.

A rank leaves three kinds of files in the folder of the rehearsal: `rank-0.jsonl` with the observations, `rank-0.pulse`
with what it does now, and `rank-0.dump` with its stack and its last collectives, as soon as the file `dump` is there.
A rank whose script has ended or failed waits until the rehearsal ends it: the others keep their connections. A rank of
a pool (`notebook_ranks.rank`) answers calls instead, and ends with its pipe.
"""

import contextlib
import json
import os
import runpy
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from ddp_rehearsal.observations import Failed, Place
from ddp_rehearsal.observer import Observer, script_place
from ddp_rehearsal.pretend_gpus.switch import pretend_gpus
from notebook_ranks.flight_recorder import read_recorder, send_before_abort, waits_in
from notebook_ranks.output import append_output
from notebook_ranks.rank import error_report, main_thread_stack
from notebook_ranks.rank_seed import seed_rank
from notebook_ranks.shared.own_code import is_own_code

__all__ = ["run_rank"]

PULSE_S = 0.2
FILES_OF_GROUP = tuple(os.path.join(*parts) for parts in (
    ("torch", "distributed"), ("torch", "nn", "parallel", "distributed.py"), ("pretend_gpus", "collectives.py"),
))  # fmt: skip
MOST_PARKED_S = 120  # a rank that nobody ends


def run_rank(rank: int, request: dict[str, Any]) -> None:
    """Run the script of a request as one rank; never return.

    The request has "folder", "script", "arguments", "steps", "pretend" (a number of GPUs, 0 for none) and "seed": None,
    or the first seed of rank 0, that + 1 of rank 1, and so on; rank 0 then writes samples of the tensors.
    """
    folder = Path(request["folder"])
    _redirect(folder / f"rank-{rank}.out")
    torch.set_num_threads(1)
    seed = None if request["seed"] is None else request["seed"] + rank
    seed_rank(seed)
    state = {"name": "running"}
    observer = Observer(folder / f"rank-{rank}.jsonl", request["steps"], lambda: _park(state, "enough"),
                        samples=seed is not None and rank == 0)  # fmt: skip
    pulse = threading.Thread(target=_answer, args=(folder, rank, observer, state), daemon=True)
    pulse.start()
    send_before_abort(lambda: _write_dump(folder / f"rank-{rank}.dump", state))
    if request["pretend"]:
        pretend_gpus(request["pretend"])
    observer.install()
    script = request["script"]
    sys.argv = [script, *request["arguments"]]
    sys.path[0] = os.path.dirname(script)
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if end.code is not None and not isinstance(end.code, int):
            print(end.code, file=sys.stderr)
        observer.end("exit" if code else "returned", code)
        _park(state, "error" if code else "done")
    except BaseException as error:
        traceback.print_exc()
        report = error_report(error)
        observer.note(Failed, place=script_place(report["frames"]), report=report)
        _park(state, "error")
    else:
        observer.end("returned")
        _park(state, "done")


def _redirect(path: Path) -> None:
    """Let standard output and error go into a file, and let nothing come in."""
    append_output(path)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.stdin, sys.stdout, sys.stderr = open(0, closefd=False), _text_stream(1), _text_stream(2)


def _text_stream(descriptor: int) -> Any:
    return open(descriptor, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)


def _park(state: dict[str, str], name: str) -> None:
    """Wait for the end of the process."""
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    state["name"] = name
    time.sleep(MOST_PARKED_S)
    os._exit(0)


def _answer(folder: Path, rank: int, observer: Observer, state: dict[str, str]) -> None:
    """Write what is observed and the pulse again and again, and the dump when it is wanted."""
    dumped = False
    while True:
        pulse = _pulse(observer, state)
        with contextlib.suppress(Exception):
            observer.write()  # before a pulse that says that the script has ended
        with contextlib.suppress(OSError):
            _replace(folder / f"rank-{rank}.pulse", pulse)
        if not dumped and (folder / "dump").exists():
            dumped = True
            _write_dump(folder / f"rank-{rank}.dump", state)
        time.sleep(PULSE_S)


def _pulse(observer: Observer, state: dict[str, str]) -> dict[str, Any]:
    frames = main_thread_stack()
    return {
        "state": state["name"],
        "progress": observer.progress,
        "step": observer.step,
        "cpu_s": time.process_time(),
        "in_collective": bool(waits_in(frames)),
        "waits": observer.in_backward or _in_the_group(frames),
        "place": script_place(frames),
    }


def _in_the_group(frames: Sequence[Place]) -> bool:
    """Return whether the script has called something of torch.distributed, or a network in it, and is there."""
    own = max((i for i, (file, _, _) in enumerate(frames) if is_own_code(file)), default=-1)
    return any(part in file for file, _, _ in frames[own + 1 :] for part in FILES_OF_GROUP)


def _write_dump(path: Path, state: dict[str, str]) -> None:
    _replace(path, {"state": state["name"], "frames": main_thread_stack(), "recorder": read_recorder()})


def _replace(path: Path, facts: dict[str, Any]) -> None:
    """Write facts as JSON into a file, completely or not at all; without waiting for the disk, as it is done often."""
    part = path.with_suffix(".part" + path.suffix)
    part.write_text(json.dumps(facts), encoding="utf-8")
    os.replace(part, path)
