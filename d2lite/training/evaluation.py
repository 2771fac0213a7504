"""Accuracy on the test set: on one device, and on all of them with nothing counted twice."""

from contextlib import contextmanager

import torch
from torch import nn

from d2lite.meters import Accumulator
from d2lite.parallel import parallel_apply
from d2lite.training.sharding import split_batch

__all__ = ["evaluate_accuracy", "evaluate_accuracy_gpus", "num_correct"]


def num_correct(net, X, y):
    """Return for how many examples the largest logit of net(X) [b, classes] is the label y [b]."""
    return int((net(X).argmax(1) == y).sum())


def evaluate_accuracy(net, data_iter, device=None):
    """Return the share of examples (0..1) that `net` gets right, on one device.

    `net` is a module (put into evaluation mode for the time) or any function of X; `device` is where it computes, for
    a module by default where its parameters are. Exact for a smaller last minibatch. Raises ValueError without data.
    """
    if device is None and isinstance(net, nn.Module):
        device = next((p.device for p in net.parameters()), None)
    correct = Accumulator(2)
    with torch.no_grad(), evaluating(net):
        for X, y in data_iter:
            here = device or X.device
            correct.add(num_correct(net, X.to(here), y.to(here)), len(y))
    return accuracy(correct)


def evaluate_accuracy_gpus(net, data_iter, split_f=split_batch):
    """Return the share of examples (0..1) that a wrapped network gets right, each device counting its shard.

    `net` is a DataParallel (ours or torch's), put into evaluation mode for the time; `split_f(X, y, devices)`
    returns X_shards, y_shards. Exact for any sizes: counts are added, not shares. A minibatch with fewer
    examples than devices uses fewer devices. Raises ValueError without data, TypeError for another `net`.
    """
    correct = Accumulator(2)
    with torch.no_grad(), evaluating(net):
        devices, replicas = replicas_of(net)
        for X, y in data_iter:
            used = devices[: len(y)]
            shards = list(zip(replicas[: len(used)], *split_f(X, y, used), strict=True))
            correct.add(sum(parallel_apply(num_correct, shards, used)), len(y))
    return accuracy(correct)


@contextmanager
def evaluating(net):
    """Put a module into evaluation mode; each of its layers comes back as it was, also after an error."""
    layers = list(net.modules()) if isinstance(net, nn.Module) else []
    modes = [layer.training for layer in layers]
    for layer in layers:
        layer.training = False
    try:
        yield
    finally:
        for layer, mode in zip(layers, modes, strict=True):
            layer.training = mode


def accuracy(correct):
    """Return right answers / examples from an Accumulator(2); raises ValueError if there were none."""
    if correct[1] == 0:
        raise ValueError("data_iter: expected at least one minibatch, got none.")
    return correct[0] / correct[1]


def replicas_of(net):
    """Return (devices, one copy of the network on each) of a wrapped network."""
    if isinstance(net, nn.DataParallel):
        devices = [torch.device("cuda", i) for i in net.device_ids]
        return devices, nn.parallel.replicate(net.module, net.device_ids, detach=True)
    if hasattr(net, "devices") and hasattr(net, "replicate"):
        return net.devices, net.replicate()
    raise TypeError(
        f"net: expected a DataParallel, got {type(net).__name__}. Wrap it with wrap(net, devices), or use "
        "evaluate_accuracy for one device."
    )
