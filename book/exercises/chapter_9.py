"""The exercises of chapter 9: updates of a training, a warm-up to k times the rate, the gradient noise scale."""

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

from d2lite.exercises import Exercise, Mistake


def _num_updates(num_examples: int, batch_per_gpu: int, num_gpus: int, num_epochs: int) -> int:
    return math.ceil(num_examples / (batch_per_gpu * num_gpus)) * num_epochs


def _update_cases() -> dict[str, tuple[int, int, int, int]]:
    return {
        "3,000 examples, 8 devices with 64 each": (3000, 64, 8, 4),
        "one device": (3000, 64, 1, 4),
        "no smaller minibatch at the end": (6400, 64, 2, 3),
        "fewer examples than one minibatch": (10, 16, 4, 3),
        "100 examples, 3 devices with 7 each": (100, 7, 3, 5),
        "one epoch": (60_000, 256, 2, 1),
    }


def _drawn_updates(numbers: random.Random) -> dict[str, tuple[int, int, int, int]]:
    """Return a case that no table knows beforehand; the last minibatch of an epoch is smaller."""
    batch_per_gpu, num_gpus, num_epochs = numbers.randint(3, 99), numbers.randint(2, 9), numbers.randint(2, 9)
    minibatch = batch_per_gpu * num_gpus
    num_examples = numbers.randint(9, 99) * minibatch + numbers.randint(1, minibatch - 1)
    label = f"{num_examples:,} examples, {num_gpus} devices with {batch_per_gpu} each, {num_epochs} epochs"
    return {label: (num_examples, batch_per_gpu, num_gpus, num_epochs)}


_ONE_EPOCH = (
    "Take 10 examples, 2 devices with 2 examples each: write down the minibatches of one epoch, then of the next."
)

