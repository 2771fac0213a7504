"""Predicted against measured: the step of 1, 2 and 4 ranks on this machine. Alone: `python -m benchmarks.prediction`.

A round calibrates for each number of ranks (all-reduces without training, steps that send other tensors, at other batch
sizes), predicts, then trains with DistributedDataParallel in fresh processes. No measured step is part of what it is
compared with.
"""

import statistics
import sys
import warnings

import torch
from torch import nn

from benchmarks.report import Row, machine, save, table
from d2lite import LeNet, Workers
from d2lite.labs.chapter_04 import measured_seconds
from d2lite.labs.chapter_08 import calibrate, named_workload, predicted_step, workload

__all__ = ["NETWORKS", "RANKS", "measure", "predict", "rows", "wide_mlp"]

WIDTH = 2048
RANKS = (1, 2, 4)
TOLERANCE = 0.15


def wide_mlp():
    """Return a perceptron whose gradients take longer to send than to compute: 23 MB, few multiplications."""
    hidden = (nn.Linear(784, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU())
    return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(WIDTH, 10))


# name -> (maker, minibatches of all ranks together to predict, others to calibrate with)
NETWORKS = {"LeNet": (LeNet, (96, 192, 384), (72, 144, 288, 576)), "wide MLP": (wide_mlp, (64,), (24, 48, 96, 192))}


def predict(k, num_steps=15):
    """Return {(network, minibatch, k): predicted seconds of a step}, from the calibration of k ranks."""
    predicted = {}
    with _workers(k) as workers:
        for name, (make_net, sizes, others) in NETWORKS.items():
            calibration = calibrate(workers, make_net, _workload(name), others, num_steps)
            for size in sizes:
                predicted[name, size, k] = predicted_step(calibration, _workload(name), size).seconds
    return predicted


def measure(k, num_steps=15):
    """Return {(network, minibatch, k): measured seconds of a step} with DistributedDataParallel, in k fresh ranks."""
    measured = {}
    with _workers(k) as workers:
        for name, (make_net, sizes, _) in NETWORKS.items():
            for size in sizes:
                measured[name, size, k] = measured_seconds(workers, make_net, size, num_steps)
    return measured


def rows(n=3, num_steps=15):
    """Return one row for each network, minibatch and number of ranks: measured, predicted, their ratio.

    For each number of ranks the steps are taken right after the calibration: the machine itself drifts by the minute.
    """
    found = []
    for _ in range(n):
        predicted, measured = {}, {}
        for k in RANKS:
            predicted |= predict(k, num_steps)
            measured |= measure(k, num_steps)
        found.append((measured, predicted))
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
