"""The record of one training run: what was asked for, what came out, on what."""

import json
import math
import platform
import re
import statistics
from dataclasses import asdict, dataclass, field

import torch

from d2lite._checks import positive_int, positive_number
from d2lite.devices import describe
from d2lite.events import Diverged, tell

__all__ = ["Run", "begin", "in_rank_order", "of_a_rank", "short"]

_READ_EVERY = 32  # losses kept on a GPU before they are read; reading waits for the GPU


@dataclass
class Run:
    """One run: settings, labels, a loss a step, an accuracy and a time an epoch.

    `losses` are mean training losses of each minibatch, `accuracies` are of the whole test set (0..1), `seconds`
    hold the training part of each epoch alone, measured. `status` is "running", "finished", "stopped",
    "diverged at step n, lr x" or "failed: ...". `curves` holds what an Animator was given: {name: {"x": [...],
    "y": [...]}}; a panel fills it.
    """

    settings: dict
    devices: str
    dataset: str
    num_examples: int
    losses: list = field(default_factory=list)
    accuracies: list = field(default_factory=list)
    seconds: list = field(default_factory=list)
    curves: dict = field(default_factory=dict)
    status: str = "running"
    versions: dict = field(default_factory=lambda: {"python": platform.python_version(), "torch": torch.__version__})

    def __post_init__(self):
        self._unread = []

    def add_loss(self, loss):
        """Keep the mean loss of one step (a number or a 0-d tensor); raises Diverged if it is not finite."""
        self._unread.append(loss)
        on_gpu = isinstance(loss, torch.Tensor) and loss.is_cuda
        if not on_gpu or len(self._unread) >= _READ_EVERY:
            self._read_losses()

    def _read_losses(self):
        unread, self._unread = self._unread, []
        for loss in unread:
            self.losses.append(float(loss))
            if not math.isfinite(self.losses[-1]):
                error = Diverged(len(self.losses), self.settings["lr"], self.losses[-1], self)
                self.status = str(error).split(":")[0]
                raise error

    def add_epoch(self, seconds, accuracy):
        """Keep the time of an epoch's training (s) and the test accuracy after it."""
        self._read_losses()
        self.seconds.append(seconds)
        self.accuracies.append(accuracy)

    def finish(self):
        """Mark the run as finished and return it."""
        self._read_losses()
        self.status = "finished"
        return self

    @property
    def accuracy(self):
        """Test accuracy after the last epoch, or NaN before the first."""
        return self.accuracies[-1] if self.accuracies else math.nan

    @property
    def seconds_per_epoch(self):
        """Median of the epochs' times in seconds, or NaN before the first."""
        return statistics.median(self.seconds) if self.seconds else math.nan

    @property
    def examples_per_s(self):
        """Training examples a second, from the median epoch."""
        return self.num_examples / self.seconds_per_epoch

    @property
    def label(self):
        """The run in a legend: "k=2 · lr 0.2 · batch 512"."""
        names = {"num_gpus": "k={}", "lr": "lr {}", "batch_size": "batch {}"}
        parts = [text.format(short(self.settings[name])) for name, text in names.items() if name in self.settings]
        return " · ".join(parts) or "run"

    def to_json(self):
        """Return the record as JSON text."""
        return json.dumps(asdict(self), indent=1)

    def __repr__(self):
        return (
            f"{self.label}: test accuracy {self.accuracy:.3f}, {self.seconds_per_epoch:.2f} s/epoch, "
            f"{self.examples_per_s:,.0f} examples/s ({self.devices}; {self.dataset}; {self.status})"
        )


def short(value):
    """Return a setting as a legend says it: floats that differ in the last digits alone are the same."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def begin(devices, train_iter, lr, num_epochs, **settings):
    """Check the settings of a run that is about to start and return its empty record.

    Raises ValueError or TypeError, before anything is computed, for a learning rate or a number of epochs out
    of range, and for a last minibatch with fewer examples than devices.
    """
    positive_number("lr", lr)
    positive_int("num_epochs", num_epochs)
    k = len(devices)
    if train_iter.smallest() < k:
        raise ValueError(
            f"batch_size {train_iter.batch_size}: expected every minibatch to hold at least {k} examples, one "
            f"a device, got a minibatch of {train_iter.smallest()} ({train_iter.num_examples} examples an "
            "epoch). Choose fewer devices or another batch_size."
        )
    settings = {"num_gpus": k, "batch_size": train_iter.batch_size, "lr": lr, "num_epochs": num_epochs, **settings}
    run = Run(settings, describe(devices), train_iter.dataset, train_iter.num_examples)
    tell("run", run=run)
    return run


def of_a_rank(name):
    """Return (what a curve shows, the rank that told it) from the name of a curve; -1 where no rank is named."""
    found = re.search(r", rank (\d+)$", name)
    return (name[: found.start()], int(found.group(1))) if found else (name, -1)


def in_rank_order(curves):
    """Return {name: curve} with the curves of ranks in their order, and the others in front."""
    return dict(sorted(curves.items(), key=lambda item: of_a_rank(item[0])[1]))
