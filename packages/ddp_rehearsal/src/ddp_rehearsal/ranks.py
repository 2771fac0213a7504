"""The ranks of a rehearsal: started as torchrun would, watched, and ended; what they did as plain data.

A pool (`notebook_ranks.rank_handle`) asks its ranks by pipes, and ends them when one fails. Here each rank runs a whole
script, which may do anything with its descriptors, and must outlive the script's end: it is watched by files.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from ddp_rehearsal.observations import (
    MAIN,
    OF_RANKS,
    ONE_PROCESS,
    OTHER,
    Ended,
    Failed,
    RankObservations,
    rank_name,
    read_observations,
)
from ddp_rehearsal.pretend_gpus.devices import visible_gpus
from notebook_ranks.failures import Report
from notebook_ranks.flight_recorder import FlightRecord, flight_record
from notebook_ranks.output import LAST_CHARS, last_output
from notebook_ranks.process_group import free_port, torchrun_variables
from notebook_ranks.rank_starter_handle import on_this_machine
from notebook_ranks.shared.own_code import is_own_code
from notebook_ranks.tempdir import make_tempdir, remove_tempdir

__all__ = ["Outcome", "run_ranks"]

TICK_S = 0.05
AFTER_S = 20.0  # that a script may take after its last step, for an evaluation or a checkpoint
OTHERS_S = 1.0  # how long other ranks may go on after one has failed: they may fail, too
LEFT_S = 4.0  # how long a rank may wait for one whose script has ended
IDLE = 0.1  # seconds per second: a rank that computes less, and waits less for a core, waits for something else
LONGER = 4  # times the patience for a rank that is idle and in no collective: it may wait for a disk or a server
DUMP_S = 2.0
END_S = 3.0  # bounds the wait for what was killed
Facts = dict[str, Any]  # of a request, a pulse or a dump, as JSON has them


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What the ranks did, and how it ended: "enough" (of steps, or the script), "failed", "hang", "idle", "limit".

    `reports` and `records` are those of `notebook_ranks`, of each rank; `waited_s` is how long nothing had moved.
    `alone` says why the script ran as one process and not as ranks of torchrun: `OWN_RANKS`, `ONE_PROCESS` or "".
    `offered` is how many GPUs there were: a script that starts its ranks itself may use fewer, or want more.
    """

    observed: Sequence[RankObservations]
    ending: str
    seconds: float
    waited_s: float = 0.0
    reports: Mapping[int, Report] = field(default_factory=dict)
    records: Mapping[int, FlightRecord] = field(default_factory=dict)
    outputs: Mapping[int, str] = field(default_factory=dict)
    alone: str = ""
    offered: int = 0
    card: str = ""

    @property
    def gpus(self) -> int:
        """How many GPUs were used."""
        return self.offered if self.alone == ONE_PROCESS else min(self.offered, len(self.observed))


def run_ranks(
    script: str, arguments: Sequence[str], gpus: int, *, steps: int, patience_s: float, limit_s: float, pretend: bool,
    seed: int | None = None, card: str = "",
) -> Outcome:  # fmt: skip
    """Run a script on `gpus` ranks until each has made `steps` updates, has ended, has failed or hangs.

    A script that starts its ranks itself, or uses several GPUs in one process, is run again as one process that sees
    all GPUs. With a `seed` the random numbers of rank r begin with that of seed + r, and samples of the tensors are
    observed.
    """
    limits: Facts = {"steps": steps, "patience_s": patience_s, "limit_s": limit_s, "pretend": pretend}
    limits |= {"seed": seed, "card": card}
    outcome = _run(script, arguments, gpus, "", **limits)
    if not outcome.alone:
        return outcome
    alone = _run(script, arguments, gpus, outcome.alone, **limits)
    return _run(script, arguments, gpus, "", may_change=False, **limits) if _misses_torchrun(alone) else alone


def _misses_torchrun(outcome: Outcome) -> bool:
    """Return whether a script failed for want of what torchrun sets: it needs torchrun, and starts a program, too."""
    messages = [str(report.get("message", "")) for report in outcome.reports.values()]
    return outcome.ending == "failed" and any(name in message for message in messages for name in OF_RANKS)


