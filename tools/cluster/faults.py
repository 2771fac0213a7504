"""Faults done to a running elastic job, and what its own log says of them: who noticed, when, what was lost."""

import contextlib
import datetime
import json
import os
import re
import signal
import time

from benchmarks.report import markdown_row
from tools.cluster.agents import Job

__all__ = ["COLUMNS", "FAULTS", "agent_notices", "inject", "read_log", "story", "table"]

FAULTS = {
    "kill a worker": "SIGKILL to the training process of host 1",
    "kill a host": "SIGKILL to all that runs on host 1",
    "silence a host": "SIGSTOP to all that runs on host 1: its connections stay open, and nobody answers",
    "cut the link": "the cable of host 1 pulled (namespaces only)",
    "kill the first host": "SIGKILL to all that runs on host 0, which serves the rendezvous",
}
COLUMNS = {
    "fault": "fault",
    "noticed_by": "noticed first by",
    "noticed_s": "noticed after (s)",
    "ranks": "goes on with",
    "resumed_s": "resumed after (s)",
    "lost_steps": "steps lost",
    "end": "end",
}
_SETTINGS = {"num_epochs": 4, "num_examples": 1280, "batch_size": 128}
_STAMP = re.compile(r"^[EW](\d\d)(\d\d) (\d\d):(\d\d):(\d\d)\.(\d+) .*?\] (.*failed \(exitcode.*)$", re.MULTILINE)