UPDATES = Exercise(
    name="9.1",
    title="How many updates does a training make?",
    solution=_num_updates,
    cases=_update_cases,
    draw=_drawn_updates,
    mistakes=(
        Mistake(
            lambda n, b, k, e: n // (b * k) * e,
            "the last minibatch of an epoch, which is smaller, is left out: it makes an update, too.",
            _ONE_EPOCH,
        ),
        Mistake(
            lambda n, b, k, e: (n // (b * k) + 1) * e,
            "one is always added for the smaller minibatch, also where the examples divide without a rest.",
            "Take 8 examples, 2 devices with 2 examples each: write down the minibatches of one epoch.",
        ),
        Mistake(
            lambda n, b, k, e: round(n / (b * k)) * e,
            "it is rounded to the nearest whole number: a small last minibatch is lost, and it makes an update, too.",
            _ONE_EPOCH,
        ),
        Mistake(
            lambda n, b, k, e: math.ceil(n / b) * e,
            "the number of devices does not count: together they have a larger minibatch.",
            "All devices make one update together. Of how many examples is it?",
        ),
        Mistake(
            lambda n, b, k, e: math.ceil(n / (b * k)) * e * k,
            "the update of each device is counted for itself: all of them make the same update at the same time.",
            "All devices make one update together. Of how many examples is it?",
        ),
        Mistake(
            lambda n, b, k, e: math.ceil(n / (b * k)),
            "these are the updates of one epoch.",
            "What does the training do after its first epoch?",
        ),
        Mistake(
            lambda n, b, k, e: math.ceil(n * e / (b * k)),
            "minibatches go on from one epoch into the next: each epoch ends with a minibatch of its own.",
            _ONE_EPOCH,
        ),
        Mistake(
            lambda n, b, k, e: n / (b * k) * e,
            "the number is not rounded, and there is no part of an update.",
            _ONE_EPOCH,
        ),
        Mistake(
            lambda n, b, k, e: math.ceil(n * k / b) * e,
            "more devices make more updates here: the minibatch is divided by their number instead of multiplied.",
            "All devices make one update together. Of how many examples is it?",
        ),
        Mistake(
            lambda n, b, k, e: n * e // (b * k),
            "minibatches go on from one epoch into the next, and the last one is left out.",
            _ONE_EPOCH,
        ),
    ),
    think=_ONE_EPOCH,
)


def _lr_of_step(step: int, base_lr: float, k: int, warm_up_steps: int) -> float:
    if step >= warm_up_steps:
        return k * base_lr
    return base_lr + (k - 1) * base_lr * step / warm_up_steps


def _ramp(start: float, goal: float, part: float) -> float:
    return start + (goal - start) * min(1.0, part)


def _part(step: int, num_steps: int) -> float:
    return step / num_steps if num_steps else 1.0


_ENDS = "Write down three rates: of step 0, of the step in the middle of the warm-up, and of its end."

WARM_UP = Exercise(
    name="9.2",
    title="The linear scaling rule, reached by a warm-up",
    solution=_lr_of_step,
    cases=lambda: {
        "step 0 of 5": (0, 0.1, 8, 5),
        "step 3 of 5": (3, 0.1, 8, 5),
        "the end of the warm-up": (5, 0.1, 8, 5),
        "long after it": (50, 0.1, 8, 5),
        "step 1 of 10, 4 devices": (1, 0.2, 4, 10),
        "no warm-up": (0, 0.1, 2, 0),
        "one device": (3, 0.05, 1, 5),
    },
    mistakes=(
        Mistake(
            lambda step, lr, k, n: _ramp(0.0, k * lr, _part(step, n)),
            "the warm-up begins at zero: step 0 would change nothing, and base_lr is asked for.",
            _ENDS,
        ),
        Mistake(
            lambda step, lr, k, n: _ramp(0.0, k * lr, _part(step + 1, n)),
            "the warm-up begins with a part of the large rate, and base_lr is asked for.",
            _ENDS,
        ),
        Mistake(
            lambda step, lr, k, n: _ramp(lr, k * lr, _part(step + 1, n)),
            "it is one step early: step 0 has more than base_lr.",
            "By how much has the rate grown before the first update?",
        ),
        Mistake(
            lambda step, lr, k, n: k * lr,
            "there is no warm-up: every step has k times the rate.",
            _ENDS,
        ),
        Mistake(
            lambda step, lr, k, n: lr,
            "the rate is not multiplied by k.",
            "What does the linear scaling rule say for k devices?",
        ),
        Mistake(
            lambda step, lr, k, n: _ramp(lr, k**0.5 * lr, _part(step, n)),
            "this is the square root rule, and the linear one is asked for.",
            "What does the linear scaling rule say for k devices?",
        ),
        Mistake(
            lambda step, lr, k, n: lr + (k - 1) * lr * _part(step, n) if n else k * lr,
            "the rate grows beyond k times base_lr: the warm-up has an end.",
            "Which step is the last one in which the rate may grow?",
        ),
        Mistake(
            lambda step, lr, k, n: lr * k ** min(1.0, _part(step, n)),
            "each step multiplies the rate by the same factor, and equal amounts are asked for.",
            _ENDS,
        ),
        Mistake(
            lambda step, lr, k, n: _ramp(lr, k * lr, step / (n - 1) if n > 1 else 1.0),
            "the full rate comes one step too early.",
            "Which step is the first one with the full rate? How many steps lie before it?",
        ),
        Mistake(
            lambda step, lr, k, n: _ramp(lr, k * lr, _part(step, n)) if n else lr,
            "without a warm-up it never reaches the full rate.",
            "What shall the rate be with warm_up_steps=0?",
        ),
    ),
    think=_ENDS,
)


def _norms(gradients: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Return (the mean squared length of the gradients, the squared length of their mean)."""
    k = len(gradients)
    mean = [sum(column) / k for column in zip(*gradients, strict=True)]
    return sum(v * v for g in gradients for v in g) / k, sum(v * v for v in mean)


def _scale(small: float, big: float, b: float, all_b: float) -> float:
    signal = (all_b * big - b * small) / (all_b - b)
    return (small - big) / (1 / b - 1 / all_b) / signal


def _noise_scale_of(shard_gradients: Sequence[Sequence[float]], shard_size: int) -> float:
    return _scale(*_norms(shard_gradients), shard_size, len(shard_gradients) * shard_size)


def _of_sum(gradients: Sequence[Sequence[float]], b: int) -> float:
    small, big = _norms(gradients)
    return _scale(small, big * len(gradients) ** 2, b, len(gradients) * b)


def _uncorrected(gradients: Sequence[Sequence[float]], b: int) -> float:
    small, big = _norms(gradients)
    return (small - big) / (1 / b - 1 / (len(gradients) * b)) / big


def _biased(gradients: Sequence[Sequence[float]], b: int) -> float:
    """The noise from the variance of the k gradients divided by k, as `numpy.var` gives it, instead of k - 1."""
    small, big = _norms(gradients)
    return b * (small - big) / (big - (small - big) / len(gradients))


def _not_squared(gradients: Sequence[Sequence[float]], b: int) -> float:
    k = len(gradients)
    _, big = _norms(gradients)
    small = sum(sum(v * v for v in g) ** 0.5 for g in gradients) / k
    return _scale(small, big**0.5, b, k * b)


def _signal_or_noise(which: str) -> Callable[[Sequence[Sequence[float]], int], float]:
    def answer(gradients: Sequence[Sequence[float]], b: int) -> float:
        small, big = _norms(gradients)
        all_b = len(gradients) * b
        signal = (all_b * big - b * small) / (all_b - b)
        return signal if which == "signal" else (small - big) / (1 / b - 1 / all_b)

    return answer


def _cases() -> dict[str, tuple[Any, ...]]:
    return {
        "two devices": ([[1.0, 0.5], [0.6, 0.9]], 64),
        "four devices": ([[1.0, 0.2], [0.8, -0.1], [1.3, 0.3], [0.7, 0.1]], 32),
        "eight devices": ([[2.0 + 0.1 * i, 1.0 - 0.2 * (i % 3)] for i in range(8)], 8),
        "one example per device": ([[1.0, 2.0, 0.5], [1.5, 1.0, 0.0], [0.5, 1.5, 1.0]], 1),
    }


_TWO_EQUATIONS = (
    "Two lengths are needed: the mean squared length of the shards' gradients, and the squared length of their mean. "
    "Each is signal + noise / examples, with its own number of examples."
)

NOISE = Exercise(
    name="9.3",
    title="The gradient noise scale from the gradients of the devices",
    solution=_noise_scale_of,
    cases=_cases,
    mistakes=(
        Mistake(
            lambda g, b: 1 / _noise_scale_of(g, b),
            "it is signal over noise: the noise scale is noise over signal.",
            "Of a noisy minibatch more examples are needed. Which of the two must be large then?",
        ),
        Mistake(
            _uncorrected,
            "the squared length of the mean gradient is taken for the signal: it has noise of its own.",
            _TWO_EQUATIONS,
        ),
        Mistake(
            _biased,
            "the variance of the k gradients is divided by k: around their own mean that is too small.",
            "The mean is computed from the same k gradients. By what is the sum of squares divided then?",
        ),
        Mistake(
            lambda g, b: _noise_scale_of(g, 1),
            "it counts shards and not examples: shard_size is not used.",
            "What is the number of examples behind one gradient of a device?",
        ),
        Mistake(
            _of_sum,
            "the gradients are summed where their mean is needed.",
            "Each gradient is a mean over its shard. How does one get the mean over the whole minibatch from them?",
        ),
        Mistake(
            _not_squared,
            "lengths are used without their squares: variances add up, standard deviations do not.",
            _TWO_EQUATIONS,
        ),
        Mistake(_signal_or_noise("signal"), "it is the signal alone: noise over signal is asked for.", _TWO_EQUATIONS),
        Mistake(_signal_or_noise("noise"), "it is the noise alone: noise over signal is asked for.", _TWO_EQUATIONS),
    ),
    think=_TWO_EQUATIONS,
)
