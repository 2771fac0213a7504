"""Exercise 2.2: the test accuracy on several devices, each with its shard; evaluation on several GPUs."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from d2lite.exercises.exercise import Exercise, Mistake
from d2lite.models import lenet, lenet_params
from d2lite.parallel import parallel_apply
from d2lite.training import replicate, split_batch

__all__ = ["ACCURACY"]

Tensors = list[torch.Tensor]


def _count_right(X: torch.Tensor, y: torch.Tensor, params: Sequence[torch.Tensor]) -> int:
    with torch.no_grad():
        return int((lenet(X, params).argmax(1) == y).sum())


def _counts(X: Any, y: Any, device_params: Any, devices: Any) -> tuple[list[int], list[int]]:
    """Return the number of right answers and of examples of each shard."""
    X_shards, y_shards = split_batch(X, y, devices)
    counts = parallel_apply(_count_right, devices, X_shards, y_shards, device_params)
    return counts, [len(shard) for shard in y_shards]


def _accuracy_on_devices(X: Any, y: Any, device_params: Any, devices: Any) -> float:
    return sum(_counts(X, y, device_params, devices)[0]) / len(y)


def _mean_of_fractions(X: Any, y: Any, device_params: Any, devices: Any) -> float:
    return sum(c / n for c, n in zip(*_counts(X, y, device_params, devices), strict=True)) / len(devices)


def _sum_of_fractions(X: Any, y: Any, device_params: Any, devices: Any) -> float:
    return sum(c / n for c, n in zip(*_counts(X, y, device_params, devices), strict=True))


def _all_see_all(X: Any, y: Any, device_params: Any, devices: Any) -> float:
    return sum(_count_right(X, y, params) for params in device_params) / (len(devices) * len(y))


def _observe_accuracy(answer: Callable[..., Any], n: int, k: int) -> Any:
    """Call an answer with replicas that differ, so that it matters which of them has which examples.

    The first examples are mostly right and the last ones mostly wrong: shards differ in their accuracies.
    """
    X, y, device_params = _different_replicas(n, k)
    return answer(X.clone(), y.clone(), list(device_params), [torch.device("cpu")] * k)


@functools.cache
def _different_replicas(n: int, k: int) -> tuple[torch.Tensor, torch.Tensor, list[Tensors]]:
    generator = torch.Generator().manual_seed(100 * n + k)
    X = torch.rand(n, 1, 28, 28, generator=generator)
    device_params = [replicate(lenet_params(seed), [torch.device("cpu")])[0] for seed in range(k)]
    with torch.no_grad():
        shards = zip(X.tensor_split(k), device_params, strict=True)
        predicted = torch.cat([lenet(shard, params).argmax(1) for shard, params in shards])
    is_right = torch.rand(n, generator=generator) < torch.linspace(1, 0.2, n)
    return X, torch.where(is_right, predicted, (predicted + 1) % 10), device_params


ACCURACY = Exercise(
    name="2.2",
    title="Test accuracy on several devices",
    solution=_accuracy_on_devices,
    cases=lambda: {
        f"{n} examples on {k} device{'s' if k > 1 else ''}": (n, k) for n, k in ((13, 3), (7, 3), (10, 4), (4, 1))
    },
    observe=_observe_accuracy,
    mistakes=(
        Mistake(
            _mean_of_fractions,
            "the accuracies of the shards are averaged, and the shards differ in size.",
            "What can be added over shards of any size, a number of right answers or a fraction?",
        ),
        Mistake(
            _sum_of_fractions,
            "the accuracies of the shards are added: the result can be above 1.",
            "What can be added over shards of any size, a number of right answers or a fraction?",
        ),
        Mistake(
            lambda X, y, device_params, devices: sum(_counts(X, y, device_params, devices)[0]),
            "it is the number of right answers, and the fraction is asked for.",
            "By which number is a count divided to give an accuracy?",
        ),
        Mistake(
            lambda X, y, device_params, devices: sum(_counts(X, y, device_params, devices)[0]) / len(devices),
            "the number of right answers is divided by the number of devices.",
            "An accuracy is a fraction of examples. How many examples are there in all?",
        ),
        Mistake(
            lambda X, y, device_params, devices: _counts(X, y, device_params, devices)[0][0] / len(y),
            "only the right answers of the first shard are counted.",
            "parallel_apply returns one result for each replica.",
        ),
        Mistake(
            lambda X, y, device_params, devices: _mean_of_fractions(X, y, device_params[:1], devices[:1]),
            "the first replica computes everything, the others nothing: its own shard alone is its part.",
            "split_batch gives each device its examples. Which replica reads which shard?",
        ),
        Mistake(
            _all_see_all,
            "every replica computes the complete minibatch: that takes as long as one device.",
            "split_batch gives each device its examples. Which replica reads which shard?",
        ),
        Mistake(
            lambda X, y, device_params, devices: _accuracy_on_devices(X, y, device_params[::-1], devices),
            "the shards and the replicas do not belong together: shard i is for replica i.",
            "Look at the order in which parameters and shards are passed on.",
        ),
    ),
    think="Let each replica return a number of right answers for its shard, not a fraction.",
    limit_s=20.0,
)
