"""Why 0.91 on one GPU became 0.73 on two: the published ResNet-18, one change at a time, several seeds per arm.

The published experiment, on a GPU: `python -m benchmarks.records.published_accuracy --save NAME`. In small, on a CPU:
with `--width 8 --pool 2 --examples 2560 --epochs 6 --batch-size 64`. Each trial is kept as soon as it has ended, and
the same command goes on with those that are missing; with more `--seeds` it adds some. Two replicas on one GPU or one
core compute what two GPUs compute, up to rounding.
"""

import argparse
import json
import sys
from dataclasses import asdict

import torch
from torch import nn

from benchmarks.report import RESULTS, command_line, machine, write_record
from d2lite import num_gpus, resnet18
from d2lite.data import FASHION_MNIST
from d2lite.labs.chapter_09 import Arm, compare_arms, start_net, train_arm

__all__ = ["AGAINST", "arms_of", "column", "main", "start", "summary", "trials"]

NUM_EPOCHS = 10
ONE, ALL_FOUR, DECAY = "one device", "all four", ", decay"
NUM_MAIN = 6  # arms that are trained first, with all seeds: one device, each change alone, all four
# arm -> the arm that it is compared with
AGAINST = {
    "half as many steps": ONE,
    "the learning rate": ONE,
    "BatchNorm per device": ONE,
    "what the reset left": ONE,
    ALL_FOUR: ONE,
    ONE + DECAY: ONE,
    ALL_FOUR + DECAY: ONE + DECAY,
}


def arms_of(batch_size=256, lr=0.1):
    """Return the arms: one device, each change alone, all four, and these two with a decay."""
    steps, rate, devices, reset = {"batch_size": 2 * batch_size}, {"lr": 2 * lr}, {"num_gpus": 2}, {"kept": "BatchNorm"}
    all_four, decay = steps | rate | devices | reset, {"decay_share": 0.25}
    changes = (steps, rate, devices, reset, all_four, decay, all_four | decay)
    settings = {ONE: {}} | dict(zip(AGAINST, changes, strict=True))
    return [Arm(name, **({"batch_size": batch_size, "lr": lr} | changed)) for name, changed in settings.items()]


def start(seed, kept="nothing", used=None, width=64, pool=1):
    """Return a ResNet-18 as the lesson starts it: weights of convolutions and linear layers with deviation 0.01.

    What the lesson's reset leaves of a network is its batch normalisation and the biases of the other layers. `pool`
    is the number of pixels that are averaged to one, in height and in width.
    """
    first = [nn.AvgPool2d(pool)] if pool > 1 else []
    net = start_net(seed, kept, used, lambda: nn.Sequential(*first, *resnet18(10, width=width)))
    generator = torch.Generator().manual_seed(seed)
    for name, layer in net.named_modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.normal_(layer.weight, std=0.01, generator=generator)
            if kept == "BatchNorm" and layer.bias is not None:
                layer.bias.data.copy_(used[f"{name}.bias"])
    return net.to(memory_format=torch.channels_last)  # a third less time on a CPU


def trials(arms, seeds, num_examples, num_epochs, num_points, num_test_examples, width=64, pool=1, done=()):
    """Train each arm with each seed, and yield a record per trial; those of (arm, seed) in `done` are left out.

    What an arm keeps is that of the first arm's network after the same seed.
    """
    size = {"num_epochs": num_epochs, "num_points": num_points, "num_test_examples": num_test_examples}
    for seed in seeds:
        used = None
        for arm in arms:
            needed = arm is arms[0] and any((a.name, seed) not in done for a in arms if a.kept != "nothing")
            if (arm.name, seed) in done and not needed:
                continue
            net = start(seed, arm.kept, used, width, pool)
            trial = train_arm(arm, seed, net, num_examples=num_examples, **size)
            if arm is arms[0]:
                used = {name: value.cpu() for name, value in net.state_dict().items()}
            if (arm.name, seed) in done:
                continue
            yield {
                "arm": arm.name,
                "seed": seed,
                "accuracies": trial.accuracies,
                "renewed_accuracy": trial.renewed_accuracy,
                "has_diverged": trial.has_diverged,
                "steps": trial.steps,
            }


