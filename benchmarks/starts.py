"""How long ranks take to start, and a call on ranks that are there."""

import time

import torch
import torch.distributed as dist

from benchmarks.report import Row
from d2lite.workers import Workers

__all__ = ["rows", "sum_ranks"]


def rows(n=10):
    """Return the rows of the first collective of fresh ranks and of a later call; `n` starts."""
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
    ]


def sum_ranks():
    """Return the number of ranks, summed up by them."""
    total = torch.ones(1)
    dist.all_reduce(total)
    return total.item()


sum_ranks.__module__ = "__main__"  # travels by value, as a function of a cell does: ranks import nothing for it