def _run(
    script: str, arguments: Sequence[str], gpus: int, alone: str, *, steps: int, patience_s: float, limit_s: float,
    pretend: bool, seed: int | None, card: str, may_change: bool = True,
) -> Outcome:  # fmt: skip
    began = time.monotonic()
    folder, lock = make_tempdir()
    port = free_port()
    request = {
        "folder": str(folder), "script": os.path.abspath(script), "arguments": list(arguments), "steps": steps,
        "gpus": gpus, "pretend": gpus if pretend else 0, "seed": seed, "card": card,
        "is_alone": bool(alone), "may_change": may_change, "limit_s": limit_s, "terminal": _size_of_terminal(),
        "environment": [torchrun_variables(rank, gpus, str(port)) for rank in range(gpus)],
    }  # fmt: skip
    starter = _Starter(request, folder)
    try:
        watch = _Watch(folder, gpus, patience_s, pretend, bool(alone))
        while not (ending := watch.ending(starter.ended)):
            if time.monotonic() - began > limit_s:
                ending = "limit"
                break
            time.sleep(TICK_S)
        seconds = time.monotonic() - began
        names, ended = watch.names_at_the_end(), watch.ended(starter.ended)  # by themselves
        dumps = _ask_dumps(folder, names, ended) if ending not in ("enough", "again") else {}
        starter.end()
        observed = read_observations(folder, names)
        outputs = {rank: _tail(folder / f"{name}.out") for rank, name in names.items()}
        outputs[0] = (_tail(folder / "starter.out") + outputs[0])[-LAST_CHARS:]
        reports = {one.rank: _report(one, ended, dumps, watch.pulses, outputs) for one in observed}
        records = {
            rank: _in_the_script(flight_record(rank, dumps[rank]["recorder"] if rank in dumps else None, reports[rank]))
            for rank in reports
        }
        return Outcome(
            observed=observed,
            ending=ending,
            seconds=seconds,
            waited_s=watch.waited_s,
            reports=reports,
            records=records,
            outputs=outputs,
            alone=watch.again or alone,
            offered=gpus,
            card=card,
        )
    finally:
        starter.end()
        remove_tempdir(folder, lock)


def _size_of_terminal() -> list[int] | None:
    """Return columns and lines of the terminal that is the standard input; None if that is something else.

    Ranks of torchrun have its standard input: there are scripts that ask `stty size`, and fail without a terminal.
    """
    try:
        return list(os.get_terminal_size(0))
    except OSError:
        return None


class _Starter:
    """The process that starts the ranks; `ended` is {rank: exit code} of those that have ended."""

    def __init__(self, request: Facts, folder: Path) -> None:
        self.ended: dict[int, int] = {}
        with open(folder / "starter.out", "wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "ddp_rehearsal.fork_ranks"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=out, text=True, env=_environment(request),
                start_new_session=True,
            )  # fmt: skip
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        self.num_ranks = 1 if request["is_alone"] else request["gpus"]
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            end = json.loads(line)
            self.ended[end["rank"]] = end["code"]
        for rank in range(self.num_ranks):  # the starter itself has ended
            self.ended.setdefault(rank, 1)

    def end(self) -> None:
        """End the ranks, and whatever they have started."""
        assert self.process.stdin is not None and self.process.stdout is not None
        with suppress(OSError):
            self.process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(2 * END_S)  # it ends what it can reach, other sessions as well
        until = time.monotonic() + END_S
        while time.monotonic() < until:  # what a rank has started may end later than the rank
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except OSError:
                break
            self.process.poll()
            time.sleep(TICK_S)
        self.process.wait()
        self.reader.join(2.0)
        self.process.stdout.close()


