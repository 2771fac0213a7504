"""Accuracy over examples per replica with batch normalisation: chapter 10's networks, tested on all test images.

Alone: `python -m benchmarks.records.batchnorm --save NAME`.
The functions are those of the cells of the chapter and of its appendix. All arms use the same seeds; no times are kept.
"""

import argparse
import sys
from functools import partial

import torch

from benchmarks.records.chapter_code import chapter_code
from benchmarks.report import command_line, keep, machine
from d2lite import load_data_fashion_mnist
from d2lite.data import FASHION_MNIST, BatchIterator
from d2lite.training import evaluate_accuracy

__all__ = ["APPENDIX", "CHAPTER", "NUMBERS", "SEEDS", "chapter_names", "main", "record"]

CHAPTER, APPENDIX = "10-batch-normalisation.ipynb", "appendix/10-digits-and-a-derivation.ipynb"
SEEDS, NUM_EXAMPLES, NUM_EPOCHS = range(4), 2048, 2  # those of the appendix without D2LITE_QUICK
BATCH_SIZE = 64
NUMBERS = (64, 32, 16, 8, 4, 2)  # examples per replica


def chapter_names(seeds=SEEDS, num_examples=NUM_EXAMPLES, num_epochs=NUM_EPOCHS):
    """Return what the cells of both notebooks import and define, {name: value}, on a CPU with these settings."""
    given = {"here": torch.device("cpu"), "seeds": seeds, "num_examples": num_examples, "num_epochs": num_epochs}
    return chapter_code(APPENDIX, chapter_code(CHAPTER, given))


def record(numbers=NUMBERS, num_test_examples=10_000, **settings):
    """Return the arms, as plain numbers: the accuracies seed by seed, and those with new statistics."""
    names = chapter_names(**settings)
    everything = load_data_fashion_mnist(500)[1]
    images, labels = everything.examples[:num_test_examples], everything.labels[:num_test_examples]
    test_iter = BatchIterator(images, labels, 500, FASHION_MNIST)
    arms = []
    for n in numbers:
        nets, few = names["over_seeds"](partial(names["SplitBatchNorm"], replicas=BATCH_SIZE // n))
        again = [evaluate_accuracy(names["with_new_statistics"](net), test_iter) for net in nets]
        arms.append(_row(f"BatchNorm, {n} examples per replica", nets, few, test_iter) | {"again": again})
        print(f"{n} examples per replica: done", file=sys.stderr, flush=True)
    arms.append(_row("GroupNorm, one device", *names["over_seeds"](names["group_norm"]), test_iter))
    fixed = {key: names[key] for key in ("num_examples", "num_epochs")} | {"seeds": list(names["seeds"])}
    return fixed | {"num_test_examples": test_iter.num_examples, "arms": arms}


def _row(name, nets, few, test_iter):
    """`few` are the accuracies that the chapter's cells print, on the first test images only."""
    accuracies = [evaluate_accuracy(net, test_iter) for net in nets]
    return {"name": name, "accuracies": accuracies, "on the chapter's test images": list(few)}


def main(argv=None):
    """Measure, print the arms, and keep all as JSON if a name is given."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.records.batchnorm", description=__doc__)
    parser.add_argument("--save", metavar="NAME", help="keep the figures in benchmarks/results/NAME.json")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    facts = machine(FASHION_MNIST)
    found = record()
    for row in found["arms"]:
        for what, accuracies in row.items():
            print(what if what == "name" else f"   {what}:", *_shown(accuracies))
    if args.save:
        keep(args.save, command_line("benchmarks.records.batchnorm", argv), facts, found)


def _shown(accuracies):
    return [accuracies] if isinstance(accuracies, str) else [f"{accuracy:.3f}" for accuracy in accuracies]


if __name__ == "__main__":
    main()
