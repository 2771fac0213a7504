"""What the divergence finder costs: its share of a step, and the memory that it keeps.

Alone: `python -m benchmarks.records.divergence --save NAME`. A plain step and a recorded one take turns.
"""

import argparse
import time
from statistics import median

import torch

from benchmarks.report import command_line, keep, machine
from d2lite import describe, format_bytes, lenet_params, replicate, train_batch, try_gpus
from d2lite.labs.chapter_11 import find_divergence, record_steps

__all__ = ["kept_bytes", "main", "step_seconds"]

BATCH_SIZE, NUM_STEPS, LR = 256, 20, 0.1
SHARE, N_BYTES = 0.2, 50e6  # what it may cost


def make_batches(num_steps=NUM_STEPS, batch_size=BATCH_SIZE):
    generator = torch.Generator().manual_seed(0)
    for _ in range(num_steps):
        X = torch.rand(batch_size, 1, 28, 28, generator=generator)
        yield X, torch.randint(0, 10, (batch_size,), generator=generator)


def step_seconds(k, num_steps=NUM_STEPS, batch_size=BATCH_SIZE):
    """Return the medians of a plain step and of a recorded one, taken in turn, in seconds."""
    devices, plain_s, recorded_s = try_gpus(k), [], []
    plain, recorded = replicate(lenet_params(), devices), replicate(lenet_params(), devices)
    records = record_steps(train_batch, make_batches(num_steps, batch_size), recorded, devices, LR)
    for X, y in make_batches(num_steps, batch_size):
        began = time.perf_counter()
        train_batch(X, y, plain, devices, LR)
        middle = time.perf_counter()
        next(records)
        plain_s.append(middle - began)
        recorded_s.append(time.perf_counter() - middle)
    return median(plain_s), median(recorded_s)


def kept_bytes(k, num_steps=NUM_STEPS, batch_size=BATCH_SIZE):
    """Return the bytes of tensors that the finder holds at most: one device against k, which differ by rounding."""
    runs = [
        record_steps(train_batch, make_batches(num_steps, batch_size), replicate(lenet_params(), devices), devices, LR)
        for devices in (try_gpus(1), try_gpus(k))
    ]
    return find_divergence(*runs).most_bytes


def main(argv=None):
    """Measure, print, and keep the figures as JSON if a name is given."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.records.divergence", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="of 20 steps each (7)")
    parser.add_argument("--save", metavar="NAME", help="keep the figures in benchmarks/results/NAME.json")
    args = parser.parse_args(argv)
    facts, found = machine(), {"batch_size": BATCH_SIZE, "num_steps": NUM_STEPS, "devices": {}}
    for k in (1, 2):
        rounds = [step_seconds(k) for _ in range(args.rounds)]
        shares = [recorded_s / plain_s - 1 for plain_s, recorded_s in rounds]
        found["devices"][k] = {"rounds": rounds, "shares": shares, "n_bytes": kept_bytes(k)}
        print(f"LeNet, {BATCH_SIZE} examples, {describe(try_gpus(k))}, {args.rounds} rounds of {NUM_STEPS} steps:")
        print(f"   a step takes {median(shares):+.1%} ({min(shares):+.1%} to {max(shares):+.1%}), limit {SHARE:+.0%}")
        print(f"   tensors kept: at most {format_bytes(found['devices'][k]['n_bytes'])}, limit {format_bytes(N_BYTES)}")
    if args.save:
        keep(args.save, command_line("benchmarks.records.divergence", argv), facts, found)


if __name__ == "__main__":
    main()