class _Watch:
    """Looks at the ranks' pulses, and decides whether the run has ended.

    A script that runs alone is one process, until its processes join a group: then these are the ranks.
    """

    def __init__(self, folder: Path, gpus: int, patience_s: float, pretend: bool, is_alone: bool) -> None:
        self.folder, self.patience_s, self.pretend, self.is_alone = folder, patience_s, pretend, is_alone
        self.names = {0: MAIN} if is_alone else {rank: rank_name(rank) for rank in range(gpus)}
        self.pulses: dict[int, Facts] = {}
        self.moved_at, self.failed_at, self.waited_s = time.monotonic(), 0.0, 0.0
        self.seen: list[tuple[Any, ...]] | None = None
        self.busy_s: dict[int, float] = {}
        self.again = ""  # why the script must run alone

    def ending(self, ended: Mapping[int, int]) -> str:
        """Return how the run has ended, or "" while it goes on; "again" if it must begin again, alone."""
        if self.is_alone and self.names == {0: MAIN}:
            self._look_for_ranks()
        for rank, name in self.names.items():
            with suppress(OSError, ValueError):
                self.pulses[rank] = json.loads((self.folder / f"{name}.pulse").read_text(encoding="utf-8"))
        self.again = next((p["why"] for p in self.pulses.values() if p["state"] == "again"), "")
        if self.again:
            return "again"
        died = self.ended(ended)
        states = {
            r: ("done" if died[r] == 0 else "died") if r in died else self.pulses.get(r, {}).get("state", "starts")
            for r in self.names
        }
        over = {rank for rank, pulse in self.pulses.items() if pulse.get("over_s", 0.0) > AFTER_S}
        active = [rank for rank, state in states.items() if state in ("running", "starts") and rank not in over]
        now = time.monotonic()
        if self._others_failed(ended) or any(state in ("died", "error") for state in states.values()):
            self.failed_at = self.failed_at or now
            return "failed" if not active or now - self.failed_at > OTHERS_S else ""
        if not active:
            return "enough"
        is_parked = any(state == "enough" for state in states.values())
        left = any(state == "done" for state in states.values())
        ending = self._stuck(active, now, left or is_parked)
        # a rank that was stopped after enough steps is no partner: whoever waits for it would not have waited
        return "enough" if ending == "hang" and is_parked and not left else ending

    def ended(self, of_starter: Mapping[int, int]) -> dict[int, int | None]:
        """Return {rank: exit code} of the ranks that have ended by themselves; None is a code that is not known."""
        if self.names == {0: MAIN} or not self.is_alone:
            return dict(of_starter)
        return {rank: None for rank, pulse in self.pulses.items() if not _lives(pulse["pid"])}

    def names_at_the_end(self) -> dict[int, str]:
        """Return {rank: name of its files}; a process that has failed before it became a rank is the next one."""
        others = sorted(path.stem for path in self.folder.glob(f"{OTHER}*.jsonl"))
        if others and self.names == {0: MAIN}:
            return dict(enumerate(others))
        free = [rank for rank, name in self.names.items() if not (self.folder / f"{name}.jsonl").exists()]
        return self.names | dict(zip(free, others, strict=False))

    def _look_for_ranks(self) -> None:
        with suppress(OSError, ValueError):
            world_size = int((self.folder / "world").read_text(encoding="utf-8"))
            self.names, self.pulses = {rank: rank_name(rank) for rank in range(world_size)}, {}

    def _others_failed(self, ended: Mapping[int, int]) -> bool:
        """Return whether the script itself, which waits for its ranks, or a process that is no rank has failed."""
        if not self.is_alone:
            return False
        if self.names != {0: MAIN}:
            with suppress(OSError, ValueError):
                state = json.loads((self.folder / f"{MAIN}.pulse").read_text(encoding="utf-8"))["state"]
                if state == "error" or ended:
                    return True
        return any(self.folder.glob(f"{OTHER}*.jsonl"))

    def _stuck(self, active: Sequence[int], now: float, left: bool) -> str:
        pulses = [self.pulses.get(rank, {}) for rank in active]
        seen: list[tuple[Any, ...]] = [
            (rank, p.get("progress"), p.get("step"), p.get("place")) for rank, p in zip(active, pulses, strict=True)
        ]
        if seen != self.seen:
            self.seen, self.moved_at = seen, now
            self.busy_s = {rank: p.get("busy_s", 0.0) for rank, p in zip(active, pulses, strict=True)}
        self.waited_s = now - self.moved_at
        if self.waited_s < min(self.patience_s, LEFT_S if left else self.patience_s):
            return ""
        if not all(pulses):  # a rank of the script's own that never came
            is_late = self.is_alone and any(pulses) and self.waited_s > LONGER * self.patience_s
            return "idle" if is_late else ""
        for rank, p in zip(active, pulses, strict=True):
            is_idle = p["busy_s"] - self.busy_s[rank] < IDLE * self.waited_s
            if not (is_idle or (p["in_collective"] and not self.pretend)):  # NCCL waits with a busy core
                return ""
        waits = {r: p["in_collective"] or p["waits"] for r, p in zip(active, pulses, strict=True)}
        if not any(waits.values()):
            return ""
        if all(waits.values()):
            return "hang"
        return "idle" if self.waited_s > LONGER * self.patience_s else ""


