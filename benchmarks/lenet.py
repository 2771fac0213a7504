"""LeNet from scratch on the cores: replicas against the usual loop, and against fewer replicas."""

import tempfile

import torch

from benchmarks.peers import loader, usual_epoch, usual_lenet
from benchmarks.report import Row, rounds
from d2lite import load_data_fashion_mnist, num_cores, train, try_gpu

__all__ = ["rows"]

LR = 0.1
WARM_UP_BATCHES = 20


def rows(num_examples=None, n=3, batch_size=256, workers=4):
    """Return the rows of LeNet: `n` rounds, each of one epoch for 1, 2 and 4 replicas and both usual loops.

    Ours is `d2lite.train`, the loop that the learner reads. The peer is the usual loop on one device, as torch
    is out of the box (all intra-op threads), (a) with a DataLoader and (b) with our iterator.
    """
    device = try_gpu()
    train_iter, _ = load_data_fashion_mnist(batch_size, num_examples)
    few = min(WARM_UP_BATCHES * batch_size, train_iter.num_examples)
    with tempfile.TemporaryDirectory() as folder:
        data = loader(folder, batch_size, num_examples, workers=workers)
        net = usual_lenet().to(device)
        optimizer = torch.optim.SGD(net.parameters(), LR)

        def ours(k, examples):
            return lambda: train(k, batch_size, LR, 1, examples).seconds[0]

        def usual(source, num_batches=None):
            return lambda: usual_epoch(net, optimizer, source, device, num_batches)

        seconds = rounds(
            {k: ours(k, num_examples) for k in (1, 2, 4)} | {"a": usual(data), "b": usual(train_iter)},
            n,
            warm_up={k: ours(k, few) for k in (1, 2, 4)}
            | {"a": usual(data, WARM_UP_BATCHES), "b": usual(train_iter, WARM_UP_BATCHES)},
        )
    usual_a, usual_b = f"usual loop, DataLoader with {workers} workers", "usual loop, our iterator"
    cores = num_cores() >= 2

    def row(k, peer, peer_name, target=None):
        name = f"LeNet, s/epoch, {k} replica" + ("s" if k > 1 else "")
        note = "" if cores or target is None else "one core: no target"
        target = target if cores else None
        return Row(name, "s", seconds[k], seconds[peer], peer_name, target, note=note)

    return [
        row(1, "a", usual_a),
        row(2, "a", usual_a, ("ratio", 0.65)),
        row(1, "b", usual_b),
        row(2, "b", usual_b),
        row(2, 1, "1 replica", ("speed-up", 1.8)),
        row(4, 2, "2 replicas", ("ratio", 1.1)),
    ]
