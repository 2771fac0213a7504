"""Accuracy over learning rate and minibatch, and the arms of chapter 9.

Alone: `python -m benchmarks.records.learning_rates --save NAME`.
A small network, several seeds per cell and per arm, the same number of examples seen by all; no times are kept.
Accuracies are those at the end, and `renewed` those of the same weights with new running statistics.
"""

import argparse
import sys
from dataclasses import asdict

import torch

from benchmarks.report import command_line, keep, machine
from d2lite import load_data_fashion_mnist
from d2lite.data import FASHION_MNIST
from d2lite.labs.chapter_09 import (
    Arm,
    compare_arms,
    gradient_norms,
    noise_scale,
    run_arms,
    scaled_lr,
    start_net,
    train_arm,
)

__all__ = ["ARMS", "BASES", "BATCH_SIZES", "K", "LRS", "main", "record"]

BATCH_SIZES = (32, 64, 128, 256, 512)
LRS = (0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
NUM_EXAMPLES, NUM_EPOCHS = 3000, 4
GRID_SEEDS, ARM_SEEDS = range(2), range(5)
BATCH_SIZE, K = 64, 8  # minibatch of one device, number of devices

# small minibatch, learning rate, what else: the arm that the others of its group are compared with
BASES = {
    "SGD": Arm("SGD", BATCH_SIZE, 0.1),
    "SGD with decay": Arm("SGD with decay", BATCH_SIZE, 0.1, decay_share=0.25),
    "momentum": Arm("momentum", BATCH_SIZE, 0.05, momentum=0.9),
    "Adam": Arm("Adam", BATCH_SIZE, 0.002, optimizer="Adam"),
}


def _larger(base, rule, warm_up_epochs=0.0):
    settings = asdict(base) | {"batch_size": K * BATCH_SIZE, "warm_up_epochs": warm_up_epochs}
    settings["lr"] = scaled_lr(base.lr, BATCH_SIZE, K * BATCH_SIZE, rule)
    settings["name"] = f"{base.name}, {K} times the minibatch, {rule} lr" + (", warm-up" if warm_up_epochs else "")
    return Arm(**settings)


# arm -> the arm that it is compared with
ARMS = {_larger(base, rule): base for base in BASES.values() for rule in ("same", "square root", "linear")}
ARMS |= {_larger(base, "linear", 1.0): _larger(base, "linear") for base in BASES.values()}


def record():
    """Return the grid, the arms and the noise scale, as numbers."""
    return {"grid": _grid(), "arms": _arms(), "noise": _noise()}


def _grid():
    cells = []
    for size in BATCH_SIZES:
        arms = [Arm(f"{lr:g}", size, lr, decay_share=0.25) for lr in LRS]
        trials = run_arms(arms, GRID_SEEDS, NUM_EXAMPLES, num_epochs=NUM_EPOCHS, num_points=1)
        for arm in arms:
            cells.append({"batch_size": size, "lr": arm.lr, **_accuracies(trials[arm.name])})
        print(f"minibatches of {size}: done", file=sys.stderr, flush=True)
    return {"num_examples": NUM_EXAMPLES, "num_epochs": NUM_EPOCHS, "decay_share": 0.25, "cells": cells}


def _arms():
    trials = run_arms([*BASES.values(), *ARMS], ARM_SEEDS, NUM_EXAMPLES, num_epochs=NUM_EPOCHS)
    rows = [_row(arm, trials) for arm in BASES.values()]
    return rows + [_row(arm, trials, base) for arm, base in ARMS.items()]


def _accuracies(trials):
    return {"accuracies": [t.accuracy for t in trials], "renewed": [t.renewed_accuracy for t in trials]}


def _row(arm, trials, base=None):
    """The accuracies of an arm and, by the differences of equal seeds, the comparisons of both kinds of them."""
    row = {"settings": asdict(arm), **_accuracies(trials[arm.name])}
    if base is not None:
        row["against"], before = base.name, _accuracies(trials[base.name])
        for kind, verdict in (("accuracies", "verdict"), ("renewed", "renewed_verdict")):
            comparison = compare_arms(before[kind], row[kind], paired=True)
            row[verdict], row[verdict.replace("verdict", "shown")] = str(comparison), comparison.is_shown
    return row


def _noise():
    """The noise scale before training and after each epoch, from minibatches of 512 in 8 shards."""
    found = []
    for seed in ARM_SEEDS:
        net = start_net(seed)
        for epoch in range(NUM_EPOCHS + 1):
            if epoch:
                train_arm(BASES["SGD"], 100 * seed + epoch, net, num_examples=NUM_EXAMPLES, num_epochs=1, num_points=1)
            net.train()
            batches = load_data_fashion_mnist(512, 8 * 512, seed=1)[0]
            scale = noise_scale(gradient_norms(net, X, y, K) for X, y in batches)
            numbers = {"signal": scale.signal, "noise": scale.noise, "examples": scale.num_examples}
            found.append({"seed": seed, "epoch": epoch, **numbers})
    return found


def main(argv=None):
    """Measure, print the arms, and keep all as JSON if a name is given."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.records.learning_rates", description=__doc__)
    parser.add_argument("--save", metavar="NAME", help="keep the figures in benchmarks/results/NAME.json")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    facts = machine(FASHION_MNIST)
    found = record()
    for row in found["arms"]:
        print(row["settings"]["name"])
        for kind, verdict in (("accuracies", "verdict"), ("renewed", "renewed_verdict")):
            print(f"   {kind}:", *(f"{accuracy:.3f}" for accuracy in row[kind]), row.get(verdict, ""))
    for row in found["noise"]:
        print(f"seed {row['seed']}, noise scale after {row['epoch']} epochs: {row['examples']:,.0f} examples")
    if args.save:
        keep(args.save, command_line("benchmarks.records.learning_rates", argv), facts, found)


if __name__ == "__main__":
    main()
