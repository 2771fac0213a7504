"""The arms of a comparison: settings that are trained side by side, each with several seeds and the same budget."""

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.swa_utils import update_bn

from d2lite.data.batch_iterator import BatchIterator
from d2lite.data.fashion_mnist import load_data_fashion_mnist
from d2lite.devices import MAX_REPLICAS, num_gpus, try_gpus
from d2lite.replica_threads import one_intra_op_thread, parallel_apply
from d2lite.training.data_parallel import wrap
from d2lite.training.evaluation import evaluate_accuracy
from notebook_ranks.shared.checks import non_negative_number, one_of, positive_int, positive_number, whole_number

from .learning_rate import warm_up
from .warm_start import KEPT, start_net

__all__ = ["OPTIMIZERS", "Arm", "Trial", "differences", "run_arms", "train_arm", "train_until_spent"]

OPTIMIZERS = ("SGD", "Adam")
_TEST_BATCH = 500


@dataclass(frozen=True)
class Arm:
    """The settings of one side of a comparison.

    `batch_size` counts the examples of all devices together. In the first `warm_up_epochs` the learning rate grows, and
    it falls to zero in the last part of the budget, of which `decay_share` is the share. `kept` says what the network
    keeps of one that was trained before, as in `start_net`.

    Raises:
        TypeError, ValueError: if a setting is of the wrong type, or out of range.
    """

    name: str
    batch_size: int = 64
    lr: float = 0.1
    _: KW_ONLY
    momentum: float = 0.0
    warm_up_epochs: float = 0.0
    decay_share: float = 0.0
    optimizer: str = "SGD"
    num_gpus: int = 1
    kept: str = "nothing"

    def __post_init__(self) -> None:
        positive_int("num_gpus", self.num_gpus, MAX_REPLICAS)
        least = 2 * self.num_gpus
        whole_number("batch_size", self.batch_size, least, hint="BatchNorm needs two examples on each device.")
        positive_number("lr", self.lr)
        if not non_negative_number("momentum", self.momentum) < 1:
            raise ValueError(f"momentum: expected a number from 0 on, below 1, got {self.momentum}.")
        non_negative_number("warm_up_epochs", self.warm_up_epochs)
        if non_negative_number("decay_share", self.decay_share) > 1:
            raise ValueError(f"decay_share: expected a number from 0 to 1, got {self.decay_share}.")
        one_of("optimizer", self.optimizer, OPTIMIZERS)
        one_of("kept", self.kept, tuple(KEPT))

    def lr_at(self, step: int, spent: float, steps_per_epoch: int) -> float:
        """Return the learning rate of a step; `spent` is the part of the budget that is gone (0..1)."""
        lr = warm_up(self.lr, step, self.warm_up_epochs * steps_per_epoch)
        return lr * min(1.0, (1 - spent) / self.decay_share) if self.decay_share else lr

    def make_optimizer(self, net: nn.Module) -> torch.optim.Optimizer:
        """Return a new optimizer for the parameters of `net`."""
        if self.optimizer == "Adam":
            return torch.optim.Adam(net.parameters(), self.lr)
        return torch.optim.SGD(net.parameters(), self.lr, self.momentum)


@dataclass
class Trial:
    """One training run of an arm, and what it has spent.

    `accuracies` are those on the test set at equal parts of the budget, the last one at its end; `reached_s` says after
    how many seconds of training each was measured. `seconds` is the time of the steps with the loading of their
    minibatches, evaluation left out. `renewed_accuracy` is measured last, after the running statistics have been
    computed anew from the training examples with the final weights. `has_diverged` is whether a loss was not finite;
    training ends there.
    """

    arm: Arm
    seed: int
    accuracies: list[float] = field(default_factory=list)
    _: KW_ONLY
    steps: int = 0
    examples: int = 0
    seconds: float = 0.0
    renewed_accuracy: float = math.nan
    has_diverged: bool = False
    reached_s: list[float] = field(default_factory=list)

    @property
    def accuracy(self) -> float:
        """Test accuracy at the end of the budget, NaN before the first measurement."""
        return self.accuracies[-1] if self.accuracies else math.nan

    def seconds_to(self, target: float) -> float | None:
        """Return the seconds of training after which an accuracy of `target` was first measured; None if never."""
        pairs = zip(self.accuracies, self.reached_s, strict=True)
        return next((seconds for accuracy, seconds in pairs if accuracy >= target), None)


