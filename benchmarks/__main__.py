"""`make bench`, `python -m benchmarks`: every row on this machine, one table."""

import argparse
import importlib
import json
import os
import re
import subprocess
import sys
import time

from benchmarks.report import Row, command_line, machine, save, table
from d2lite import num_gpus
from d2lite.data import FASHION_MNIST

__all__ = ["main"]

NAMES = (
    "import",
    "lenet",
    "iterator",
    "animator",
    "lanes",
    "page",
    "memory",
    "chapters",
    "starts",
    "ranks",
    "leaks",
    "prediction",
    "published",
    "gpu",
)
_COLOUR = re.compile("\x1b\\[[0-9;]*m")  # a kernel's tracebacks are coloured


def main(argv=None):
    """Measure, print the table, keep it if asked; return 1 if a row broke (a missed target is no error), else 0."""
    args = _parse(argv)
    visible, gpus = os.environ.get("CUDA_VISIBLE_DEVICES"), num_gpus()
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # all rows but the card's are about CPU cores
    facts, broken = machine(FASHION_MNIST), False
    if args.epoch_share < 1:
        facts["share of an epoch"] = args.epoch_share
    rows = []
    for name in args.only:
        start = time.perf_counter()
        try:
            rows += _gpu(facts, gpus, visible) if name == "gpu" else _measure(name, args)
        except ImportError as error:
            rows.append(Row(name, skipped=f"{error.name or error} is not installed"))
        except Exception as error:
            broken = True
            reason = _COLOUR.sub("", str(error)).strip().splitlines() or [""]
            rows.append(Row(name, skipped=f"failed: {type(error).__name__}: {reason[-1]}"))
        print(f"{name}: {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
    print(table(facts, rows))
    if args.save:
        command = command_line("benchmarks", argv)
        print(save(args.save, command, facts, rows))
    return int(broken)


def _parse(argv):
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES, help="these rows alone")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each row (the import: twice as many and one)")
    parser.add_argument("--epoch-share", type=float, default=1.0, help="part of the 60,000 examples, 0 to 1")
    parser.add_argument("--save", metavar="NAME", help="keep the figures in benchmarks/results/NAME.json and .md")
    args = parser.parse_args(argv)
    if not 0 < args.epoch_share <= 1:
        parser.error(f"--epoch-share: expected a number above 0, at most 1, got {args.epoch_share}")
    if args.rounds < 1:
        parser.error(f"--rounds: expected 1 or more, got {args.rounds}")
    return args


def _measure(name, args):
    """The rows of one module; it is imported here, so that what it needs can be missing."""
    if name == "lenet":
        return importlib.import_module("benchmarks.lenet").rows(int(args.epoch_share * 60_000), args.rounds)
    if name == "import":
        return importlib.import_module("benchmarks.imports").rows(2 * args.rounds + 1)
    if name in ("memory", "chapters", "starts", "leaks", "published"):
        return importlib.import_module(f"benchmarks.{name}").rows()
    return importlib.import_module(f"benchmarks.{name}").rows(n=args.rounds)


def _gpu(facts, gpus, visible):
    """The rows of the card, measured by a process that sees it."""
    if not gpus:
        return [Row("ResNet-18 on a GPU", skipped="no CUDA GPU here")]
    env = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    if visible is not None:
        env["CUDA_VISIBLE_DEVICES"] = visible
    command = [sys.executable, "-m", "benchmarks.gpu", "--json"]
    done = json.loads(subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True).stdout)
    facts["GPU"] = done["machine"]["devices"]
    return [Row(**row) for row in done["rows"]]


if __name__ == "__main__":
    sys.exit(main())
