"""Predicted against measured: the step of 1, 2 and 4 ranks on this machine. Alone: `python -m benchmarks.prediction`.

A round calibrates (all-reduces without training, steps of one rank, which sends nothing), predicts, then trains with
DistributedDataParallel in fresh processes. No measured step is part of what it is compared with.
"""

import statistics
import sys
import time
import warnings

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from benchmarks.report import Row, machine, save, table
from d2lite import LeNet, num_cores
from d2lite.costs import Device
from d2lite.fit import fit_device, fit_link, time_all_reduces
from d2lite.predict import predict_step
from d2lite.workers import Workers
from d2lite.workloads import named_workload, workload

__all__ = ["NETWORKS", "RANKS", "calibrate", "measure", "predict", "rows", "wide_mlp"]

WIDTH = 2048
RANKS = (1, 2, 4)
TOLERANCE = 0.15


def wide_mlp():
    """Return a perceptron whose gradients take longer to send than to compute: 23 MB, few multiplications."""
    hidden = (nn.Linear(784, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU())
    return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(WIDTH, 10))


# name -> (maker, minibatches of all ranks to predict, minibatches of one rank to calibrate with). No rank gets 256 of
# LeNet: each of exactly 256 examples took a third longer than of 240 or 264 (AMD EPYC), which no line shows.
NETWORKS = {"LeNet": (LeNet, (96, 192, 384), (36, 72, 144, 288)), "wide MLP": (wide_mlp, (64,), (12, 24, 48, 96))}


def time_steps(make_net, batch_size, num_steps):
    """Return the time of a step of this rank on its shard of `batch_size` random examples; runs inside a rank.

    It is the first quartile of `num_steps`: other programs can only make a step slower.
    """
    net = DistributedDataParallel(make_net())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    shard = batch_size // dist.get_world_size()
    X, y = torch.rand(shard, 1, 28, 28), torch.randint(10, (shard,))
    seconds = []
    for i in range(num_steps + 3):  # the first ones warm up, and DDP rebuilds its buckets
        start = time.perf_counter()
        optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
        optimizer.step()
        if i >= 3:
            seconds.append(time.perf_counter() - start)
    return statistics.quantiles(seconds, n=4)[0]


def calibrate(num_steps=15):
    """Return ({(network, ranks): Fit of a link}, {network: Device of one rank}).

    The link is fitted to short all-reduces and to those from a sixteenth to twice the gradients' bytes: beyond the
    caches it is slower, so that one line does not fit all lengths.
    """
    links, devices = {}, {}
    for k in RANKS[1:]:
        with _workers(k) as workers:
            for name in NETWORKS:
                sizes = [1024, 4096, *(_workload(name).total_n_bytes * 2**i // 16 for i in range(6))]
                links[name, k] = fit_link(workers.run(time_all_reduces, sizes)[0], k)
    with _workers(1) as workers:
        for name, (make_net, _, sizes) in NETWORKS.items():
            times = [(size, workers.run(time_steps, make_net, size, num_steps)[0]) for size in sizes]
            devices[name] = fit_device(times, _workload(name).flops)
    return links, devices


def predict(links, devices):
    """Return {(network, minibatch, ranks): predicted seconds of a step}.

    Nothing overlaps: what sends runs on the cores that compute. More ranks than cores take turns.
    """
    predicted = {}
    for name, (_, sizes, _) in NETWORKS.items():
        for k in RANKS:
            turns, device = max(1.0, k / num_cores()), devices[name]
            shared = Device(device.flops_per_s / turns, device.overhead_s * turns)
            link = links[name, k].link if k > 1 else None
            for size in sizes:
                predicted[name, size, k] = predict_step(
                    _workload(name), size / k, k, shared, link, overlap=False
                ).seconds
    return predicted


def measure(num_steps=15):
    """Return {(network, minibatch, ranks): measured seconds of a step} with DistributedDataParallel, in fresh ranks."""
    measured = {}
    for k in RANKS:
        with _workers(k) as workers:
            for name, (make_net, sizes, _) in NETWORKS.items():
                for size in sizes:
                    measured[name, size, k] = max(workers.run(time_steps, make_net, size, num_steps))
    return measured


def rows(n=3, num_steps=15):
    """Return one row for each network, minibatch and number of ranks: measured, predicted, their ratio."""
    found = []
    for _ in range(n):
        predicted = predict(*calibrate(num_steps))
        found.append((measure(num_steps), predicted))
    return [_row(key, [1e3 * m[key] for m, _ in found], [1e3 * p[key] for _, p in found]) for key in found[0][0]]


def _row(key, measured, predicted):
    name, size, k = key
    label = f"{name}, minibatch {size}, {k} rank{'s' if k > 1 else ''}, step"
    error = statistics.median(p / m for m, p in zip(measured, predicted, strict=True)) - 1
    row = Row(label, "ms", measured, predicted, "predicted", ("ratio", 1 + TOLERANCE), abs(error) <= TOLERANCE)
    row.note = f"prediction {error:+.0%}"
    return row


def _workload(name):
    if name == "LeNet":
        return named_workload(name)  # the same tensors, in layers that can be counted
    with torch.device("meta"):
        return workload(NETWORKS[name][0](), torch.empty(1, 1, 28, 28), name)


def _workers(k):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # four ranks on two cores are meant
        return Workers(k)


def main():
    """Measure, print, and keep the table under the name given."""
    found = rows()
    print(table(machine(), found))
    if len(sys.argv) > 1:
        print(save(sys.argv[1], "python -m benchmarks.prediction " + sys.argv[1], machine(), found))


if __name__ == "__main__":
    main()
