"""Seconds of an all-reduce by each algorithm of chapter 4 on the ranks of this job; for torchrun.

`torchrun --nproc-per-node=4 book/scripts/all_reduce_time.py --out all_reduce_time.json`. Rank 0 writes the figures.
"""

import argparse
import datetime
import json
import time

import torch
import torch.distributed as dist

from d2lite.labs.chapter_04 import all_reduce_on_ranks
from d2lite.training import exit_rank

__all__ = ["ALGORITHMS", "seconds"]

ALGORITHMS = ("naive", "parameter server", "tree", "ring", "ring both ways", "two-level", "all pairs")
TIMEOUT_S = 120
SMALL = 1  # numbers: nothing but latency


def seconds(algorithm, n, per_host, repeats=1):
    """Return the seconds of `repeats` all-reduces of n float32 numbers, each that of the rank that took longest.

    Raises RuntimeError where a sum is wrong.
    """
    times = torch.empty(repeats)
    for i in range(repeats):
        tensor = torch.full((n,), dist.get_rank() + 1.0)
        dist.barrier()
        start = time.perf_counter()
        all_reduce_on_ranks(tensor, "sum", algorithm, per_host if algorithm == "two-level" else None)
        times[i] = time.perf_counter() - start
        k = dist.get_world_size()
        if not (tensor == k * (k + 1) / 2).all():
            raise RuntimeError(f"{algorithm}: expected {k * (k + 1) / 2} everywhere, got {tensor.unique().tolist()}.")
    dist.all_reduce(times, dist.ReduceOp.MAX)
    return times.tolist()


def send_seconds(n, repeats=5):
    """Return the median seconds of a message of n float32 numbers from rank 0 to rank 1, half of there and back."""
    tensor, times = torch.zeros(n), []
    for _ in range(repeats):
        dist.barrier()
        start = time.perf_counter()
        if dist.get_rank() < 2:
            turn = [dist.send, dist.recv] if dist.get_rank() == 0 else [dist.recv, dist.send]
            for act in turn:
                act(tensor, 1 - dist.get_rank())
        times.append((time.perf_counter() - start) / 2)
    return sorted(times)[repeats // 2]


def main():
    """Measure under torchrun."""
    parser = argparse.ArgumentParser(prog="torchrun --nproc-per-node=4 book/scripts/all_reduce_time.py")
    parser.add_argument("--out", required=True, help="the file to write; rank 0 writes it")
    parser.add_argument("--n-bytes", type=int, default=1_000_000, help="bytes that are summed up")
    parser.add_argument("--per-host", type=int, default=1, help="ranks of a host, for the two-level algorithm")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--algorithms", nargs="+", choices=ALGORITHMS, default=list(ALGORITHMS))
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=TIMEOUT_S))
    n = args.n_bytes // 4
    record = {"world_size": dist.get_world_size(), "per_host": args.per_host, "n_bytes": 4 * n, "seconds": {}}
    record["small_s"], record["message_s"] = send_seconds(SMALL, 21), send_seconds(n)
    for algorithm in args.algorithms:
        seconds(algorithm, SMALL, args.per_host)  # connects those that talk to each other
        record["seconds"][algorithm] = seconds(algorithm, n, args.per_host, args.repeats)
    if dist.get_rank() == 0:
        with open(args.out, "w") as file:
            json.dump(record, file)
    exit_rank()


if __name__ == "__main__":
    main()