def main(argv=None):
    """Train, print a line per trial and per arm, and keep all as JSON if a name is given."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.records.published_accuracy", description=__doc__)
    parser.add_argument("--save", metavar="NAME", help="keep the figures in benchmarks/results/NAME.json")
    parser.add_argument("--seeds", type=int, default=5, help="per arm (5)")
    parser.add_argument("--epochs", type=int, default=NUM_EPOCHS, help="per trial (10)")
    parser.add_argument("--points", type=int, default=5, help="accuracies per trial (5)")
    parser.add_argument("--examples", type=int, default=60_000, help="training examples (60,000)")
    parser.add_argument("--tests", type=int, default=2000, help="test examples (2,000)")
    parser.add_argument("--width", type=int, default=64, help="channels of the first stage of ResNet-18 (64)")
    parser.add_argument("--pool", type=int, default=1, help="average images over squares of this size (1: 28 x 28)")
    parser.add_argument("--batch-size", type=int, default=256, help="minibatch of the first run (256)")
    parser.add_argument("--lr", type=float, default=0.1, help="learning rate of the first run (0.1)")
    args = parser.parse_args(argv)
    if not num_gpus() and args.width * args.examples > 1_000_000:
        sys.exit(
            "published_accuracy: without a GPU this takes days. Try --width 8 --pool 2 --examples 2560 --batch-size 64."
        )
    torch.set_num_threads(1)
    size = {name: value for name, value in vars(args).items() if name not in ("save", "seeds")}
    path = RESULTS / f"{args.save}.json" if args.save else None
    record = json.loads(path.read_text()) if path is not None and path.exists() else {}
    if record and record["size"] != size:
        sys.exit(f"{path}: expected {size}, got {record['size']}. Choose another name.")
    arms = arms_of(args.batch_size, args.lr)
    record["command"] = command_line("benchmarks.records.published_accuracy", argv)  # the last one gives all trials
    record.setdefault("machine", machine(FASHION_MNIST))
    record.setdefault("size", size)
    record.setdefault("arms", [asdict(arm) for arm in arms])
    rows = record.setdefault("trials", [])
    done = {(row["arm"], row["seed"]) for row in rows}
    sizes = args.examples, args.epochs, args.points, args.tests, args.width, args.pool
    for some in (arms[:NUM_MAIN], arms):  # the decay last
        for row in trials(some, range(args.seeds), *sizes, done):
            rows.append(row)
            done.add((row["arm"], row["seed"]))
            print(f"{row['arm']}, seed {row['seed']}: {row['accuracies'][-1]:.3f}", file=sys.stderr, flush=True)
            if path is not None:
                write_record(path, record)
    for line in summary(rows):
        print(line)


def column(rows, arm, of="accuracies"):
    """Return {seed: last accuracy} of an arm; `of` "renewed_accuracy" gives those with new running statistics."""
    found = {row["seed"]: row[of] for row in rows if row["arm"] == arm}
    return {seed: value[-1] if isinstance(value, list) else value for seed, value in sorted(found.items())}


def summary(rows):
    """Return lines per arm with its accuracies, of both kinds, and the verdict on its differences, seed by seed."""
    lines = []
    for name in (ONE, *AGAINST):
        for of in ("accuracies", "renewed_accuracy"):
            of_seed, base = column(rows, name, of), column(rows, AGAINST.get(name, ONE), of)
            lines.append(f"{name}, {of}: " + " ".join(f"{value:.3f}" for value in of_seed.values()))
            common = sorted(of_seed.keys() & base.keys())
            if name != ONE and len(common) > 1:
                pair = ([some[seed] for seed in common] for some in (base, of_seed))
                lines.append(f"   {compare_arms(*pair, paired=True).in_words(AGAINST[name], name)}")
    return lines


if __name__ == "__main__":
    main()
