"""Each wrong answer of chapter 10 draws its hint; right ones of any form are right."""

import torch
from torch import nn

from d2lite.exercises.chapter_10 import EXERCISES
from tests.exercises.answers import Answers, AnswerTests

answers = Answers()
right, wrong = answers.right, answers.wrong


def sums(means, variances, counts):
    total = sum(n * m for m, n in zip(means, counts, strict=True))
    squares = sum(n * (v + m * m) for m, v, n in zip(means, variances, counts, strict=True))
    return sum(counts), total, squares


@right("10.1")
def from_sums(means, variances, counts):
    n, total, squares = sums(means, variances, counts)
    return total / n, squares / n - (total / n) ** 2


@right("10.1")
def in_tensors(means, variances, counts):
    m, v, n = (torch.tensor(x, dtype=torch.float64) for x in (means, variances, counts))
    mean = (m * n).sum() / n.sum()
    return [mean, ((v + (m - mean) ** 2) * n).sum() / n.sum()]


@right("10.1")
def merged_pair_by_pair(means, variances, counts):
    n, mean, rest = 0, 0.0, 0.0  # Chan et al.: two sets at a time
    for m, v, k in zip(means, variances, counts, strict=True):
        if k:
            distance = m - mean
            rest += v * k + distance**2 * n * k / (n + k)
            mean, n = mean + distance * k / (n + k), n + k
    return mean, rest / n


@wrong("10.1", "both are the mean over the replicas")
def means_of_both(means, variances, counts):
    return sum(means) / len(means), sum(variances) / len(variances)


@wrong("10.1", "the variance is the mean of the variances: how far")
def weighted_means_of_both(means, variances, counts):
    n, total, _ = sums(means, variances, counts)
    return total / n, sum(v * k for v, k in zip(variances, counts, strict=True)) / n


@wrong("10.1", "the variance is the mean of the variances, and a small shard")
def plain_mean_of_variances(means, variances, counts):
    n, total, _ = sums(means, variances, counts)
    return total / n, sum(variances) / len(variances)


@wrong("10.1", "it counts every shard alike")
def without_counts(means, variances, counts):
    return from_sums(means, variances, [1.0 for _ in counts])


@wrong("10.1", "the mean counts every shard alike")
def plain_mean(means, variances, counts):
    return sum(means) / len(means), from_sums(means, variances, counts)[1]


@wrong("10.1", "the variance counts every shard alike")
def plain_variance(means, variances, counts):
    return from_sums(means, variances, counts)[0], without_counts(means, variances, counts)[1]


@wrong("10.1", "the variance is the unbiased one")
def unbiased(means, variances, counts):
    mean, variance = from_sums(means, variances, counts)
    return mean, variance * sum(counts) / (sum(counts) - 1)


@wrong("10.1", "the second number is the mean of the squares")
def mean_of_squares(means, variances, counts):
    n, total, squares = sums(means, variances, counts)
    return total / n, squares / n


@wrong("10.1", "a variance is not a mean of squares")
def variances_as_squares(means, variances, counts):
    n, total, _ = sums(means, variances, counts)
    return total / n, sum(v * k for v, k in zip(variances, counts, strict=True)) / n - (total / n) ** 2


@wrong("10.1", "the second number is the standard deviation")
def deviation_of_all(means, variances, counts):
    mean, variance = from_sums(means, variances, counts)
    return mean, variance**0.5


@wrong("10.1", "it raised ZeroDivisionError")
def divides_by_each_count(means, variances, counts):
    return sum(m / n for m, n in zip(means, counts, strict=True)), 0.0


def totals(grads, X_hats):
    grad, x_hat = torch.cat(list(grads)), torch.cat(list(X_hats))
    return len(grad), grad.sum(), (grad * x_hat).sum()


@right("10.2")
def by_hand(grads, X_hats, deviation):
    n, sum_g, sum_gx = totals(grads, X_hats)
    return [(g - sum_g / n - x * sum_gx / n) / deviation for g, x in zip(grads, X_hats, strict=True)]


@right("10.2")
def by_autograd(grads, X_hats, deviation):
    X = (torch.cat(X_hats) * deviation).requires_grad_()
    x_hat = (X - X.mean()) / X.std(correction=0)
    x_hat.backward(torch.cat(grads))
    return X.grad.split([len(g) for g in grads])


@wrong("10.2", "the mean and the variance are taken as constants")
def detached(grads, X_hats, deviation):
    return [g / deviation for g in grads]


@wrong("10.2", "what goes through the variance is missing")
def mean_only(grads, X_hats, deviation):
    n, sum_g, _ = totals(grads, X_hats)
    return [(g - sum_g / n) / deviation for g in grads]


