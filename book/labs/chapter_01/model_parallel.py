"""Model parallelism: each device holds some of the layers, and the complete minibatch goes through all of them."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from d2lite.data.fashion_mnist import load_data_fashion_mnist
from d2lite.devices import check_devices, describe, try_gpus
from d2lite.meters import Timer
from d2lite.models import init_all
from d2lite.replica_threads import one_intra_op_thread
from d2lite.training.evaluation import evaluate_accuracy
from d2lite.training.run_record import Run

__all__ = ["ModelParallel", "check_stages", "describe_stages", "train_model_parallel"]


def check_stages(stages: Any, devices: Any) -> None:
    """Raise ValueError or TypeError unless `stages` are one or more modules and `devices` one device for each."""
    check_devices(devices)
    if len(stages) == 0:
        raise ValueError("stages: expected at least one module, got none. One device has one stage: [net].")
    for stage in stages:
        if not isinstance(stage, nn.Module):
            raise TypeError(
                f"stages: expected modules, got {type(stage).__name__}. A function of tensors needs a module around it."
            )
    if len(stages) != len(devices):
        raise ValueError(f"devices: expected {len(stages)} (one per stage), got {len(devices)}.")


class ModelParallel(nn.Module):
    """Run `stages` one after the other, each on a device of its own: naive model parallelism, a pipeline of one batch.

    Each stage gets a copy of the activations of the stage before it. Autograd sends their gradient back the same way,
    so a training loop needs no other change than labels on the last device. Only one device computes at a time.

    Args:
        stages: modules, each of which takes the output of the one before it; each is moved to its device.
        devices: one device per stage. They may be the same device.

    Raises:
        ValueError: if there are no stages, or not as many devices as stages.
        TypeError: if `devices` is a single device, or a stage is not an nn.Module.

    Example:
        >>> stages = [nn.Linear(3, 4), nn.Linear(4, 2)]
        >>> net = ModelParallel(stages, try_gpus(2))
        >>> net(torch.zeros(5, 3)).shape
        torch.Size([5, 2])
    """

    def __init__(self, stages: Sequence[nn.Module], devices: Sequence[torch.device]) -> None:
        super().__init__()
        check_stages(stages, devices)
        self.devices = devices
        self.stages = nn.ModuleList(stage.to(device) for stage, device in zip(stages, devices, strict=True))

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        for stage, device in zip(self.stages, self.devices, strict=True):
            X = stage(X.to(device, copy=True))
        return X


def describe_stages(devices: Sequence[torch.device | str]) -> str:
    """Return the label of a model-parallel run: "2 stages on 2 NVIDIA H200", "2 stages share 1 CPU core".

    On the CPU all stages compute in the caller's thread, so there is never more than one core at work.

    Args:
        devices: one device per stage.

    Raises:
        ValueError: if there are no devices.

    Example:
        >>> describe_stages(["cpu", "cpu"])
        '2 stages share 1 CPU core'
    """
    if devices and all(torch.device(device).type == "cpu" for device in devices):
        return f"{len(devices)} stages share 1 CPU core" if len(devices) > 1 else "1 stage on 1 CPU core"
    return describe(devices).replace("replica", "stage")


def train_model_parallel(
    stages: Sequence[nn.Module],
    batch_size: int,
    lr: float,
    *,
    num_epochs: int = 10,
    num_examples: int | None = None,
    seed: int = 0,
    animator: Any = None,
) -> Run:
    """Train the network that `stages` form with Adam, from initial values, one stage per device; return the Run.

    The Run equals that of one device up to rounding, for any network, since each stage sees the complete minibatch.

    Args:
        stages: modules that together map images [b, 1, 28, 28] to logits [b, 10], each of whose layers has
            `reset_parameters`; one stage trains on one device.
        batch_size: examples per minibatch.
        lr: the learning rate.
        num_epochs: passes over the training examples.
        num_examples: how many training examples to use; by default the 12,000 that come with d2lite.
        seed: decides the order of the examples and the initial values.
        animator: an Animator, or whatever has `add(x, y)`: it gets the test accuracy after every epoch.

    Raises:
        ValueError: if a setting is out of range, or there are no stages.
        TypeError: if a setting is of the wrong type, or a layer cannot be initialised again.
        Diverged: if the loss is no longer finite; the error holds the run so far.

    Example:
        >>> first = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten())
        >>> run = train_model_parallel([first, nn.Linear(4 * 26 * 26, 10)], 64, 0.001, 1, num_examples=256)
        >>> run.status, len(run.losses), run.settings["num_gpus"]
        ('finished', 4, 2)
    """
    devices = try_gpus(len(stages))
    train_iter, test_iter = load_data_fashion_mnist(batch_size, num_examples, seed=seed)
    run = Run.begin(devices, train_iter, lr, num_epochs, seed=seed)
    run.devices = describe_stages(devices)
    net = init_all(ModelParallel(stages, devices), seed)
    optimizer, timer = torch.optim.Adam(net.parameters(), lr=lr), Timer(devices)
    for epoch in range(num_epochs):
        timer.start()
        with one_intra_op_thread(devices):
            for X, y in train_iter:
                optimizer.zero_grad()
                loss = F.cross_entropy(net(X), y.to(devices[-1]))
                loss.backward()
                optimizer.step()
                run.add_loss(loss.detach())
        run.add_epoch(timer.stop(), evaluate_accuracy(net, test_iter, devices[-1]))
        if animator is not None:
            animator.add(epoch + 1, run.accuracy)
    return run.finish()
