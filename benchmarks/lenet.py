"""LeNet from scratch on the cores: replicas against the usual loop, and against fewer replicas."""

import tempfile
import time

import torch

from benchmarks.peers import loader, usual_epoch, usual_lenet
from benchmarks.report import Row, rounds
from d2lite import lenet_params, load_data_fashion_mnist, num_cores, replicate, train, train_batch, try_gpu, try_gpus

__all__ = ["rows"]

LR = 0.1
WARM_UP_BATCHES = 20


def plain_loop(k, batch_size, num_examples):
    """Return the seconds of an epoch in the loop that a learner writes first: `train_batch` and nothing around it."""
    devices = try_gpus(k)
    train_iter, _ = load_data_fashion_mnist(batch_size, num_examples)
    device_params = replicate(lenet_params(), devices)
    start = time.perf_counter()
    for X, y in train_iter:
        loss = train_batch(X, y, device_params, devices, LR)
    loss.item()  # on GPUs this waits for the last step
    return time.perf_counter() - start


def rows(num_examples=None, n=3, batch_size=256, workers=4):
    """Return the rows of LeNet: `n` rounds, each of one epoch for 1, 2 and 4 replicas and both usual loops.

    Ours is `d2lite.train`, the loop that the learner reads, and `train_batch` in a plain loop. The peer is the usual
    loop on one device, as torch is out of the box (all intra-op threads), (a) with a DataLoader and (b) with our
    iterator.
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

        def plain(k, examples):
            return lambda: plain_loop(k, batch_size, examples)

        def usual(source, num_batches=None):
            return lambda: usual_epoch(net, optimizer, source, device, num_batches)

        def turns(examples, num_batches=None):
            found = {1: ours(1, examples), 2: ours(2, examples)}
            found |= {"plain 1": plain(1, examples), "plain 2": plain(2, examples), 4: ours(4, examples)}
            return found | {"a": usual(data, num_batches), "b": usual(train_iter, num_batches)}

        seconds = rounds(turns(num_examples), n, warm_up=turns(few, WARM_UP_BATCHES))
    usual_a, usual_b = f"usual loop, DataLoader with {workers} workers", "usual loop, our iterator"
    cores = num_cores() >= 2

    def row(mine, peer, peer_name, target=None):
        k, loop = (mine, "") if isinstance(mine, int) else (int(mine.split()[1]), ", train_batch in a plain loop")
        name = f"LeNet, s/epoch, {k} replica" + ("s" if k > 1 else "") + loop
        note = "" if cores or target is None else "one core: no target"
        target = target if cores else None
        return Row(name, "s", seconds[mine], seconds[peer], peer_name, target, note=note)

    return [
        row(1, "a", usual_a),
        row(2, "a", usual_a, ("ratio", 0.5)),
        row(1, "b", usual_b),
        row(2, "b", usual_b),
        row(2, 1, "1 replica", ("speed-up", 1.85)),
        row("plain 2", "plain 1", "1 replica, plain loop", ("speed-up", 1.85)),
        row("plain 2", 2, "2 replicas, train", ("ratio", 1.03)),
        row(4, 2, "2 replicas", ("ratio", 1.1)),
    ]
