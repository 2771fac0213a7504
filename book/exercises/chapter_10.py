"""The exercises of chapter 10: statistics of the whole minibatch, the gradient through them, the running ones."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from d2lite.exercises import Exercise, Mistake, Unfit

Numbers = Sequence[float]


def _observe_pair(answer: Callable[..., Any], *case: Any) -> Any:
    """Return what an answer gives, as a list, with a number in place of each array or tensor that holds one."""
    result = answer(*case)
    if not isinstance(result, (list, tuple, np.ndarray, torch.Tensor)):
        return result
    return [_number(x) for x in result]


def _number(x: Any) -> Any:
    has_one = (isinstance(x, torch.Tensor) and x.numel() == 1) or (isinstance(x, np.ndarray) and x.size == 1)
    return x.item() if has_one else x


def _swapped(answer: Callable[..., tuple[float, float]]) -> Callable[..., tuple[float, float]]:
    return lambda *case: answer(*case)[::-1]  # type: ignore[return-value]


def _weighted(values: Numbers, counts: Sequence[int]) -> float:
    return sum(v * n for v, n in zip(values, counts, strict=True)) / sum(counts)


def _whole(means: Numbers, variances: Numbers, counts: Sequence[int]) -> tuple[float, float]:
    mean = _weighted(means, counts)
    inside = _weighted(variances, counts)
    between = _weighted([(m - mean) ** 2 for m in means], counts)
    return mean, inside + between


def _plain(values: Numbers) -> float:
    return sum(values) / len(values)


def _unweighted(means: Numbers, variances: Numbers, counts: Sequence[int]) -> tuple[float, float]:
    return _whole(means, variances, [1] * len(means))


def _squares_without_means(means: Numbers, variances: Numbers, counts: Sequence[int]) -> tuple[float, float]:
    mean = _weighted(means, counts)
    return mean, _weighted(variances, counts) - mean**2


def _squares_not_reduced(means: Numbers, variances: Numbers, counts: Sequence[int]) -> tuple[float, float]:
    squares = [v + m**2 for m, v in zip(means, variances, strict=True)]
    return _weighted(means, counts), _weighted(squares, counts)


def _unbiased(means: Numbers, variances: Numbers, counts: Sequence[int]) -> tuple[float, float]:
    mean, variance = _whole(means, variances, counts)
    n = sum(counts)
    return mean, variance * n / (n - 1)


def _taken_as_unbiased(means: Numbers, variances: Numbers, counts: Sequence[int]) -> tuple[float, float]:
    mean, n = _weighted(means, counts), sum(counts)
    inside = sum(v * max(k - 1, 0) for v, k in zip(variances, counts, strict=True))
    between = sum(k * (m - mean) ** 2 for m, k in zip(means, counts, strict=True))
    return mean, (inside + between) / (n - 1)


def _between(means: Numbers, counts: Sequence[int]) -> float:
    mean = _weighted(means, counts)
    return _weighted([(m - mean) ** 2 for m in means], counts)


def _about_the_plain_mean(means: Numbers, variances: Numbers, counts: Sequence[int]) -> tuple[float, float]:
    mean = _plain(means)
    return mean, _weighted(variances, counts) + _weighted([(m - mean) ** 2 for m in means], counts)


def _distances_alike(means: Numbers, variances: Numbers, counts: Sequence[int]) -> tuple[float, float]:
    mean = _weighted(means, counts)
    return mean, _weighted(variances, counts) + _plain([(m - mean) ** 2 for m in means])


def _not_squared(means: Numbers, variances: Numbers, counts: Sequence[int]) -> tuple[float, float]:
    mean = _weighted(means, counts)
    return mean, _weighted(variances, counts) + _weighted([abs(m - mean) for m in means], counts)


_FOUR = (
    "Take 0 and 2 on one replica, 10 and 30 on the other. Compute the variance of the four by hand, then with your "
    "function."
)
_COUNTS = "A replica with one example and one with a hundred: how much does each example count in your result?"
WHOLE = Exercise(
    name="10.1",
    title="The mean and the variance of the whole minibatch from those of its shards",
    solution=_whole,
    cases=lambda: {
        "shards of 2 and 2 examples": ([1.0, 20.0], [1.0, 100.0], [2, 2]),
        "shards of 13 and 12": ([0.5, -0.25], [2.0, 1.5], [13, 12]),
        "one example on replica 1": ([4.0, -6.0, 1.0], [0.5, 0.0, 3.0], [30, 1, 20]),
        "no example on replica 2": ([1.5, 2.5, 0.0], [1.0, 4.0, 0.0], [7, 9, 0]),
        "all examples of a shard are equal": ([3.0, 5.0, 4.0, 9.0], [0.0, 0.0, 0.0, 0.0], [4, 4, 3, 3]),
        "one replica": ([2.0], [5.0], [64]),
    },
    mistakes=(
        Mistake(
            lambda means, variances, counts: (_plain(means), _plain(variances)),
            "both are the mean over the replicas: the shards' means differ, which makes the whole variance larger, and "
            "a small shard counts as much as a large one.",
            _FOUR,
        ),
        Mistake(
            lambda means, variances, counts: (_weighted(means, counts), _plain(variances)),
            "the variance is the mean of the variances, and a small shard counts as much as a large one.",
            _FOUR,
        ),
        Mistake(
            lambda means, variances, counts: (_weighted(means, counts), _weighted(variances, counts)),
            "the variance is the mean of the variances: how far the shards' means are from each other is missing.",
            _FOUR,
        ),
        Mistake(
            _unweighted,
            "it counts every shard alike, and shards have different sizes.",
            _COUNTS,
        ),
        Mistake(
            lambda means, variances, counts: (_plain(means), _whole(means, variances, counts)[1]),
            "the mean counts every shard alike, and shards have different sizes.",
            _COUNTS,
        ),
        Mistake(
            lambda means, variances, counts: (_weighted(means, counts), _unweighted(means, variances, counts)[1]),
            "the variance counts every shard alike, and shards have different sizes.",
            _COUNTS,
        ),
        Mistake(
            _unbiased,
            "the variance is the unbiased one, divided by n - 1; normalising takes the one divided by n.",
            "Which of the two does BatchNorm divide by, and which does it keep for evaluation?",
        ),
        Mistake(
            _taken_as_unbiased,
            "the variances are taken as unbiased ones, divided by n - 1. All are divided by n here, those that you get "
            "and the one that you return.",
            "The values 0 and 2 have the biased variance 1. Which number of examples makes a sum of squares out of it?",
        ),
        Mistake(
            _swapped(_whole),
            "the variance comes first, and the mean is asked for first.",
            "Compare the order of your return with the comment in the stub.",
        ),
        Mistake(
            _squares_not_reduced,
            "the second number is the mean of the squares: the square of the mean is still to be subtracted.",
            "Write the variance as the mean of the squares minus another number.",
        ),
        Mistake(
            _squares_without_means,
            "a variance is not a mean of squares: the square of the shard's own mean is missing in each.",
            "What is the mean of the squares of 0 and 2? Which two numbers of the shard give it?",
        ),
        Mistake(
            lambda means, variances, counts: (_weighted(means, counts), _between(means, counts)),
            "the variance is only how far the shards' means are apart: how far the values are from their own shard's "
            "mean is missing.",
            "Two shards with the same mean: is the variance of all their values 0?",
        ),
        Mistake(
            _distances_alike,
            "the distances of the shards' means count alike, and shards have different sizes.",
            _COUNTS,
        ),
        Mistake(
            lambda means, variances, counts: (
                _weighted(means, counts),
                _plain(variances) + _between(means, counts),
            ),
            "the variances of the shards count alike, and shards have different sizes.",
            _COUNTS,
        ),
        Mistake(
            _about_the_plain_mean,
            "the mean counts every shard alike, so the distances from it are wrong as well.",
            _COUNTS,
        ),
        Mistake(
            _not_squared,
            "the distances between the means are not squared.",
            "A variance has the unit of x squared. Which unit has each of your terms?",
        ),
        Mistake(
            lambda means, variances, counts: (
                _weighted(means, counts),
                sum(counts) * _whole(means, variances, counts)[1],
            ),
            "the second number is a sum over all values, and a variance is a mean.",
            "A minibatch twice, with the same values: how does the variance change?",
        ),
        Mistake(
            lambda means, variances, counts: (_weighted(means, counts), _whole(means, variances, counts)[1] ** 0.5),
            "the second number is the standard deviation, and the variance is asked for.",
            "A variance has the unit of x squared.",
        ),
    ),
    think=_FOUR,
    observe=_observe_pair,
)

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


def _with_means(combine: Callable[..., torch.Tensor]) -> Callable[..., list[torch.Tensor]]:
    """Return an answer: combine(g, x, mean of g, mean of g * x, deviation) for each shard."""

    def answer(grads: Shards, X_hats: Shards, deviation: float) -> list[torch.Tensor]:
        n = sum(len(g) for g in grads)
        mean_g = sum(float(g.sum()) for g in grads) / n
        mean_gx = sum(float((g * x).sum()) for g, x in zip(grads, X_hats, strict=True)) / n
        return [combine(g, x, mean_g, mean_gx, deviation) for g, x in zip(grads, X_hats, strict=True)]

    return answer


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


def _observe_gradient(answer: Callable[..., Any], grads: Shards, X_hats: Shards, deviation: float) -> Any:
    """Return the gradients of the shards as tensors; refuse what is not one tensor per shard, and changed arguments."""
    before = [tensor.clone() for tensor in (*grads, *X_hats)]
    found = answer(grads, X_hats, deviation)
    if any(not torch.equal(a, b) for a, b in zip(before, (*grads, *X_hats), strict=True)):
        raise Unfit(
            "it changes the gradients or the normalised values that it gets.",
            "They may be needed again. Which operation writes in place?",
        )
    if isinstance(found, (torch.Tensor, np.ndarray)) and found.ndim == 1:
        raise Unfit(
            "it returns one tensor for all examples, and a list with one tensor for each shard is asked for.",
            "Each rank needs the gradient of its own shard. How long is it?",
        )
    if found is None:
        return None
    return [torch.as_tensor(shard) for shard in found]


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
        Mistake(
            _with_means(lambda g, x, mean_g, mean_gx, d: (g + mean_g + x * mean_gx) / d),
            "both terms that come from the statistics have the wrong sign.",
            "All gradients are equal. If all values move together the normalised ones do not move. What must come out?",
        ),
        Mistake(
            _with_means(lambda g, x, mean_g, mean_gx, d: (g - mean_g + x * mean_gx) / d),
            "the term that comes from the variance has the wrong sign.",
            "Take gradients that equal the normalised values. If all values are stretched the normalised ones do not "
            "move. What must come out?",
        ),
        Mistake(
            _with_means(lambda g, x, mean_g, mean_gx, d: (g - mean_g - mean_gx) / d),
            "the term that comes from the variance is the same for all values of the minibatch.",
            "One value is at the mean, one far from it. Which of them changes the variance more if it moves a little?",
        ),
        Mistake(
            _with_means(lambda g, x, mean_g, mean_gx, d: (g - mean_g - x * mean_g) / d),
            "both terms use the mean of the gradients, and each has a sum of its own.",
            _PATHS,
        ),
        Mistake(
            _with_means(lambda g, x, mean_g, mean_gx, d: -(mean_g + x * mean_gx) / d),
            "only what goes through the statistics is there: a value also changes its own normalised value.",
            _PATHS,
        ),
        Mistake(
            _with_means(lambda g, x, mean_g, mean_gx, d: g - mean_g - x * mean_gx / d),
            "only a part of the gradient is divided by the standard deviation.",
            "Values twice as far apart: which of the terms become half as large?",
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


def _running(
    of_mean: Callable[[float, int], float] = lambda mean, n: mean,
    of_var: Callable[[float, int], float] = lambda var, n: var * n / (n - 1),
    keep: Callable[[float], float] = lambda momentum: 1 - momentum,
    take: Callable[[float], float] = lambda momentum: momentum,
) -> Callable[..., tuple[float, float]]:
    """Return an answer: the running statistics after a step, with these changes."""

    def answer(
        running_mean: float, running_var: float, mean: float, var: float, n: int, momentum: float
    ) -> tuple[float, float]:
        new_mean = keep(momentum) * running_mean + take(momentum) * of_mean(mean, n)
        return new_mean, keep(momentum) * running_var + take(momentum) * of_var(var, n)

    return answer


_right_running = _running()
_BIASED = "The variance of 2 values around their own mean is too small on average. By which factor is it corrected?"
_MOMENTUM = "With momentum 0.1, how much of the old value is left after one step of torch.nn.BatchNorm1d?"
RUNNING = Exercise(
    name="10.3",
    title="The running statistics after one step",
    solution=lambda running_mean, running_var, mean, var, n, momentum: _right_running(
        running_mean, running_var, mean, var, n, momentum
    ),
    cases=lambda: {
        "the first step": (0.0, 1.0, 5.0, 4.0, 64, 0.1),
        "two values": (1.0, 2.0, -3.0, 0.5, 2, 0.1),
        "momentum 0.5": (2.0, 3.0, 4.0, 8.0, 10, 0.5),
        "momentum 1: only the last minibatch": (2.0, 3.0, 4.0, 8.0, 5, 1.0),
        "momentum 0: frozen": (2.0, 3.0, 4.0, 8.0, 5, 0.0),
        "ten values": (-1.0, 7.0, 0.25, 0.1, 10, 0.01),
    },
    mistakes=(
        Mistake(
            _running(of_var=lambda var, n: var),
            "the biased variance goes into the running one, and BatchNorm keeps the unbiased one.",
            _BIASED,
        ),
        Mistake(
            _running(of_var=lambda var, n: var * (n - 1) / n),
            "the factor of the variance is the wrong way round.",
            _BIASED,
        ),
        Mistake(
            _running(of_mean=lambda mean, n: mean * n / (n - 1)),
            "the mean is multiplied by n / (n - 1) as well, and it needs no correction.",
            "Is the mean of a few values too small on average?",
        ),
        Mistake(
            _running(keep=lambda m: m, take=lambda m: 1 - m),
            "momentum is the weight of the new statistics here, not of the old ones.",
            _MOMENTUM,
        ),
        Mistake(
            _running(keep=lambda m: m, take=lambda m: 1 - m, of_var=lambda var, n: var),
            "momentum is the weight of the new statistics here, not of the old ones; and the variance that is kept is "
            "the unbiased one.",
            _MOMENTUM,
        ),
        Mistake(
            _running(keep=lambda m: 1.0),
            "the old statistics keep their whole weight, so that the running ones grow from step to step.",
            "If every minibatch has the mean 5, where must the running mean end?",
        ),
        Mistake(
            _swapped(_right_running),
            "the running variance comes first, and the running mean is asked for first.",
            "Compare the order of your return with the comment in the stub.",
        ),
        Mistake(
            lambda running_mean, running_var, *now: (_right_running(running_mean, running_var, *now)[0], running_var),
            "the running variance is the one that it gets: it does not move.",
            _MOMENTUM,
        ),
        Mistake(
            lambda running_mean, running_var, *now: (running_mean, _right_running(running_mean, running_var, *now)[1]),
            "the running mean is the one that it gets: it does not move.",
            _MOMENTUM,
        ),
        Mistake(
            lambda running_mean, running_var, mean, var, n, momentum: (
                (1 - momentum) * running_mean + momentum * mean,
                ((1 - momentum) * running_var + momentum * var) * n / (n - 1),
            ),
            "the correction multiplies the old running variance, too, and that has been corrected before.",
            "A hundred minibatches of 2 values with the same variance: where must the running variance end?",
        ),
        Mistake(
            _running(keep=lambda m: 1 + m, take=lambda m: -m),
            "the running statistics move away from those of the minibatch.",
            "The running mean is 0 and the mean of the minibatch 5. Between which two numbers must the new one be?",
        ),
        Mistake(
            lambda running_mean, running_var, mean, var, n, momentum: (
                (1 - momentum) * running_mean + momentum * mean,
                momentum * running_var + (1 - momentum) * var * n / (n - 1),
            ),
            "the mean is right. In the variance momentum is the weight of the old statistics.",
            _MOMENTUM,
        ),
        Mistake(
            lambda *case: (_right_running(*case)[0], _right_running(*case)[1] ** 0.5),
            "the second number is a standard deviation, and the variance is asked for.",
            "Which of the two does torch.nn.BatchNorm1d keep? Look at the name of its buffer.",
        ),
        Mistake(
            _running(keep=lambda m: 0.0, take=lambda m: 1.0),
            "it returns the statistics of the last minibatch, and those before are forgotten.",
            _MOMENTUM,
        ),
    ),
    think="Compare with the buffers of torch.nn.BatchNorm1d(1) before and after one step in training mode.",
    observe=_observe_pair,
)
