"""What the divergence finder costs: `python -m benchmarks.divergence` prints its share of a step and its memory."""

import time
from statistics import median

import torch

from d2lite import describe, format_bytes, lenet_params, replicate, train_batch, try_gpus
from d2lite.profiling import find_divergence, record_steps

BATCH_SIZE, NUM_STEPS, LR = 256, 20, 0.1


def make_batches():
    generator = torch.Generator().manual_seed(0)
    for _ in range(NUM_STEPS):
        X = torch.rand(BATCH_SIZE, 1, 28, 28, generator=generator)
        yield X, torch.randint(0, 10, (BATCH_SIZE,), generator=generator)


def step_seconds(k):
    """Return the medians of a plain step and of a recorded one, taken in turn, in seconds."""
    devices, plain_s, recorded_s = try_gpus(k), [], []
    plain, recorded = replicate(lenet_params(), devices), replicate(lenet_params(), devices)
    records = record_steps(train_batch, make_batches(), recorded, devices, LR)
    for X, y in make_batches():
        began = time.perf_counter()
        train_batch(X, y, plain, devices, LR)
        middle = time.perf_counter()
        next(records)
        plain_s.append(middle - began)
        recorded_s.append(time.perf_counter() - middle)
    return median(plain_s), median(recorded_s)


def kept_bytes(k):
    """Return the bytes of tensors that the finder holds at most: one device against k, which differ by rounding."""
    runs = [
        record_steps(train_batch, make_batches(), replicate(lenet_params(), try_gpus(n)), try_gpus(n), LR)
        for n in (1, k)
    ]
    return find_divergence(*runs).most_bytes


if __name__ == "__main__":
    plain_s, recorded_s = step_seconds(2)
    print(f"LeNet, {BATCH_SIZE} examples, {NUM_STEPS} steps, {describe(try_gpus(2))}:")
    print(f"a step {1e3 * plain_s:.1f} ms, recorded {1e3 * recorded_s:.1f} ms ({recorded_s / plain_s - 1:+.0%})")
    print(f"tensors kept while one device is compared with two: at most {format_bytes(kept_bytes(2))}")