def inject(cluster, fault, timeout_s=5, limit_s=60, settings=None, **job_settings):
    """Start a job on two hosts, do `fault` to it in the middle of an epoch, and return its story (see `story`).

    `fault` is one of FAULTS, or a function that takes the running Job and does something to it. `timeout_s` bounds each
    collective. At most about `limit_s` seconds, then the job is ended. `settings` are options of elastic.py, and
    `job_settings` are settings of the Job. Raises ValueError for an unknown fault, and for one that the cluster cannot
    have.
    """
    name = getattr(fault, "__name__", "fault").replace("_", " ") if callable(fault) else fault
    if not callable(fault) and fault not in FAULTS:
        raise ValueError(f"fault: expected a function of the job, or one of {', '.join(FAULTS)}, got {fault!r}.")
    if fault == "cut the link" and not cluster.switch:
        raise ValueError("cut the link: loopback has no cable to pull; silence a host instead.")
    settings = _SETTINGS | (settings or {})
    folder = cluster.folder / name.replace(" ", "-")
    folder.mkdir()
    args = ["book/scripts/elastic.py", "--folder", str(folder), "--timeout-s", str(timeout_s)]
    args += [word for name, value in settings.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    deadline = time.monotonic() + limit_s
    with Job(cluster, args, **({"nnodes": "1:2", "max_restarts": 2, "join_timeout_s": 20} | job_settings)) as job:
        epoch = settings["num_examples"] // settings["batch_size"]
        target = epoch + epoch // 2  # in the middle of the second epoch
        while max([r["done"] for r in read_log(folder) if r["event"] == "step"], default=0) < target:
            if time.monotonic() > deadline or None not in job.codes():
                raise RuntimeError(f"the job did not get as far as the fault. Host 0 said: {job.said(0)[-800:]}")
            time.sleep(0.01)
        struck = time.time()
        fault(job) if callable(fault) else _strike(job, fault)
        codes = _wait(job, name, deadline)
        notices = [n for host in cluster.hosts for n in agent_notices(job.said(host.number), host.number)]
    total = settings["num_epochs"] * epoch
    return {"fault": name, "where": cluster.where, "timeout_s": timeout_s} | story(
        read_log(folder), notices, struck, total, codes
    )


def _strike(job, fault):
    if fault == "kill a worker":
        os.kill(job.pids(1)[1], signal.SIGKILL)
    elif fault == "cut the link":
        job.cluster.cut(1)
    elif fault == "silence a host":
        job.silence_host(1)
    else:
        job.kill_host(0 if fault == "kill the first host" else 1)


def _wait(job, fault, deadline):
    """Wait for the hosts that the fault has left; return {host: exit code, None for one that had to be ended}.

    A host that was cut off tries for many minutes to reach the others: it gets five seconds more than they.
    """
    codes = {}
    while time.monotonic() < deadline:
        codes = {host: code for host, code in enumerate(job.codes()) if host not in job.hurt}
        if None not in codes.values():
            break
        if fault == "cut the link" and codes[0] is not None:
            deadline = min(deadline, time.monotonic() + 5)
        time.sleep(0.05)
    return codes


def read_log(folder):
    """Return what all workers have written down so far, in the order of time."""
    records = []
    for path in folder.glob("rank-*.jsonl"):
        for line in path.read_text().splitlines():
            with contextlib.suppress(ValueError):  # a line cut short by a kill
                records.append(json.loads(line))
    return sorted(records, key=lambda record: record["time"])


def agent_notices(said, host):
    """Return [(time of day, text)] of a torchrun's lines about a worker that failed."""
    found = []
    for month, day, hour, minute, second, part, text in _STAMP.findall(said):
        when = datetime.datetime(datetime.date.today().year, int(month), int(day), int(hour), int(minute), int(second))
        code = re.search(r"exitcode: (-?\d+)", text).group(1)
        found.append((when.timestamp() + float(f"0.{part}"), f"torchrun of host {host}: its worker ended with {code}"))
    return found


def story(records, notices, struck, total, codes):
    """Return what became of a job: pure. `records` are `read_log`'s, `struck` the time of the fault.

    Keys: done (steps at the fault), noticed_by, noticed_s, resumed_s, ranks (those that go on), lost_steps (since the
    checkpoint: to be done once more), end. Times are in seconds since the fault; None where nothing happened.
    """
    steps = [r for r in records if r["event"] == "step"]
    done = max([r["done"] for r in steps if r["time"] <= struck], default=0)
    errors = [(r["time"], f"worker {r['rank']}: {_short(r['message'])}") for r in records if r["event"] == "error"]
    noticed = min([n for n in [*errors, *notices] if n[0] > struck], default=None)
    new = {r["pid"] for r in records if r["event"] == "start" and r["time"] > struck}
    again = next((r for r in steps if r["pid"] in new), None)
    finished = any(r["event"] == "finished" for r in records)
    saved = done - done % max([r["steps"] for r in steps], default=1)  # a checkpoint an epoch
    left = ", ".join(
        f"host {host}: {'still waiting' if c is None else f'exit {c}'}" for host, c in codes.items() if c != 0
    )
    over = f"all {total} steps done" if finished else f"over; {saved} of {total} steps are in the checkpoint"
    return {
        "done": done,
        "noticed_by": noticed[1] if noticed else None,
        "noticed_s": noticed[0] - struck if noticed else None,
        "resumed_s": again["time"] - struck if again else None,
        "ranks": again["world_size"] if again else None,
        "lost_steps": done - (again["done"] if again else saved),
        "end": over + (f" ({left})" if left else ""),
    }


def _short(message):
    """Return the part of gloo's message that says what happened."""
    return (
        re.sub(r"^\[[^]]*\] ", "", message)
        .split(". This is typically")[0]
        .replace("Timed out waiting", "timed out after")
    )


def table(stories, width=80):
    """Return the stories as a table in Markdown, aligned for terminals: one fault a row."""
    head = list(COLUMNS.values())
    rows = [[_cell(name, told[name])[:width] for name in COLUMNS] for told in stories]
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    return "\n".join(markdown_row(map(str.ljust, row, widths)) for row in [head, ["-" * w for w in widths], *rows])


def _cell(name, value):
    if value is None:
        return "–"
    if name == "ranks":
        return f"{value} rank" + ("s" if value > 1 else "")
    return f"{value:.2f}" if isinstance(value, float) else str(value)