def train_until_spent(replicas: nn.Module, optimizer: torch.optim.Optimizer, budget: "_Budget") -> None:
    """Make one step per minibatch until the budget of an arm is spent."""
    for X, y, lr in budget:  # epoch after epoch, on the first device
        optimizer.param_groups[0]["lr"] = lr  # a warm-up or a decay changes it from step to step
        optimizer.zero_grad()
        loss = F.cross_entropy(replicas(X), y)  # on two devices each replica has half of X
        loss.backward()
        optimizer.step()
        budget.spend(loss, len(y))  # counts, and measures the accuracy after each part of the budget


def train_arm(
    arm: Arm,
    seed: int,
    net: nn.Module,
    *,
    num_examples: int,
    num_epochs: float,
    seconds: float | None = None,
    num_points: int = 4,
    num_test_examples: int = 2000,
) -> Trial:
    """Train `net` with the settings of an arm until its budget is spent, and return the Trial.

    The budget is `num_epochs` passes over the examples, or with `seconds` the time of the steps. The accuracy on the
    first `num_test_examples` test examples is measured `num_points` times, after equal parts of the budget.

    Args:
        arm: The settings.
        seed: Decides the order of the examples; the initial values are those of `net`.
        net: A module for images [b, 1, 28, 28] with logits [b, 10]; it is trained in place.
        num_examples: How many training examples there are.
        num_epochs: The budget, if `seconds` is None.
        seconds: The budget in seconds.
        num_points: Number of measurements.
        num_test_examples: Number of test examples, at most 10,000; the first ones of the test set are taken.
    """
    devices = try_gpus(arm.num_gpus)
    train_iter, _ = load_data_fashion_mnist(arm.batch_size, num_examples, seed=seed)
    _, all_tests = load_data_fashion_mnist(_TEST_BATCH)
    n = positive_int("num_test_examples", num_test_examples, all_tests.num_examples)
    test_iter = BatchIterator(all_tests.examples[:n], all_tests.labels[:n], _TEST_BATCH, all_tests.dataset)
    replicas = wrap(net, devices) if len(devices) > 1 else net.to(devices[0])

    def measure() -> float:
        return evaluate_accuracy(net, test_iter, devices[0])

    budget = _Budget(
        trial=Trial(arm, seed),
        train_iter=train_iter,
        device=devices[0],
        num_examples=num_epochs * num_examples,
        seconds=seconds,
        num_points=num_points,
        measure=measure,
    )
    with one_intra_op_thread(devices):  # a second thread costs more than it gives for so small a network
        train_until_spent(replicas, arm.make_optimizer(net), budget)
        again = BatchIterator(train_iter.examples, train_iter.labels, arm.batch_size, train_iter.dataset)
        update_bn(again, net, devices[0])  # running statistics anew, weights as they are
        budget.trial.renewed_accuracy = measure()
    return budget.trial


@dataclass(kw_only=True)
class _Budget:
    """The minibatches of a trial until its budget is spent: (X, y, learning rate), with all that is counted."""

    trial: Trial
    train_iter: BatchIterator
    device: torch.device
    num_examples: float  # the budget, if `seconds` is None
    seconds: float | None
    num_points: int
    measure: Callable[[], float]
    spent: float = 0.0  # the part of the budget that is gone

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor, float]]:
        batches = _endless(self.train_iter)
        while len(self.trial.accuracies) < self.num_points:
            self.began = time.perf_counter()
            X, y = next(batches)
            lr = self.trial.arm.lr_at(self.trial.steps, self.spent, len(self.train_iter))
            yield X.to(self.device), y.to(self.device), lr

    def spend(self, loss: torch.Tensor, num_examples: int) -> None:
        """Add a step to the trial, and measure the accuracy if a part of the budget has been spent."""
        trial = self.trial
        trial.has_diverged = not math.isfinite(loss.item())  # item() waits for the GPU
        trial.seconds += time.perf_counter() - self.began
        trial.steps, trial.examples = trial.steps + 1, trial.examples + num_examples
        self.spent = min(1.0, trial.seconds / self.seconds if self.seconds else trial.examples / self.num_examples)
        num_due = self.num_points if trial.has_diverged else int(self.spent * self.num_points + 1e-9)
        num_new = num_due - len(trial.accuracies)
        if num_new > 0:
            trial.accuracies += [self.measure()] * num_new
            trial.reached_s += [trial.seconds] * num_new