@wrong("10.2", "what goes through the mean is missing")
def variance_only(grads, X_hats, deviation):
    n, _, sum_gx = totals(grads, X_hats)
    return [(g - x * sum_gx / n) / deviation for g, x in zip(grads, X_hats, strict=True)]


@wrong("10.2", "each shard uses the sums of its own examples")
def own_sums(grads, X_hats, deviation):
    return [(g - g.mean() - x * (g * x).mean()) / deviation for g, x in zip(grads, X_hats, strict=True)]


@wrong("10.2", "it takes the mean of the shards' means")
def means_of_means(grads, X_hats, deviation):
    mean_g = torch.stack([g.mean() for g in grads]).mean()
    mean_gx = torch.stack([(g * x).mean() for g, x in zip(grads, X_hats, strict=True)]).mean()
    return [(g - mean_g - x * mean_gx) / deviation for g, x in zip(grads, X_hats, strict=True)]


@wrong("10.2", "divided by the number of examples of one shard")
def own_counts(grads, X_hats, deviation):
    _, sum_g, sum_gx = totals(grads, X_hats)
    return [(g - sum_g / len(g) - x * sum_gx / len(g)) / deviation for g, x in zip(grads, X_hats, strict=True)]


@wrong("10.2", "the sums are divided by the number of replicas")
def by_replicas(grads, X_hats, deviation):
    _, sum_g, sum_gx = totals(grads, X_hats)
    k = len(grads)
    return [(g - sum_g / k - x * sum_gx / k) / deviation for g, x in zip(grads, X_hats, strict=True)]


@wrong("10.2", "the sums are not divided by the number of examples")
def not_divided(grads, X_hats, deviation):
    _, sum_g, sum_gx = totals(grads, X_hats)
    return [(g - sum_g - x * sum_gx) / deviation for g, x in zip(grads, X_hats, strict=True)]


@wrong("10.2", "it is not divided by the standard deviation")
def without_deviation(grads, X_hats, deviation):
    return by_hand(grads, X_hats, 1.0)


@wrong("10.2", "it is multiplied by the standard deviation")
def times_deviation(grads, X_hats, deviation):
    return by_hand(grads, X_hats, 1 / deviation)


@wrong("10.2", "it is divided by the variance")
def by_the_variance(grads, X_hats, deviation):
    return by_hand(grads, X_hats, deviation**2)


@wrong("10.2", "expected")
def one_tensor(grads, X_hats, deviation):
    return torch.cat(by_hand(grads, X_hats, deviation))


@right("10.3")
def as_lerp(running_mean, running_var, mean, var, n, momentum):
    unbiased = var * n / (n - 1)
    return running_mean + momentum * (mean - running_mean), running_var + momentum * (unbiased - running_var)


@right("10.3")
def by_torch(running_mean, running_var, mean, var, n, momentum):
    half = torch.linspace(-1, 1, n, dtype=torch.float64)
    half = (half - half.mean()) / half.std(correction=0)
    layer = nn.BatchNorm1d(1, momentum=momentum).double()
    layer.running_mean.fill_(running_mean)
    layer.running_var.fill_(running_var)
    layer((mean + var**0.5 * half)[:, None])
    return layer.running_mean, layer.running_var


@wrong("10.3", "the biased variance goes into the running one")
def biased(running_mean, running_var, mean, var, n, momentum):
    return as_lerp(running_mean, running_var, mean, var, 10**12, momentum)


@wrong("10.3", "the factor of the variance is the wrong way round")
def wrong_way_round(running_mean, running_var, mean, var, n, momentum):
    return as_lerp(running_mean, running_var, mean, var * ((n - 1) / n) ** 2, n, momentum)


@wrong("10.3", "the mean is multiplied by n / (n - 1) as well")
def corrected_mean(running_mean, running_var, mean, var, n, momentum):
    return as_lerp(running_mean, running_var, mean * n / (n - 1), var, n, momentum)


@wrong("10.3", "momentum is the weight of the new statistics here, not of the old ones.")
def exchanged(running_mean, running_var, mean, var, n, momentum):
    return as_lerp(running_mean, running_var, mean, var, n, 1 - momentum)


@wrong("10.3", "not of the old ones; and the variance that is kept")
def exchanged_and_biased(running_mean, running_var, mean, var, n, momentum):
    return biased(running_mean, running_var, mean, var, n, 1 - momentum)


@wrong("10.3", "the old statistics keep their whole weight")
def adds(running_mean, running_var, mean, var, n, momentum):
    return running_mean + momentum * mean, running_var + momentum * var * n / (n - 1)


@wrong("10.3", "it returns the statistics of the last minibatch")
def last_one(running_mean, running_var, mean, var, n, momentum):
    return mean, var * n / (n - 1)


class TestAnswers(AnswerTests):
    exercises, answers = EXERCISES, answers
