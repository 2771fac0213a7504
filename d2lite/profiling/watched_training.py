"""`train`, with a step recorded now and then for whoever listens: the machine at work."""

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from d2lite.data import load_data_fashion_mnist
from d2lite.models import lenet
from d2lite.profiling.instrumented import record_train_batch
from d2lite.profiling.recorder import Recorder
from d2lite.run_events import emit, has_listener
from d2lite.trace import Event
from d2lite.training.from_scratch import train, train_batch
from d2lite.training.run_record import Run
from d2lite.training.scatter import split_batch

__all__ = ["ImageGuesses", "RecordedStep", "train_watched"]

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
    """Run `train` with `watched_step`: the same training, and reports to a panel of what the devices do.

    Args, result and errors are those of `train`, without `scale` and `step`.

    Example:
        >>> settings = dict(num_gpus=2, batch_size=64, lr=0.1, num_epochs=1, num_examples=256)
        >>> train_watched(**settings).losses == train(**settings).losses
        True
    """
    return train(
        num_gpus,
        batch_size,
        lr,
        num_epochs=num_epochs,
        num_examples=num_examples,
        seed=seed,
        step=watched_step(),
        animator=animator,
    )


def watched_step() -> Callable[..., torch.Tensor]:
    """Return a function that does what `train_batch` does, and reports some of its steps to whoever listens.

    At most every 0.7 seconds it emits "recorded step" with a RecordedStep, and "tested images" with ImageGuesses.
    Without a listener it records nothing.
    """
    numbers, due_s = itertools.count(1), 0.0
    _, test_iter = load_data_fashion_mnist(_TESTED, 6 * _TESTED)  # a sixth as many test images

    def step(
        X: torch.Tensor,
        y: torch.Tensor,
        device_params: Sequence[Sequence[torch.Tensor]],
        devices: Sequence[torch.device],
        lr: float,
    ) -> torch.Tensor:
        nonlocal due_s
        number = next(numbers)
        if not has_listener() or time.monotonic() < due_s:
            return train_batch(X, y, device_params, devices, lr)
        recorder = Recorder(devices=devices)
        loss = record_train_batch(X, y, device_params, devices, lr, recorder)
        emit("recorded step", recorded=_recorded(number, recorder.steps[0], X, y, devices, device_params[0]))
        emit("tested images", tested=_tested(test_iter, device_params[0], devices[0]))
        due_s = time.monotonic() + _EVERY_S
        return loss

    return step


def _recorded(
    number: int,
    events: Sequence[Event],
    X: torch.Tensor,
    y: torch.Tensor,
    devices: Sequence[torch.device],
    params: Sequence[torch.Tensor],
) -> RecordedStep:
    X_shards, _ = split_batch(X, y, devices)
    images = [_as_bytes(X_shard[:_SHOWN]) for X_shard in X_shards]
    n_bytes = sum(param.nbytes for param in params)
    return RecordedStep(number, events, images, [len(X_shard) for X_shard in X_shards], n_bytes)


def _tested(test_iter: Any, params: Sequence[torch.Tensor], device: torch.device) -> ImageGuesses:
    images, labels = test_iter.examples[:_TESTED], test_iter.labels[:_TESTED]
    with torch.no_grad():
        logits = lenet((images.float() / 255).to(device), params)
    return ImageGuesses(images[:, 0], labels, logits.argmax(1).cpu())


def _as_bytes(X: torch.Tensor) -> torch.Tensor:
    return (X[:, 0].cpu() * 255).round().to(torch.uint8)
