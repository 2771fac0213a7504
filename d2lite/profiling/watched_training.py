"""`train`, with a step recorded now and then for whoever listens: the machine at work."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from d2lite.data import load_data_fashion_mnist
from d2lite.devices import try_gpus
from d2lite.meters import Timer
from d2lite.models import lenet, lenet_params
from d2lite.profiling.instrumented import record_train_batch
from d2lite.profiling.recorder import Recorder
from d2lite.run_events import emit, has_listener
from d2lite.trace import Event
from d2lite.training.evaluation import evaluate_accuracy
from d2lite.training.from_scratch import train_batch
from d2lite.training.replicate import replicate
from d2lite.training.run import Run
from d2lite.training.scatter import split_batch

__all__ = ["RecordedStep", "ImageGuesses", "train_watched"]

_EVERY_S = 0.7  # at most so often is a step recorded
_SHOWN = 6  # images of each shard
_TESTED = 8  # test images


@dataclass(frozen=True)
class RecordedStep:
    """One step of a run: its number (from 1), its Events in one lane per device, and the first images of each shard.

    `images` holds one uint8 tensor [n, 28, 28] per device, `shard_sizes` the number of examples of each device, and
    `n_bytes` is the size of the gradients of one device.
    """

    step: int
    events: Sequence[Event]
    images: Sequence[torch.Tensor]
    shard_sizes: Sequence[int]
    n_bytes: int


@dataclass(frozen=True)
class ImageGuesses:
    """Some test images, uint8 [n, 28, 28], their labels [n], and what the network takes them for [n]."""

    images: torch.Tensor
    labels: torch.Tensor
    predicted: torch.Tensor


def train_watched(
    num_gpus: int,
    batch_size: int,
    lr: float,
    *,
    num_epochs: int = 10,
    num_examples: int | None = None,
    seed: int = 0,
    animator: Any = None,
) -> Run:
    """Train as `train` does, step by step the same, and report to a panel what the devices do; return the Run.

    A step is recorded once per 0.7 seconds at most, and emitted as "recorded step" with a RecordedStep. After each
    epoch, outside the measured time, "tested images" has ImageGuesses. Without a listener, nothing is recorded.

    Args and errors are those of `train`.

    Example:
        >>> from d2lite import train
        >>> settings = dict(num_gpus=2, batch_size=64, lr=0.1, num_epochs=1, num_examples=256)
        >>> train_watched(**settings).losses == train(**settings).losses
        True
    """
    devices = try_gpus(num_gpus)
    train_iter, test_iter = load_data_fashion_mnist(batch_size, num_examples, seed=seed)
    device_params = replicate(lenet_params(seed), devices)
    run = Run.begin(devices, train_iter, lr, num_epochs, seed=seed)
    timer, recorder, due_s, step = Timer(devices), Recorder(devices=devices), 0.0, 0
    for epoch in range(num_epochs):
        timer.start()
        for X, y in train_iter:
            step += 1
            if has_listener() and time.monotonic() >= due_s:
                run.add_loss(record_train_batch(X, y, device_params, devices, lr, recorder))
                emit("recorded step", recorded=_recorded(step, recorder.steps.pop(), X, y, devices, device_params[0]))
                due_s = time.monotonic() + _EVERY_S
            else:
                run.add_loss(train_batch(X, y, device_params, devices, lr))
        seconds = timer.stop()
        accuracy = evaluate_accuracy(lambda X: lenet(X, device_params[0]), test_iter, devices[0])
        run.add_epoch(seconds, accuracy)
        if animator is not None:
            animator.add(epoch + 1, accuracy)
        emit("tested images", tested=_tested(test_iter, device_params[0], devices[0]))
    return run.finish()


def _recorded(
    step: int,
    events: Sequence[Event],
    X: torch.Tensor,
    y: torch.Tensor,
    devices: Sequence[torch.device],
    params: Sequence[torch.Tensor],
) -> RecordedStep:
    X_shards, _ = split_batch(X, y, devices)
    images = [_as_bytes(X_shard[:_SHOWN]) for X_shard in X_shards]
    n_bytes = sum(param.nbytes for param in params)
    return RecordedStep(step, events, images, [len(X_shard) for X_shard in X_shards], n_bytes)


def _tested(test_iter: Any, params: Sequence[torch.Tensor], device: torch.device) -> ImageGuesses:
    images, labels = test_iter.images[:_TESTED], test_iter.labels[:_TESTED]
    with torch.no_grad():
        logits = lenet((images.float() / 255).to(device), params)
    return ImageGuesses(images[:, 0], labels, logits.argmax(1).cpu())


def _as_bytes(X: torch.Tensor) -> torch.Tensor:
    return (X[:, 0].cpu() * 255).round().to(torch.uint8)
