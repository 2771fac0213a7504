"""Losses and accuracies of chapter 6: the linear scaling rule, a broadcast forgotten, the parameters averaged.

Alone: `python -m benchmarks.records.horovod_arms --save NAME`.
The functions are those of the chapter's cells, on two ranks. No times are kept.
"""

import argparse
import sys

from benchmarks.records.chapter_code import chapter_code
from benchmarks.report import command_line, keep, machine
from d2lite import Workers
from d2lite.data import FASHION_MNIST

__all__ = ["ARMS", "CHAPTER", "chapter_names", "main", "record"]

CHAPTER = "06-horovod.ipynb"
NUM_EXAMPLES, NUM_EPOCHS = 12_000, 4  # those of the chapter without D2LITE_QUICK
VARIANTS = ("hvd", "forgetful", "wrong")  # what the chapter's cells pass as `hvd`
NUM_SEEDS = 3
ARMS = {  # {name: (variant, rank_batch, lr)}
    "small, 0.02": ("hvd", 64, 0.02),
    "large, 0.02": ("hvd", 128, 0.02),
    "large, 0.04": ("hvd", 128, 0.04),
    "no broadcast, 0.02": ("forgetful", 64, 0.02),
    "mean of parameters, 0.02": ("wrong", 64, 0.02),
    "small, 0.1": ("hvd", 64, 0.1),
    "large, 0.1": ("hvd", 128, 0.1),
    "large, 0.2": ("hvd", 128, 0.2),
}


def chapter_names(num_examples=NUM_EXAMPLES):
    """Return what the chapter's cells import and define, {name: value}, with so many training examples."""
    given = {"__name__": "__main__", "num_examples": num_examples}  # a rank gets functions of __main__ by value
    return chapter_code(CHAPTER, given, VARIANTS)


def record(arms=ARMS, num_examples=NUM_EXAMPLES, num_epochs=NUM_EPOCHS, num_seeds=NUM_SEEDS):
    """Return the arms, as plain numbers: for each seed the loss of the last epoch and the accuracy of every rank."""
    names, rows = chapter_names(num_examples), []
    with Workers(2) as workers:
        for name, (variant, rank_batch, lr) in arms.items():
            given = names["train_on_rank"], names[variant], rank_batch, lr, num_epochs
            runs = [workers.run(*given, seed) for seed in range(num_seeds)]
            row = {"name": name, "variant": variant, "rank_batch": rank_batch, "lr": lr}
            row["losses"] = [[names["last_loss"](run) for run in ranks] for ranks in runs]
            row["accuracies"] = [[run.accuracy for run in ranks] for ranks in runs]
            rows.append(row)
            print(f"{name}: done", file=sys.stderr, flush=True)
    fixed = {"ranks": 2, "num_examples": num_examples, "num_epochs": num_epochs, "seeds": list(range(num_seeds))}
    return fixed | {"arms": rows}


def main(argv=None):
    """Measure, print the arms, and keep all as JSON if a name is given."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.records.horovod_arms", description=__doc__)
    parser.add_argument("--save", metavar="NAME", help="keep the figures in benchmarks/results/NAME.json")
    args = parser.parse_args(argv)
    facts = machine(FASHION_MNIST)
    found = record()
    for row in found["arms"]:
        print(row["name"])
        for what in ("losses", "accuracies"):
            print(f"   {what}:", *("/".join(f"{figure:.3f}" for figure in ranks) for ranks in row[what]))
    if args.save:
        keep(args.save, command_line("benchmarks.records.horovod_arms", argv), facts, found)


if __name__ == "__main__":
    main()
