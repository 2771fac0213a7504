"""Data parallelism with a wrapped module: the loop of chapter 3."""

import torch
from torch import nn

from d2lite import runs
from d2lite.data import load_data_fashion_mnist
from d2lite.devices import try_gpus
from d2lite.meters import Accumulator, Timer
from d2lite.replicas import wrap
from d2lite.sharding import parallel_apply, split_batch

__all__ = ["evaluate_accuracy_gpus", "init_all", "train_concise"]


def init_all(net, seed=0):
    """Give every layer of `net` fresh values, BatchNorm's running statistics included, and return `net`.

    The same seed gives the same values; the global generator is left alone. Raises TypeError, before anything is
    changed, for a layer that holds parameters or buffers and has no `reset_parameters`.
    """
    layers = [m for m in net.modules() if _own_state(m)]
    for layer in layers:
        if not hasattr(layer, "reset_parameters"):
            raise TypeError(
                f"init_all: expected every layer with state to have reset_parameters(), got "
                f"{type(layer).__name__} without. Make a new network for each run instead."
            )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for layer in layers:
            device = _own_state(layer)[0].device
            layer.cpu().reset_parameters()  # on the CPU, so that the values are the same on every device
            layer.to(device)
    return net


def _own_state(layer):
    return [*layer.parameters(recurse=False), *layer.buffers(recurse=False)]


def train_concise(
    net,
    num_gpus,
    batch_size,
    lr,
    num_epochs=10,
    num_examples=None,
    seed=0,
    animator=None,
    make_optimizer=torch.optim.SGD,
    autocast=None,
):
    """Train `net`, initialised anew, on `num_gpus` replicas; return the Run.

    `batch_size` counts all replicas together. `make_optimizer(params, lr=lr)` returns the optimizer. `autocast` is the
    dtype of torch.autocast for the forward pass (torch.bfloat16), or None. Raises like `train`.
    """
    devices = try_gpus(num_gpus)
    train_iter, test_iter = load_data_fashion_mnist(batch_size, num_examples, seed=seed)
    run = runs.begin(devices, train_iter, lr, num_epochs, seed=seed)
    net = wrap(init_all(net, seed), devices)
    optimizer = make_optimizer(net.parameters(), lr=lr)
    loss_fn, timer = nn.CrossEntropyLoss(), Timer(devices)
    for epoch in range(num_epochs):
        net.train()
        timer.start()
        for X, y in train_iter:
            optimizer.zero_grad()
            with torch.autocast(devices[0].type, dtype=autocast, enabled=autocast is not None):
                loss = loss_fn(net(X.to(devices[0])), y.to(devices[0]))
            loss.backward()
            optimizer.step()
            run.add_loss(loss.detach())
        seconds = timer.stop()
        accuracy = evaluate_accuracy_gpus(net, test_iter)
        run.add_epoch(seconds, accuracy)
        if animator is not None:
            animator.add(epoch + 1, accuracy)
    return run.finish()


def evaluate_accuracy_gpus(net, data_iter, split_f=split_batch):
    """Return the accuracy (0..1) of a wrapped network, every device counting its shard; exact for any sizes.

    `net` is a DataParallel (ours or torch's), put into evaluation mode for the time; `split_f(X, y, devices)`
    returns X_shards, y_shards. A minibatch with fewer examples than devices uses fewer devices.
    """
    training = net.training
    net.eval()
    correct_total = Accumulator(2)
    try:
        with torch.no_grad():
            devices, replicas = _replicas(net)
            for X, y in data_iter:
                used = devices[: len(y)]
                X_shards, y_shards = split_f(X, y, used)
                shards = list(zip(replicas[: len(used)], X_shards, y_shards, strict=True))
                correct_total.add(sum(parallel_apply(_num_correct, shards, used)), len(y))
    finally:
        net.train(training)
    if correct_total[1] == 0:
        raise ValueError("data_iter: expected at least one minibatch, got none.")
    return correct_total[0] / correct_total[1]


def _num_correct(replica, X, y):
    return int((replica(X).argmax(1) == y).sum())


def _replicas(net):
    """Return (devices, one copy of the network on each) of a wrapped network."""
    if isinstance(net, nn.DataParallel):
        devices = [torch.device("cuda", i) for i in net.device_ids]
        return devices, nn.parallel.replicate(net.module, net.device_ids, detach=True)
    if hasattr(net, "devices") and hasattr(net, "replicate"):
        return net.devices, net.replicate()
    raise TypeError(
        f"net: expected a DataParallel, got {type(net).__name__}. "
        "Wrap it with wrap(net, devices), or use evaluate_accuracy for one device."
    )
