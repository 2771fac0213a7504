"""Data parallelism with a wrapped module: the loop of chapter 3."""

import torch
from torch import nn

from d2lite.data.fashion_mnist import load_data_fashion_mnist
from d2lite.devices import try_gpus
from d2lite.meters import Timer
from d2lite.parallel import one_intra_op_thread
from d2lite.training.data_parallel import wrap
from d2lite.training.evaluation import evaluate_accuracy_gpus
from d2lite.training.run import Run

__all__ = ["init_all", "train_concise"]


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
    net, num_gpus, batch_size, lr, num_epochs=10, num_examples=None, seed=0, animator=None, optim=torch.optim.SGD
):
    """Train `net`, initialised anew, on `num_gpus` replicas; return the Run.

    `batch_size` counts all replicas together; `optim(params, lr=lr)` returns the optimizer. After every epoch the
    test accuracy is added to `animator`. Raises like `train`.
    """
    devices = try_gpus(num_gpus)
    train_iter, test_iter = load_data_fashion_mnist(batch_size, num_examples, seed=seed)
    run = Run.begin(devices, train_iter, lr, num_epochs, seed=seed)
    net = wrap(init_all(net, seed), devices)
    optimizer = optim(net.parameters(), lr=lr)
    loss_fn, timer = nn.CrossEntropyLoss(), Timer(devices)
    with one_intra_op_thread(devices):
        for epoch in range(num_epochs):
            net.train()
            timer.start()
            for X, y in train_iter:
                optimizer.zero_grad()
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
