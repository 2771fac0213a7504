"""How long ranks take to start, a call on ranks that are there, and an all-reduce."""

import os
import time
import warnings

import torch
import torch.distributed as dist

from benchmarks.report import Row
from d2lite import Workers

__all__ = ["rows", "sum_ranks"]


def rows(n=10):
    """Return the rows of the first collective of fresh ranks and of a later call, `n` starts, and of an all-reduce."""
    cold, warm = [], []
    for _ in range(n):
        start = time.perf_counter()
        with Workers(2) as workers:
            workers.run(sum_ranks)
            cold.append(time.perf_counter() - start)
            start = time.perf_counter()
            workers.run(sum_ranks)
            warm.append(time.perf_counter() - start)
    return [
        Row("2 ranks, from nothing to the first all-reduce", "s", cold, target=("worst", 3)),
        Row("the same call again", "s", warm, target=("worst", 0.1)),
        _turns_row(2),
        _turns_row(4),
    ]


def _turns_row(k, n=5):
    """All-reduces one after the other, with the ranks' threads in batch mode and without."""
    row = Row(f"all-reduce of 0.4 MB, {k} ranks", "ms", peer_name="no batch mode", target=("speed-up", 1))
    if not hasattr(os, "SCHED_BATCH"):
        row.skipped = "batch mode is of Linux"
        return row
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # four ranks on two cores are meant
        with Workers(k) as workers:
            for _ in range(n):
                row.ours.append(1e3 * workers.run(mean_all_reduce, os.SCHED_BATCH)[0])
                row.peer.append(1e3 * workers.run(mean_all_reduce, os.SCHED_OTHER)[0])
    return row


def mean_all_reduce(policy, n=50):
    """Return the mean seconds of an all-reduce of 100,000 numbers, with all threads of this rank under `policy`."""
    for thread in os.listdir("/proc/self/task"):
        os.sched_setscheduler(int(thread), policy, os.sched_param(0))
    tensor = torch.ones(100_000)
    dist.barrier()
    start = time.perf_counter()
    for _ in range(n):
        dist.all_reduce(tensor)
    return (time.perf_counter() - start) / n


def sum_ranks():
    """Return the number of ranks, summed up by them."""
    total = torch.ones(1)
    dist.all_reduce(total)
    return total.item()


# they travel by value, as a function of a cell does: ranks import nothing for them
sum_ranks.__module__ = mean_all_reduce.__module__ = "__main__"
