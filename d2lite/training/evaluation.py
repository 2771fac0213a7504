"""Accuracy on the test set: on one device, and on replicas in one process with no image counted twice."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from d2lite.meters import Accumulator
from d2lite.replica_threads import parallel_apply
from d2lite.training.scatter import split_batch

__all__ = ["accuracy_of", "evaluate_accuracy", "evaluate_accuracy_gpus", "evaluating", "num_correct", "replicas_of"]

Batches = Iterable[tuple[torch.Tensor, torch.Tensor]]
Net = Callable[[torch.Tensor], torch.Tensor]


def num_correct(net: Net, X: torch.Tensor, y: torch.Tensor) -> int:
    """Return for how many examples the largest logit of net(X) [b, classes] is the label y [b]."""
    return int((net(X).argmax(1) == y).sum())


def accuracy_of(counts: Any) -> float:
    """Return right answers / examples from an Accumulator(2) or a pair; raises ValueError if there were no examples."""
    if counts[1] == 0:
        raise ValueError("data_iter: expected at least one minibatch, got none.")
    return counts[0] / counts[1]


def evaluate_accuracy(net: Net, data_iter: Batches, device: torch.device | None = None) -> float:
    """Return the fraction of examples (0..1) that `net` classifies correctly, on one device.

    Args:
        net: a module, in evaluation mode until this returns, or a function from X [b, ...] to logits [b, classes].
        data_iter: minibatches X [b, ...], y [b]; without any a ValueError is raised.
        device: the device that computes; by default where a module's parameters are, else where X is.

    Example:
        >>> data = [(torch.eye(3), torch.tensor([0, 1, 0]))]
        >>> round(evaluate_accuracy(lambda X: X, data), 4)
        0.6667
    """
    if device is None and isinstance(net, nn.Module):
        device = next((p.device for p in net.parameters()), None)
    counts = Accumulator(2)
    with torch.no_grad(), evaluating(net):
        for X, y in data_iter:
            here = device or X.device
            counts.add(num_correct(net, X.to(here), y.to(here)), len(y))
    return accuracy_of(counts)


def evaluate_accuracy_gpus(net: nn.Module, data_iter: Batches, split_f: Callable[..., Any] = split_batch) -> float:
    """Return the fraction of examples (0..1) that a wrapped network classifies correctly, each device its shard.

    Counts are added, not fractions, so shards may have any sizes. A minibatch with fewer examples than devices uses
    fewer devices.

    Args:
        net: a DataParallel, ours or torch's; it is in evaluation mode until this returns.
        data_iter: minibatches X [b, ...], y [b]; without any a ValueError is raised.
        split_f: split_f(X, y, devices) returns X_shards, y_shards.

    Example:
        >>> from d2lite import DataParallel, try_gpus
        >>> net = DataParallel(nn.Identity(), try_gpus(2))
        >>> data = [(torch.eye(3), torch.tensor([0, 1, 0]))]
        >>> round(evaluate_accuracy_gpus(net, data), 4)
        0.6667
    """
    counts = Accumulator(2)
    with torch.no_grad(), evaluating(net):
        devices, replicas = replicas_of(net)
        for X, y in data_iter:
            used = devices[: len(y)]
            X_shards, y_shards = split_f(X, y, used)
            models = replicas[: len(used)]
            correct = parallel_apply(num_correct, used, models, X_shards, y_shards)
            counts.add(sum(correct), len(y))
    return accuracy_of(counts)


@contextmanager
def evaluating(net: Any) -> Iterator[None]:
    """Put a module into evaluation mode; afterwards each of its layers has its old mode again, also after an error."""
    layers = list(net.modules()) if isinstance(net, nn.Module) else []
    modes = [layer.training for layer in layers]
    for layer in layers:
        layer.training = False
    try:
        yield
    finally:
        for layer, mode in zip(layers, modes, strict=True):
            layer.training = mode


def replicas_of(net: Any) -> tuple[Sequence[torch.device], Sequence[nn.Module]]:
    """Return (devices, one copy of the network on each) of a wrapped network; raises TypeError for any other."""
    if isinstance(net, nn.DataParallel):
        if not net.device_ids:  # torch's wrapper without a GPU: the network itself, where it is
            return [next((p.device for p in net.parameters()), torch.device("cpu"))], [net.module]
        devices = [torch.device("cuda", i) for i in net.device_ids]
        return devices, nn.parallel.replicate(net.module, net.device_ids, detach=True)
    if hasattr(net, "devices") and hasattr(net, "replicate"):
        return net.devices, net.replicate()
    raise TypeError(
        f"net: expected a DataParallel, got {type(net).__name__}. Wrap it with wrap(net, devices), or use "
        "evaluate_accuracy for one device."
    )
