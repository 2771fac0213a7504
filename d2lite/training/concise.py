"""Data parallelism with a wrapped module: the line of chapter 3 in a loop."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from d2lite.data.fashion_mnist import load_data_fashion_mnist
from d2lite.devices import try_gpus
from d2lite.meters import Timer
from d2lite.models import init_all
from d2lite.training.data_parallel import wrap
from d2lite.training.evaluation import evaluate_accuracy_gpus
from d2lite.training.run_record import Run

__all__ = ["train_concise"]


def train_concise(
    net: nn.Module,
    num_gpus: int,
    batch_size: int,
    lr: float,
    *,
    num_epochs: int = 10,
    num_examples: int | None = None,
    seed: int = 0,
    animator: Any = None,
    optim: Callable[..., torch.optim.Optimizer] = torch.optim.SGD,
) -> Run:
    """Train `net`, initialised again, on `num_gpus` replicas, and return the Run.

    Args:
        net: a module for images [b, 1, 28, 28] with logits [b, 10], whose layers have `reset_parameters`.
        num_gpus, batch_size, lr, num_epochs, num_examples: as for `train`, with the same errors.
        seed, animator: as for `train`.
        optim: optim(params, lr=lr) returns the optimizer.

    Example:
        >>> from d2lite import SimpleCNN
        >>> run = train_concise(SimpleCNN(), num_gpus=2, batch_size=64, lr=0.1, num_epochs=1, num_examples=256)
        >>> run.status, len(run.losses)
        ('finished', 4)
    """
    devices = try_gpus(num_gpus)
    train_iter, test_iter = load_data_fashion_mnist(batch_size, num_examples, seed=seed)
    run = Run.begin(devices, train_iter, lr, num_epochs, seed=seed)
    net = wrap(init_all(net, seed), devices)
    optimizer = optim(net.parameters(), lr=lr)
    loss_fn, timer = nn.CrossEntropyLoss(), Timer(devices)
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
