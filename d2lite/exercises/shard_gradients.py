"""Exercise 10.2: the backward pass of a normalisation by the statistics of all shards."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from d2lite.exercises.exercise import Exercise, Mistake

__all__ = ["GRADIENT"]

Shards = Sequence[torch.Tensor]  # one tensor [b_i] per replica, of one channel


def _gradient(through_mean: bool = True, through_var: bool = True) -> Callable[..., list[torch.Tensor]]:
    """Return an answer: the gradient of the shards, through the statistics of all of them or without some of them."""

    def answer(grads: Shards, X_hats: Shards, deviation: float) -> list[torch.Tensor]:
        n = sum(len(g) for g in grads)
        mean_g = sum(float(g.sum()) for g in grads) / n * through_mean
        mean_gx = sum(float((g * x).sum()) for g, x in zip(grads, X_hats, strict=True)) / n * through_var
        return [(g - mean_g - x * mean_gx) / deviation for g, x in zip(grads, X_hats, strict=True)]

    return answer


_right_gradient = _gradient()


def _own_shard(grads: Shards, X_hats: Shards, deviation: float) -> list[torch.Tensor]:
    return [_right_gradient([g], [x], deviation)[0] for g, x in zip(grads, X_hats, strict=True)]


def _divided_by(divisor: Callable[[Shards], float]) -> Callable[..., list[torch.Tensor]]:
    def answer(grads: Shards, X_hats: Shards, deviation: float) -> list[torch.Tensor]:
        sum_g = sum(float(g.sum()) for g in grads) / divisor(grads)
        sum_gx = sum(float((g * x).sum()) for g, x in zip(grads, X_hats, strict=True)) / divisor(grads)
        return [(g - sum_g - x * sum_gx) / deviation for g, x in zip(grads, X_hats, strict=True)]

    return answer


def _by_own_count(grads: Shards, X_hats: Shards, deviation: float) -> list[torch.Tensor]:
    sum_g = sum(float(g.sum()) for g in grads)
    sum_gx = sum(float((g * x).sum()) for g, x in zip(grads, X_hats, strict=True))
    return [(g - sum_g / len(g) - x * sum_gx / len(g)) / deviation for g, x in zip(grads, X_hats, strict=True)]


def _mean_of_means(grads: Shards, X_hats: Shards, deviation: float) -> list[torch.Tensor]:
    mean_g = sum(float(g.mean()) for g in grads) / len(grads)
    mean_gx = sum(float((g * x).mean()) for g, x in zip(grads, X_hats, strict=True)) / len(grads)
    return [(g - mean_g - x * mean_gx) / deviation for g, x in zip(grads, X_hats, strict=True)]


def _scaled(scale: Callable[[float], float]) -> Callable[..., list[torch.Tensor]]:
    def answer(grads: Shards, X_hats: Shards, deviation: float) -> list[torch.Tensor]:
        return [g * scale(deviation) for g in _right_gradient(grads, X_hats, 1.0)]

    return answer


def _case(*sizes: int, seed: int = 0) -> tuple[list[torch.Tensor], list[torch.Tensor], float]:
    """Return (gradients, normalised values, standard deviation) of shards with these sizes."""
    generator = torch.Generator().manual_seed(seed)
    X = 3 * torch.randn(sum(sizes), generator=generator, dtype=torch.float64) + 1
    deviation = X.std(correction=0).item()
    grads = torch.randn(sum(sizes), generator=generator, dtype=torch.float64) + 0.5
    return list(grads.split(sizes)), list(((X - X.mean()) / deviation).split(sizes)), deviation


def _observe_gradient(answer: Callable[..., Any], *case: Any) -> list[torch.Tensor]:
    return [torch.as_tensor(shard) for shard in answer(*case)]


_PATHS = (
    "Move one value of one shard a little. Which numbers change: its own normalised value, the mean, the variance, and "
    "therefore the normalised values of whom?"
)
GRADIENT = Exercise(
    name="10.2",
    title="The gradient through the statistics of all shards",
    solution=lambda grads, X_hats, deviation: _right_gradient(grads, X_hats, deviation),
    cases=lambda: {
        "shards of 4 and 4 examples": _case(4, 4),
        "shards of 3 and 2": _case(3, 2, seed=1),
        "shards of 5, 1 and 2": _case(5, 1, 2, seed=2),
        "one shard": _case(6, seed=3),
        "four shards of 2": _case(2, 2, 2, 2, seed=4),
    },
    mistakes=(
        Mistake(
            _gradient(False, False),
            "the mean and the variance are taken as constants, and they depend on every value.",
            _PATHS,
        ),
        Mistake(
            _gradient(through_var=False),
            "what goes through the variance is missing.",
            "The variance depends on every value as well. Which sum comes from there?",
        ),
        Mistake(
            _gradient(through_mean=False),
            "what goes through the mean is missing.",
            "The mean depends on every value as well. Which sum comes from there?",
        ),
        Mistake(
            _own_shard,
            "each shard uses the sums of its own examples, and its values have changed the statistics of all.",
            _PATHS,
        ),
        Mistake(
            _mean_of_means,
            "it takes the mean of the shards' means: a shard with one example counts as much as one with five.",
            "Add up over all examples first, and divide once.",
        ),
        Mistake(
            _by_own_count,
            "the sums over all shards are divided by the number of examples of one shard.",
            "By which number was divided when the mean was computed?",
        ),
        Mistake(
            _divided_by(len),
            "the sums are divided by the number of replicas.",
            "By which number was divided when the mean was computed?",
        ),
        Mistake(
            _divided_by(lambda grads: 1),
            "the sums are not divided by the number of examples.",
            "How much does the mean move if one of n values moves by one?",
        ),
        Mistake(_scaled(lambda d: 1.0), "it is not divided by the standard deviation.", _PATHS),
        Mistake(
            _scaled(lambda d: d),
            "it is multiplied by the standard deviation, and normalising has divided by it.",
            "Values twice as far apart: do the normalised ones move more or less if one value moves by one?",
        ),
        Mistake(
            _scaled(lambda d: 1 / d**2),
            "it is divided by the variance, and normalising divides by the standard deviation.",
            "By what is a value divided in the forward pass?",
        ),
    ),
    think=_PATHS,
    observe=_observe_gradient,
)
