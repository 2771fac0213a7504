"""LeNet from scratch on the cores: replicas against the usual loop, and against fewer replicas."""

import tempfile
import time

import torch

from benchmarks.peers import loader, usual_epoch, usual_lenet
from benchmarks.report import Row, rounds
from d2lite import lenet_params, load_data_fashion_mnist, num_cores, replicate, train, train_batch, try_gpu, try_gpus

__all__ = ["rows"]

LR = 0.1
TURN_BATCHES = 40  # one or two seconds: short against the minutes in which a shared machine slows down


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


def rows(num_examples=60_000, n=3, batch_size=256, workers=4):
    """Return the rows of LeNet: `n` rounds of an epoch for 1, 2 and 4 replicas and both usual loops.

    The epochs of a round are cut into turns of 40 minibatches that alternate, and their seconds are added, so that
    all contestants meet the same minutes of a shared machine. Only loop (a) runs its epoch in one piece: it starts its
    workers once per epoch.

    Ours is `d2lite.train`, the loop that the learner reads, and `train_batch` in a plain loop. The peer is the usual
    loop on one device, as torch is out of the box (all intra-op threads), (a) with a DataLoader and (b) with our
    iterator.
    """
    device = try_gpu()
    turn = min(TURN_BATCHES * batch_size, num_examples)
    turns = round(num_examples / turn)
    train_iter, _ = load_data_fashion_mnist(batch_size, turn)
    with tempfile.TemporaryDirectory() as folder:
        data = loader(folder, batch_size, num_examples, workers=workers)
        net = usual_lenet().to(device)
        optimizer = torch.optim.SGD(net.parameters(), LR)
        contestants = {
            k: lambda k=k: train(k, batch_size, LR, num_epochs=1, num_examples=turn).seconds[0] for k in (1, 2, 4)
        }
        contestants |= {f"plain {k}": lambda k=k: plain_loop(k, batch_size, turn) for k in (1, 2)}
        contestants["b"] = lambda: usual_epoch(net, optimizer, train_iter, device)
        rounds(contestants, 1)  # warm up
        seconds = {name: [] for name in (*contestants, "a")}
        for _ in range(n):
            found = rounds(contestants, turns)
            for name in contestants:
                seconds[name].append(sum(found[name]) * num_examples / (turns * turn))
            seconds["a"].append(usual_epoch(net, optimizer, data, device))
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
