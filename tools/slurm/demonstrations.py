"""What Slurm does with a job, one demonstration after another; each gives the commands and what they print."""

import contextlib
import os
import re
import shutil
import signal
import textwrap
import time
from pathlib import Path

from tools.cluster.hosts import ROOT
from tools.cluster.processes import tree
from tools.slurm.box import NODES

__all__ = ["DEMONSTRATIONS", "adapted", "demonstrate", "prepare", "table"]

SCRIPTS, JOBS = ROOT / "book" / "scripts", Path(__file__).parent / "jobs"
_JOB_S = 180  # for one job, or for one thing to happen to it
_BROKEN = {"BOOT_FAIL", "CANCELLED", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT"}


def adapted(text, num_epochs, samples=4096):
    """Return train.sbatch for two nodes of one core each and no GPU, with made-up samples; marked lines change alone.

    Raises ValueError for a text without the lines that change.
    """
    changes = [
        (r"#SBATCH --gpus-per-node=.*\(2\).*\n", ""),
        (r"(#SBATCH --cpus-per-task=)16( .*\(3\))", r"\g<1>1 \2"),
        (r" --data \S+ \\\n.* --checkpoint", f" --synthetic {samples} --num-workers 0 \\\\\n"
         f"        --batch-size 256 --lr 0.01 --num-epochs {num_epochs} --checkpoint"),
    ]  # fmt: skip
    for pattern, new in changes:
        text, found = re.subn(pattern, new, text)
        if found != 1:
            raise ValueError(f"train.sbatch: expected one place with {pattern!r}, got {found}.")
    return text


def prepare(home, num_epochs=3):
    """Put train.sbatch, adapted to the nodes, and the other jobs into the folder that both nodes see."""
    for path in (SCRIPTS / "train_ddp.py", *JOBS.glob("*.*")):
        shutil.copy(path, home)
    (home / "train.sbatch").write_text(adapted((SCRIPTS / "train.sbatch").read_text(), num_epochs))


def queue(box):
    """The queue: two jobs for both nodes; the second waits until the first is cancelled."""
    ids = []
    for name in ("first", "second"):
        command, printed = _show(box, f"sbatch --job-name={name} --nodes=2 --wrap='srun sleep 600'")
        ids.append(_number(printed))
        yield command, printed
        if name == "first":
            _until(box, ids[0], "RUNNING")
    box.wait(lambda: "(Resources)" in box.run("squeue"), _JOB_S, "the second job waits for nodes")
    yield _show(box, "squeue")
    yield _show(box, f"scancel {ids[0]}")
    _until(box, ids[1], "RUNNING")
    yield _show(box, "squeue")


def train(box):
    """train.sbatch of the chapter: two nodes with a rank each."""
    shown, job = _submit(box, 3)
    yield shown
    _until(box, job, "COMPLETED")
    yield _show(box, f"grep ^epoch train-ddp-{job}.txt")


def killed_worker(box):
    """A worker is killed: torchrun starts all workers again, from the checkpoint."""
    shown, job = _submit(box, 6)
    yield shown
    _epoch(box, job, 2)
    os.kill(_worker(box, 1), signal.SIGKILL)
    yield "node2$ kill -KILL <the worker>", ""
    _until(box, job, "COMPLETED")
    yield _show(box, f"grep -oE '^epoch.*|failed .exitcode: -9.' train-ddp-{job}.txt")


def lost_node(box):
    """A node is lost: Slurm puts the job into the queue again, and it goes on once the node is back."""
    shown, job = _submit(box, 6, "--open-mode=append ")
    yield shown
    _epoch(box, job, 2)
    box.power_off(1)
    yield "(node2 is switched off)", ""
    _until(box, job, "PENDING")
    yield _show(box, "sinfo")
    yield _show(box, "squeue")
    box.power_on(1)
    yield "(node2 is switched on)", ""
    _until(box, job, "RUNNING")
    yield _show(box, f"scontrol show job {job} | grep -o 'Restarts=[0-9]*'")
    _until(box, job, "COMPLETED")
    yield _show(box, f"grep -oE '^epoch.*|JOB .* DUE TO NODE FAILURE' train-ddp-{job}.txt")


def time_limit(box):
    """The time limit: a signal before it, a checkpoint, and the job goes on in a second minute."""
    command, printed = _show(box, "sbatch in_time.sbatch")
    yield command, printed
    job = _number(printed)
    said = box.home / f"in-time-{job}.txt"

    def goes_on():
        return said.exists() and re.search(r"stopped\n(.*\n)*epoch .*\n", said.read_text())

    box.wait(goes_on, _JOB_S, f"job {job}: a second start")
    yield _show(box, f"grep -E '^(epoch|USR1)' in-time-{job}.txt | grep -B1 -A2 USR1")


def rates(box):
    """A job array: four learning rates, two at a time."""
    command, printed = _show(box, "sbatch rates.sbatch")
    yield command, printed
    job = _number(printed)
    box.wait(lambda: box.state(job).count("RUNNING") == 2, _JOB_S, f"job {job}: two of four run")
    yield _show(box, "squeue --array")
    _until(box, job, "+".join(["COMPLETED"] * 4))
    yield _show(box, "grep -h 'epoch 2' rate-*.txt")


DEMONSTRATIONS = {
    "queue": queue,
    "train": train,
    "killed worker": killed_worker,
    "lost node": lost_node,
    "time limit": time_limit,
    "learning rates": rates,
}


def demonstrate(box, name):
    """Run a demonstration; return one dict a command: what, command, printed, and the seconds until it was there.

    Raises RuntimeError or TimeoutError where something is not as expected. No job is left in the queue.
    """
    prepare(box.home)
    box.wait(lambda: box.idle() == len(NODES), _JOB_S, "all nodes are idle")
    rows, began = [], time.monotonic()
    try:
        for command, printed in DEMONSTRATIONS[name](box):
            now = time.monotonic()
            rows.append({"what": name, "command": command, "printed": printed, "seconds": round(now - began, 1)})
            began = now
    finally:
        for node in set(range(len(NODES))) - set(box.processes):
            box.power_on(node)
        box.run("scancel --user=root")
        box.wait(lambda: not box.run("squeue --noheader"), _JOB_S, "the queue is empty")
    return rows


def table(rows):
    """Return the rows as lines of text: the seconds, and the command with what it printed below it."""
    width = max(map(len, DEMONSTRATIONS))
    lines = [f"{'what':{width}} {'seconds':>8}  command, and what it printed"]
    for row in rows:
        command = row["command"] if row["command"].startswith(("(", "node")) else f"node1$ {row['command']}"
        lines.append(f"{row['what']:{width}} {row['seconds']:8.1f}  {command}")
        lines += [" " * (width + 11) + line for line in row["printed"].splitlines()]
    return "\n".join(lines)


def _show(box, line):
    """Run a line on node1; return it and what it printed."""
    return line, textwrap.dedent(box.run(line))


def _submit(box, num_epochs, options=""):
    """Submit train.sbatch for so many epochs; return the command with what it printed, and the job's number."""
    prepare(box.home, num_epochs)
    shown = _show(box, f"sbatch {options}train.sbatch")
    return shown, _number(shown[1])


def _number(printed):
    """Return the number of the job that sbatch has submitted."""
    return int(re.fullmatch(r"Submitted batch job (\d+)", printed).group(1))


def _until(box, job, state):
    """Wait for a state of a job; RuntimeError where it ends in a different way."""

    def reached():
        found = box.state(job)
        if found != state and _BROKEN & set(found.split("+")):
            raise RuntimeError(f"job {job}: expected {state}, got {found}.\n{box.logs()}")
        return found == state

    box.wait(reached, _JOB_S, f"job {job}: {state}")


def _epoch(box, job, number):
    """Wait until train.sbatch has done so many epochs."""
    said = box.home / f"train-ddp-{job}.txt"
    box.wait(lambda: said.exists() and f"epoch {number}:" in said.read_text(), _JOB_S, f"job {job}: epoch {number}")


def _worker(box, node):
    """Return the process on a node that trains: it runs train_ddp.py, and is not torchrun."""
    for pid in tree(box.processes[node].pid):
        with contextlib.suppress(OSError):  # gone meanwhile
            words = Path(f"/proc/{pid}/cmdline").read_text()
            if "train_ddp.py" in words and "torchrun" not in words:
                return pid
    raise RuntimeError(f"{NODES[node]}: no process runs train_ddp.py.\n{box.logs()}")
