"""Replica drift: how far apart replicas are, measured once or after each step together with loss and accuracy."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F

from d2lite.models import lenet
from d2lite.replica_threads import one_intra_op_thread

from .step_case import TrainBatch

__all__ = ["History", "replica_drift", "step_history"]


@dataclass
class History:
    """What is measured after each step: loss and accuracy of replica 0 on test data, drift, and the step's length.

    `moved` is the Euclidean distance between the parameters of replica 0 before and after the step.
    """

    losses: list[float] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)
    drifts: list[float] = field(default_factory=list)
    moved: list[float] = field(default_factory=list)


def step_history(
    train_batch: TrainBatch,
    batches: Iterable[tuple[torch.Tensor, torch.Tensor]],
    test: tuple[torch.Tensor, torch.Tensor],
    device_params: Sequence[Sequence[torch.Tensor]],
    devices: Sequence[torch.device],
    lr: float,
) -> History:
    """Train LeNet on the minibatches, one step on each, and return what was measured after each step.

    Args:
        train_batch: train_batch(X, y, device_params, devices, lr).
        batches: minibatches X [b, 1, 28, 28], y [b].
        test: images and labels for the loss and the accuracy.
        device_params: one list of LeNet's parameters per device, which are trained.
        devices: one device per replica.
        lr: the learning rate.
    """
    history = History()
    X_test, y_test = (t.to(devices[0]) for t in test)
    for X, y in batches:
        before = [p.detach().clone() for p in device_params[0]]
        with one_intra_op_thread(devices):
            train_batch(X, y, device_params, devices, lr)
        with torch.no_grad(), one_intra_op_thread(devices):
            after = device_params[0]
            y_hat = lenet(X_test, after)
            history.losses.append(float(F.cross_entropy(y_hat, y_test)))
            history.accuracies.append(float((y_hat.argmax(1) == y_test).double().mean()))
            history.moved.append(sum(float((p - q).square().sum()) for p, q in zip(before, after, strict=True)) ** 0.5)
        history.drifts.append(replica_drift(device_params))
    return history


def replica_drift(device_params: Sequence[Sequence[torch.Tensor]]) -> float:
    """Return the largest distance of a replica to replica 0, over the norm of replica 0: 0.01 is 1% of the weights.

    Args:
        device_params: one list of parameters per device, of the same shapes on each.

    Returns:
        max over replicas r of |p_r - p_0| / |p_0|, with the Euclidean norm over all parameters; NaN if one holds NaN.

    Raises:
        ValueError: if there is no replica, or the replicas have different numbers of parameters.

    Example:
        >>> replica_drift([[torch.tensor([3.0, 4.0])], [torch.tensor([3.0, 4.5])]])
        0.1
    """
    if not device_params:
        raise ValueError("device_params: expected at least one list of parameters, got none. Use replicate(...).")
    if len({len(params) for params in device_params}) > 1:
        lengths = [len(params) for params in device_params]
        raise ValueError(f"device_params: expected as many parameters on each device, got {lengths}.")
    with torch.no_grad():
        first = [p.detach().double() for p in device_params[0]]
        size = sum(float(p.square().sum()) for p in first) ** 0.5
        apart = [
            sum(
                float((q.detach().to(p.device).double() - p).square().sum()) for p, q in zip(first, params, strict=True)
            )
            for params in device_params[1:]
        ]
    if any(square != square for square in apart):
        return float("nan")
    return max(apart, default=0.0) ** 0.5 / (size or 1.0)
