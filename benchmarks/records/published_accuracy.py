"""Why 0.91 on one GPU became 0.73 on two: the published ResNet-18, several seeds per arm, and its repair.

Alone, on a GPU: `python -m benchmarks.records.published_accuracy --save NAME`. Each trial is kept as soon as it has
ended, and the same command goes on with those that are missing. With one GPU the two replicas share it: slower, and
the same numbers up to rounding.
"""

import argparse
import json
import statistics
import sys
from dataclasses import asdict

import torch
from torch import nn

from benchmarks.report import RESULTS, command_line, machine, write_record
from d2lite import num_gpus, resnet18
from d2lite.data import FASHION_MNIST
from d2lite.profiling import compare_arms
from d2lite.training import Arm, start_net, train_arm

__all__ = ["ARMS", "BASE", "main", "start", "summary", "trials"]

NUM_EPOCHS = 10
BASE = Arm("one device", 256, 0.1)
TWO = {"batch_size": 512, "num_gpus": 2}
# every arm is compared with BASE; "two devices, same network" is the second run of the published lesson
ARMS = (
    BASE,
    Arm("two devices, same network", lr=0.2, kept="BatchNorm", **TWO),
    Arm("two devices, new network", lr=0.2, **TWO),
    Arm("two devices, same lr", lr=0.1, **TWO),
    Arm("two devices, warm-up", lr=0.2, warm_up_epochs=1, **TWO),
    Arm("two devices, decay", lr=0.2, decay_share=0.25, **TWO),
    Arm("one device, decay", 256, 0.1, decay_share=0.25),
)


def start(seed, kept="nothing", used=None, width=64):
    """Return a ResNet-18 as the lesson starts it: weights of convolutions and linear layers with deviation 0.01."""
    net = start_net(seed, kept, used, lambda: resnet18(10, width=width))
    generator = torch.Generator().manual_seed(seed)
    for layer in net.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.normal_(layer.weight, std=0.01, generator=generator)
    return net


def trials(arms, seeds, num_examples, num_epochs, num_test_examples, width=64, done=()):
    """Train each arm with each seed, and yield a record per trial; those of (arm, seed) in `done` are left out.

    What an arm keeps is that of BASE's network after the same seed.
    """
    size = {"num_epochs": num_epochs, "num_points": num_epochs, "num_test_examples": num_test_examples}
    for seed in seeds:
        used = None
        for arm in sorted(arms, key=lambda arm: arm is not BASE):
            needed = arm is BASE and any((a.name, seed) not in done for a in arms if a.kept != "nothing")
            if (arm.name, seed) in done and not needed:
                continue
            net = start(seed, arm.kept, used, width)
            trial = train_arm(arm, seed, net, num_examples=num_examples, **size)
            if arm is BASE:
                used = {name: value.cpu() for name, value in net.state_dict().items()}
            if (arm.name, seed) in done:
                continue
            yield {
                "arm": arm.name,
                "seed": seed,
                "accuracies": trial.accuracies,
                "renewed_accuracy": trial.renewed_accuracy,
                "has_diverged": trial.has_diverged,
                "seconds_per_epoch": trial.seconds / num_epochs,
            }


def main(argv=None):
    """Train, print a line per trial and per arm, and keep all as JSON if a name is given."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.records.published_accuracy", description=__doc__)
    parser.add_argument("--save", metavar="NAME", help="keep the figures in benchmarks/results/NAME.json")
    parser.add_argument("--seeds", type=int, default=3, help="per arm (3)")
    parser.add_argument("--epochs", type=int, default=NUM_EPOCHS, help="per trial (10)")
    parser.add_argument("--examples", type=int, default=60_000, help="training examples; a sixth as many are tested")
    parser.add_argument("--width", type=int, default=64, help="channels of the first stage of ResNet-18 (64)")
    args = parser.parse_args(argv)
    if not num_gpus() and args.width * args.examples > 1_000_000:
        sys.exit("published_accuracy: without a GPU this takes days. Try --width 8 --examples 1200 --epochs 2.")
    size = {"num_examples": args.examples, "num_epochs": args.epochs, "width": args.width}
    path = RESULTS / f"{args.save}.json" if args.save else None
    record = json.loads(path.read_text()) if path is not None and path.exists() else {}
    if record and record["size"] != size:
        sys.exit(f"{path}: expected {size}, got {record['size']}. Choose another name.")
    record.setdefault("command", command_line("benchmarks.records.published_accuracy", argv))
    record.setdefault("machine", machine(FASHION_MNIST))
    record.setdefault("size", size)
    record.setdefault("arms", [asdict(arm) for arm in ARMS])
    rows = record.setdefault("trials", [])
    done = {(row["arm"], row["seed"]) for row in rows}
    for row in trials(ARMS, range(args.seeds), args.examples, args.epochs, args.examples // 6, args.width, done):
        rows.append(row)
        print(f"{row['arm']}, seed {row['seed']}: {row['accuracies'][-1]:.3f}", file=sys.stderr, flush=True)
        if path is not None:
            write_record(path, record)
    for line in summary(rows):
        print(line)


def summary(rows):
    """Return a line per arm with its accuracies, and the verdict on its differences from BASE, seed by seed."""
    last = {arm.name: {row["seed"]: row["accuracies"][-1] for row in rows if row["arm"] == arm.name} for arm in ARMS}
    lines = []
    for name, of_seed in last.items():
        if not of_seed:
            continue
        values = of_seed.values()
        lines.append(f"{name}: {statistics.mean(values):.3f} ({min(values):.3f} - {max(values):.3f})")
        common = sorted(of_seed.keys() & last[BASE.name].keys())
        if name != BASE.name and len(common) > 1:
            base, arm = ([accuracies[seed] for seed in common] for accuracies in (last[BASE.name], of_seed))
            lines.append(f"   {compare_arms(base, arm, paired=True)}")
    return lines


if __name__ == "__main__":
    main()
