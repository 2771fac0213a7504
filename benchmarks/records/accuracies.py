"""The accuracies that the appendix to chapter 9 compares, by devices, minibatch, rate and seed: one run each, no times.

Alone: `python -m benchmarks.records.accuracies NAME`.
"""

import os
import sys

import torch

from benchmarks.report import Row, machine, save, table
from d2lite import SimpleCNN, resnet18, train_concise
from d2lite.data import FASHION_MNIST

__all__ = ["RUNS", "label", "main", "rows"]

WIDTH = 8  # of ResNet-18, as the chapter has it on a CPU
SEEDS = [(k, 256, lr, seed) for k in (1, 2) for seed in (0, 1) for lr in (0.1, 0.2)]
# (network, devices, minibatch, learning rate, seed)
RUNS = [("ResNet-18", k, 128, 0.1, seed) for k, seed in ((1, 0), (2, 0), (2, 1), (2, 2))]
RUNS += [("ResNet-18", *run) for run in SEEDS] + [("SimpleCNN", k, 256, 0.001, 0) for k in (1, 2)]


def label(net, num_gpus, batch_size, lr, seed):
    """Return the name of a run's row."""
    return f"{net}, {num_gpus} replica{'s' * (num_gpus > 1)}, minibatch {batch_size}, lr {lr:g}, seed {seed}: accuracy"


def rows(num_epochs=3, num_examples=4096):
    """Return one row per run, its accuracy after the last epoch."""
    return [Row(label(*run), "", [_accuracy(*run, num_epochs, num_examples)]) for run in RUNS]


def _accuracy(net, num_gpus, batch_size, lr, seed, num_epochs, num_examples):
    module = resnet18(10, width=WIDTH) if net == "ResNet-18" else SimpleCNN()
    optim = torch.optim.SGD if net == "ResNet-18" else torch.optim.Adam
    return train_concise(
        module,
        num_gpus,
        batch_size,
        lr,
        num_epochs=num_epochs,
        num_examples=num_examples,
        seed=seed,
        animator=None,
        optim=optim,
    ).accuracy


def main():
    """Train on CPU cores, print the table, and keep it under the name given."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    facts, found = machine(FASHION_MNIST), rows()
    print(table(facts, found))
    if len(sys.argv) > 1:
        print(save(sys.argv[1], "python -m benchmarks.records.accuracies " + sys.argv[1], facts, found))


if __name__ == "__main__":
    main()