def _lives(pid: int) -> bool:
    """Return whether a process runs; one that has ended may still have a number until its parent asks for it."""
    try:
        os.kill(pid, 0)
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except OSError:  # no /proc, or another user's
        return True


def _ask_dumps(folder: Path, names: Mapping[int, str], ended: Mapping[int, int | None]) -> dict[int, Facts]:
    """Return what the ranks tell of their stacks and collectives, as soon as all that live have answered."""
    (folder / "dump").touch()
    until, found = time.monotonic() + DUMP_S, dict[int, Facts]()
    while time.monotonic() < until and not all(rank in found or rank in ended for rank in names):
        for rank, name in names.items():
            with suppress(OSError, ValueError):
                found[rank] = json.loads((folder / f"{name}.dump").read_text(encoding="utf-8"))
        time.sleep(TICK_S)
    return found


def _in_the_script(record: FlightRecord) -> FlightRecord:
    """Return the record with the callers of each collective that are in the script, without those of the observer."""

    def cut(path: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
        return tuple((file, line) for file, line in path if is_own_code(file)) or path

    return replace(record, collectives=tuple(replace(one, path=cut(one.path)) for one in record.collectives))


def _report(
    one: RankObservations, ended: Mapping[int, int | None], dumps: Mapping[int, Facts], pulses: Mapping[int, Facts],
    outputs: Mapping[int, str],
) -> Report:  # fmt: skip
    """Return the report of one rank as `notebook_ranks` has them."""
    if raised := one.of(Failed):
        return {"state": "error", **raised[-1].report}
    exits = [end for end in one.of(Ended) if end.how == "exit"]
    if exits:
        place = [exits[-1].place] if exits[-1].place else []
        return {"state": "error", "type": "SystemExit", "message": str(exits[-1].code), "frames": place}
    if one.rank in ended and ended[one.rank] != 0:  # 0: by os._exit
        return {"state": "died", "exitcode": ended[one.rank], "output": outputs[one.rank]}
    state = pulses.get(one.rank, {}).get("state", "running")
    if state in ("enough", "done") or one.rank in ended:
        return {"state": "done"}
    dump = dumps.get(one.rank)
    return {"state": "running", "frames": dump["frames"]} if dump else {"state": "silent"}


def _tail(path: Path) -> str:
    """Return the last output of a process, with an end of line where a progress bar begins anew."""
    return last_output(path).replace("\r\n", "\n").replace("\r", "\n")


def _environment(request: Facts) -> dict[str, str]:
    found = {**os.environ, **on_this_machine(), "TORCH_FR_BUFFER_SIZE": "2000"}
    if request["seed"] is not None:
        found["PYTHONHASHSEED"] = str(request["seed"])  # the order of a set of texts depends on it
        found["NVIDIA_TF32_OVERRIDE"] = "0"  # real GPUs would round the two runs differently
    k = request["pretend"]
    if k and (torch.cuda.device_count() or visible_gpus(k) < k):  # none of the real GPUs is used
        found.pop("D2LITE_PRETEND_GPUS", None)
        found["CUDA_VISIBLE_DEVICES"] = ",".join(["-1"] * k)  # so many names, and no real GPU
    return found
