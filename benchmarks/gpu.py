"""ResNet-18 on one card: d2lite.train_concise against the loop of d2l's lesson. Alone: `python -m benchmarks.gpu`.

Needs torch and torchvision only. `--device cpu --examples 2000 --width 8 --epochs 1` tries it out without a card.
"""

import argparse
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
from dataclasses import asdict

import torch
from torch import nn

from benchmarks.peers import loader, usual_epoch
from benchmarks.report import Row, command_line, machine, rounds, save, table
from d2lite import evaluate_accuracy, num_gpus, resnet18, train_concise, try_gpu
from d2lite.data import FASHION_MNIST

__all__ = ["Bf16", "lesson", "main", "ours", "rows"]

SHORT_EPOCHS = 3  # in the rounds after the first, which runs all epochs
WARM_UP_BATCHES = 20


@contextlib.contextmanager
def _settings():
    """Two lines a learner may type: TF32 in matrix products too (convolutions have it), cuDNN tries its algorithms.

    The settings come back, for the peer runs with torch's own.
    """
    precision, benchmark = torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(precision)
        torch.backends.cudnn.benchmark = benchmark


class Bf16(nn.Module):
    """A network that computes in bfloat16 autocast and channels_last; its parameters and logits stay float32."""

    def __init__(self, net):
        super().__init__()
        self.net = net.to(memory_format=torch.channels_last)

    def forward(self, X):
        with torch.autocast(X.device.type, dtype=torch.bfloat16):
            return self.net(X.contiguous(memory_format=torch.channels_last)).float()


def ours(epochs, num_examples, width, batch_size, lr, bf16=False, compiled=False):
    """Train with `d2lite.train_concise` on one device; return (seconds of each epoch, accuracy, wall seconds).

    The time of the first epoch holds the compilation.
    """
    start = time.perf_counter()
    net = Bf16(resnet18(10, width=width)) if bf16 else resnet18(10, width=width)
    if compiled:
        torch._dynamo.reset()
        net.compile(dynamic=False)
    with _settings():
        run = train_concise(net, 1, batch_size, lr, num_epochs=epochs, num_examples=num_examples)
    return run.seconds, run.accuracy, time.perf_counter() - start


def lesson(epochs, train_iter, test_iter, width, lr):
    """Train as d2l 13.6 does, with torch's settings as they come; return (seconds of each epoch, accuracy, wall).

    DataLoaders, float32, weights from normal(0, 0.01), an evaluation after each epoch. The network is ours, which has
    no biases before BatchNorm (d2l's has, to no effect): that favours the peer.
    """
    start = time.perf_counter()
    device = try_gpu()
    net = resnet18(10, width=width)
    for layer in net.modules():
        if isinstance(layer, (nn.Linear, nn.Conv2d)):
            nn.init.normal_(layer.weight, std=0.01)
    net = net.to(device)
    if device.type == "cuda":
        net = nn.DataParallel(net, device_ids=[device])
    optimizer = torch.optim.SGD(net.parameters(), lr)
    seconds = []
    for _ in range(epochs):
        seconds.append(usual_epoch(net, optimizer, train_iter, device))
        accuracy = evaluate_accuracy(net, test_iter, device)
    return seconds, accuracy, time.perf_counter() - start


def rows(num_examples=60_000, width=64, epochs=10, n=3, batch_size=256, lr=0.1, workers=4, compiled=True):
    """Return the rows of the card: `n` rounds, the first of `epochs` epochs, the others shorter."""
    size = (width, batch_size, lr)

    with tempfile.TemporaryDirectory() as folder:
        train_iter, test_iter = (loader(folder, batch_size, num_examples, t, workers) for t in (True, False))

        def contestants(epochs, examples=num_examples):
            return {
                "peer": lambda: lesson(epochs, train_iter, test_iter, width, lr),
                "tf32": lambda: ours(epochs, examples, *size),
                "bf16": lambda: ours(epochs, examples, *size, bf16=True),
            }

        few = min(WARM_UP_BATCHES * batch_size, num_examples)
        warm_up = contestants(1, few)
        del warm_up["peer"]  # it would take a whole epoch; its median leaves the first out anyhow
        results = rounds(contestants(epochs), 1, warm_up)
        for name, more in rounds(contestants(min(epochs, SHORT_EPOCHS)), n - 1).items():
            results[name] += more
        if compiled:
            results["compiled"] = [ours(epochs, num_examples, *size, bf16=True, compiled=True)]
    return _rows(results, width, epochs)


def _rows(results, width, epochs):
    """The rows from {contestant: [(seconds of each epoch, accuracy, wall seconds)]}."""
    median = {name: [statistics.median(seconds) for seconds, _, _ in runs] for name, runs in results.items()}
    name, peer = f"ResNet-18 (width {width}), s/epoch", "the loop of d2l 13.6"
    wall = {name: runs[0][2] for name, runs in results.items()}
    table_rows = [
        Row(f"{name}, float32 with TF32", "s", median["tf32"], median["peer"], peer, ("speed-up", 5)),
        Row(f"{name}, bf16, channels_last", "s", median["bf16"], median["peer"], peer, ("speed-up", 5)),
    ]
    if "compiled" in results:
        seconds = results["compiled"][0][0]
        won = "wins" if wall["compiled"] < wall["bf16"] else "does not win"
        note = f"{won}: {wall['compiled']:.0f} s for {epochs} epochs with evaluation, {wall['bf16']:.0f} s uncompiled"
        note += f"; last epoch {seconds[-1]:.3g} s"
        mean = [sum(seconds) / len(seconds)]
        label = f"{name}, the same compiled, mean with compile time"
        table_rows.append(Row(label, "s", mean, median["bf16"][:1], "uncompiled", note=note))
    accuracy = {name: runs[0][1] for name, runs in results.items()}
    note = ", ".join(f"{name} {value:.3f}" for name, value in accuracy.items())
    target = ("at least", 0.9) if epochs == 10 else None
    label = f"test accuracy after {epochs} epochs, bf16"
    table_rows.append(Row(label, "", [accuracy["bf16"]], [accuracy["peer"]], peer, target, note=note))
    return table_rows


def main(argv=None):
    """Run the rows of the card and print them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--examples", type=int, default=60_000, help="training examples per epoch (default: all)")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--save", metavar="NAME", help="keep the figures in benchmarks/results")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON, for another program")
    args = parser.parse_args(argv)
    if args.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    elif num_gpus() == 0:
        sys.exit("benchmarks.gpu: no CUDA GPU here. --device cpu --examples 2000 --width 8 --epochs 1 tries it out.")
    facts = machine(FASHION_MNIST)
    done = rows(args.examples, args.width, args.epochs, args.rounds, compiled=not args.no_compile)
    if args.json:
        print(json.dumps({"machine": facts, "rows": [asdict(row) for row in done]}))
        return
    print(table(facts, done))
    if args.save:
        command = command_line("benchmarks.gpu", argv)
        print(save(args.save, command, facts, done))


if __name__ == "__main__":
    main()