def run_arms(
    arms: Sequence[Arm],
    seeds: Sequence[int],
    num_examples: int = 3000,
    *,
    num_epochs: float = 4,
    seconds: float | None = None,
    num_points: int = 4,
    used: Mapping[str, torch.Tensor] | None = None,
    on_trial: Callable[[Trial], Any] | None = None,
) -> dict[str, list[Trial]]:
    """Train each arm with each seed on the same budget, and return {name of the arm: trials in the order of seeds}.

    The small network is trained (`start_net`). A seed gives all arms the same initial values and the same order of the
    examples. On the CPU trainings run side by side, one per core. If time is the budget they run one after the other,
    since each would slow the others.

    Args:
        arms: Settings with different names.
        seeds: Different whole numbers.
        num_examples, num_epochs, seconds, num_points: As in `train_arm`.
        used: The state of a network that was trained before; arms that keep something need it.
        on_trial: Called with each Trial when it has ended; never twice at the same time.

    Raises:
        ValueError: if two names or two seeds are equal, there are none of them, the budget is not above 0, or the last
            minibatch of an epoch has fewer than two examples per device. Nothing has been trained then.
        TypeError: if a number is of the wrong type.
    """
    num_examples, num_points = positive_int("num_examples", num_examples), positive_int("num_points", num_points)
    positive_number("num_epochs", num_epochs)
    if seconds is not None:
        positive_number("seconds", seconds)
    _require_different("arms", [arm.name for arm in arms])
    _require_different("seeds", [whole_number("seeds", seed) for seed in seeds])
    for arm in arms:
        rest = num_examples % arm.batch_size or arm.batch_size
        if min(rest, num_examples) < 2 * arm.num_gpus:
            raise ValueError(
                f"arm {arm.name!r}: expected two examples per device in the last minibatch of an epoch, got {rest} on "
                f"{arm.num_gpus}. BatchNorm needs two: choose another batch_size or num_examples."
            )
    jobs = [(arm, seed, start_net(seed, arm.kept, used)) for seed in seeds for arm in arms]
    lock = threading.Lock()

    def run(arm: Arm, seed: int, net: nn.Module) -> Trial:
        trial = train_arm(
            arm, seed, net, num_examples=num_examples, num_epochs=num_epochs, seconds=seconds, num_points=num_points
        )
        if on_trial is not None:
            with lock:
                on_trial(trial)
        return trial

    if num_gpus() > 0 or seconds is not None:
        trials = [run(*job) for job in jobs]
    else:
        parts = [jobs[i : i + MAX_REPLICAS] for i in range(0, len(jobs), MAX_REPLICAS)]
        trials = [
            trial for part in parts for trial in parallel_apply(run, try_gpus(len(part)), *zip(*part, strict=True))
        ]
    return {arm.name: [trial for trial in trials if trial.arm == arm] for arm in arms}


def differences(a: Arm, b: Arm) -> list[str]:
    """Return the settings in which two arms differ, their names aside. In a fair comparison there is only one.

    Example:
        >>> differences(Arm("one GPU"), Arm("two GPUs", batch_size=128, lr=0.2, num_gpus=2))
        ['batch_size', 'lr', 'num_gpus']
    """
    return [name for name, value in vars(a).items() if name != "name" and value != vars(b)[name]]


def _endless(train_iter: Any) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    while True:
        yield from train_iter


def _require_different(what: str, values: Sequence[Any]) -> None:
    if not values or len(set(values)) < len(values):
        raise ValueError(f"{what}: expected one or more, all different, got {values}.")
