"""A process of a rehearsal: it runs the script under an observer and answers what it does.

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

from ddp_rehearsal.observations import MAIN, Failed, Place, rank_name
from ddp_rehearsal.observer import Observer, script_place
from ddp_rehearsal.pretend_gpus.cards import card_of
from ddp_rehearsal.pretend_gpus.devices import choose_card, number_of_gpus
from ddp_rehearsal.pretend_gpus.switch import pretend_gpus
from notebook_ranks.flight_recorder import read_recorder, send_before_abort, waits_in
from notebook_ranks.output import append_output
from notebook_ranks.rank import error_report, main_thread_stack
from notebook_ranks.shared.own_code import is_own_code

__all__ = ["RankProcess", "busy_s", "empty_terminal"]

PULSE_S = 0.2
FILES_OF_GROUP = tuple(os.path.join(*parts) for parts in (
    ("torch", "distributed"), ("torch", "nn", "parallel", "distributed.py"), ("pretend_gpus", "collectives.py"),
))  # fmt: skip
ENDS = 100  # how often a terminal says that its input has ended: once for each who asks
MORE_S = 60  # than the limit of the rehearsal: a rank that nobody ends


class RankProcess:
    """This process in a rehearsal: `name` is that of its files, `state` what its script does now.

    Its `observer` notes what happens, and writes it as soon as the process has a name.
    """

    def __init__(self, request: dict[str, Any]) -> None:
        self.request, self.folder = request, Path(request["folder"])
        self.name, self.state, self.why = "", "running", ""
        self.observer = Observer(request["steps"], lambda: self.park("enough"))
        self.observer.folder = os.path.realpath(self.folder)
        torch.set_num_threads(1)

    def become(self, name: str) -> None:
        """Take the name of a rank: write into its files from now on."""
        self.name, self.state = name, "running"
        _redirect(self.folder / f"{name}.out", self.request["terminal"])
        self.observer.samples = self.request["seed"] is not None and name in (MAIN, rank_name(0))
        self.observer.open(self.folder / f"{name}.jsonl")
        threading.Thread(target=self._answer, args=(name,), daemon=True).start()
        send_before_abort(lambda: self._write_dump(name))

    def begin(self) -> None:
        """Begin to pretend and to observe."""
        if self.request["pretend"]:
            if not number_of_gpus():  # a program of the script has them already, all or those that it may see
                pretend_gpus(self.request["pretend"])
            if self.request["card"]:
                choose_card(card_of(self.request["card"]))
        self.observer.install()

    def run_script(self) -> None:
        """Run the script, and wait for the end of the rehearsal."""
        script = self.request["script"]
        sys.argv = [script, *self.request["arguments"]]
        sys.path[0] = os.path.dirname(script)
        try:
            runpy.run_path(script, run_name="__main__")
        except BaseException as error:
            self.end(error)
        self.end()

    def end(self, error: BaseException | None = None) -> None:
        """Note how what runs here has ended, by itself or by an error, and wait for the end of the rehearsal."""
        if isinstance(error, SystemExit):
            code = error.code if isinstance(error.code, int) else int(error.code is not None)
            if error.code is not None and not isinstance(error.code, int):
                print(error.code, file=sys.stderr)
            self.observer.end("exit" if code else "returned", code)
            self.park("error" if code else "done")
        elif error is not None:
            traceback.print_exception(error)
            report = error_report(error)
            self.observer.note(Failed, place=script_place(report["frames"]), report=report)
            self.park("error")
        else:
            self.observer.end("returned")
            self.park("done")

    def begin_again(self, why: str) -> None:
        """Ask for a run of the script as one process, and wait for the end of this one."""
        self.why = why
        self.park("again")

    def park(self, state: str) -> None:
        """Wait for the end of the process."""
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        self.state = state
        time.sleep(self.request["limit_s"] + MORE_S)
        os._exit(0)

    def _answer(self, name: str) -> None:
        """Write what is observed and the pulse again and again, and the dump when it is wanted."""
        dumped = False
        while self.name == name:
            pulse = self._pulse()
            with contextlib.suppress(Exception):
                self.observer.write()  # before a pulse that says that the script has ended
            with contextlib.suppress(OSError):
                _replace(self.folder / f"{name}.pulse", pulse)
            if not dumped and (self.folder / "dump").exists():
                dumped = True
                self._write_dump(name)
            time.sleep(PULSE_S)

    def _pulse(self) -> dict[str, Any]:
        frames = main_thread_stack()
        return {
            "state": self.state,
            "why": self.why,
            "pid": os.getpid(),
            "progress": self.observer.progress,
            "step": self.observer.step,
            "over_s": time.monotonic() - self.observer.over_since if self.observer.over_since else 0.0,
            "busy_s": busy_s(),
            "in_collective": bool(waits_in(frames)),
            "waits": self.observer.in_backward or _in_the_group(frames),
            "place": script_place(frames),
        }

    def _write_dump(self, name: str) -> None:
        facts = {"state": self.state, "frames": main_thread_stack(), "recorder": read_recorder()}
        _replace(self.folder / f"{name}.dump", facts)


def _redirect(path: Path, terminal: Sequence[int] | None) -> None:
    """Let standard output and error go into a file, and let nothing come in, from a terminal if a size is given."""
    append_output(path)
    os.dup2(os.open(os.devnull, os.O_RDONLY) if terminal is None else empty_terminal(*terminal), 0)
    sys.stdin, sys.stdout, sys.stderr = open(0, closefd=False), _text_stream(1), _text_stream(2)


def empty_terminal(columns: int, lines: int) -> int:
    """Return a descriptor of a terminal of this size, which says that its input has ended."""
    import termios  # Windows has none, and no ranks

    inner, terminal = os.openpty()  # the inner end stays open: without it the terminal would hang up
    termios.tcsetwinsize(terminal, (lines, columns))
    os.write(inner, b"\x04" * ENDS)
    return terminal


def _text_stream(descriptor: int) -> Any:
    return open(descriptor, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)


def busy_s() -> float:
    """Return how long this process has computed, or its main thread was ready to and got no core (Linux tells)."""
    ready = 0.0
    with contextlib.suppress(OSError, ValueError, IndexError):
        with open(f"/proc/self/task/{os.getpid()}/schedstat", encoding="ascii") as file:
            ready = int(file.read().split()[1]) / 1e9
    return time.process_time() + ready


def _in_the_group(frames: Sequence[Place]) -> bool:
    """Return whether the script has called something of torch.distributed, or a network in it, and is there."""
    own = max((i for i, (file, _, _) in enumerate(frames) if is_own_code(file)), default=-1)
    return any(part in file for file, _, _ in frames[own + 1 :] for part in FILES_OF_GROUP)


def _replace(path: Path, facts: dict[str, Any]) -> None:
    """Write facts as JSON into a file, completely or not at all; without waiting for the disk, as it is done often."""
    part = path.with_suffix(".part" + path.suffix)
    part.write_text(json.dumps(facts), encoding="utf-8")
    os.replace(part, path)
