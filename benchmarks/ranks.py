"""Real ranks: what a notebook costs them, and how soon a fault is told."""

import statistics
import subprocess
import sys
import tempfile
import time

import torch

from benchmarks.kernel import ROOT, run_cells
from benchmarks.report import Row, rounds
from benchmarks.starts import sum_ranks
from d2lite import Workers, WorkersError, num_cores
from d2lite.labs.chapter_07 import FAULTS, Job, first_not_finite, train_job
from notebook_ranks import diagnose_hang

__all__ = ["fault_rows", "rows", "speed_rows"]

_CELL = """
from d2lite.training import train_ddp
from d2lite import Workers
with Workers({k}) as workers:
    workers.run(train_ddp, {batch_size}, 0.1, {epochs}, {examples}, 0, {checkpoint!r})
"""


def rows(n=3):
    """Return the rows of speed and faults; `n` rounds of the speed."""
    return speed_rows(n) + fault_rows()


def speed_rows(n=3, examples=10_240, epochs=4, per_rank=256):
    """Return the rows of DDP's examples per second: in a notebook against torchrun, and 2 ranks against 1.

    A turn's figure is its fastest epoch, of 20 or 40 steps, as `timeit` advises: what others take from the machine
    can only slow an epoch down, while a tax of the notebook would be in every epoch. The note gives all epochs' median.
    """
    turns = rounds(
        {
            "notebook": lambda: _epochs(_in_a_notebook, 2, 2 * per_rank, epochs, examples),
            "torchrun": lambda: _epochs(_under_torchrun, 2, 2 * per_rank, epochs, examples),
            "1 rank": lambda: _epochs(_in_a_notebook, 1, per_rank, epochs, examples),
        },
        n,
    )
    best = {name: [max(turn) for turn in found] for name, found in turns.items()}
    middle = {name: statistics.median(sum(found, [])) for name, found in turns.items()}
    label = f"DDP in a notebook, LeNet, 2 ranks, {per_rank} a rank, the fastest epoch"
    found = []
    for peer, least in (("torchrun", 0.97), ("1 rank", 1.7 if num_cores() >= 2 else None)):
        row = Row(label, "examples/s", best["notebook"], best[peer], peer)
        row.target = least and ("ratio of at least", least)
        row.note = f"the median of all epochs: {middle['notebook']:,.0f} against {middle[peer]:,.0f}"
        found.append(row)
    return found


def _epochs(train, k, batch_size, epochs, examples):
    """Return the examples per second of every epoch, from the record that a run keeps in its checkpoint."""
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = f"{folder}/run.pt"
        train(k, batch_size, epochs, examples, checkpoint)
        return [examples / seconds for seconds in torch.load(checkpoint, weights_only=True)["run"]["seconds"]]


def _in_a_notebook(k, batch_size, epochs, examples, checkpoint):
    run_cells([_CELL.format(k=k, batch_size=batch_size, epochs=epochs, examples=examples, checkpoint=checkpoint)])


def _under_torchrun(k, batch_size, epochs, examples, checkpoint):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={k}"]
    command += ["-m", "d2lite.training.ddp", "--lr", "0.1", f"--batch-size={batch_size}"]
    command += [f"--num-epochs={epochs}", f"--num-examples={examples}", f"--checkpoint={checkpoint}"]
    subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=600)


def fault_rows(n=10, timeout_s=2):
    """Return a row a fault: seconds from the call to the message, `n` times, on ranks that are up already."""
    found = []
    for fault, cause in FAULTS.items():
        waits = fault.startswith(("stop", "skip"))  # nobody ends: it shows at the time-out
        bound = 4 if fault.startswith("slow") else timeout_s + 2 if waits else 2  # it sleeps for 2.5 s in all
        seconds, wrong, left_open = [], 0, 0
        for _ in range(n):
            with Workers(2, timeout_s) as workers:
                workers.run(sum_ranks)
                start = time.perf_counter()
                try:
                    bad = first_not_finite(workers.run(train_job, Job(cause, 1)))
                    blamed = bad[0] if bad else diagnose_hang(workers.flight_records()).rank
                except WorkersError as error:
                    blamed = error.rank
                seconds.append(time.perf_counter() - start)
                wrong += blamed not in (1, None)
                left_open += blamed is None
        note = f"time-out {timeout_s:g} s; " if waits else ""
        if wrong:
            note += f"the wrong rank was named {wrong} times"
        elif left_open:
            note += f"it was left open {left_open} times which rank it was"
        else:
            note += "the rank at fault was named each time"
        found.append(Row(fault, "s", seconds, target=("worst", bound), holds=not wrong, note=note))
    return found
