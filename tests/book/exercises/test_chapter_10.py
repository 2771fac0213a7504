"""Answers to the exercises of chapter 10: right ones of other forms, and wrong ones that are not among its mistakes."""

import numpy as np
import torch
from torch import nn

from tests.book.exercises.scoring import Answers, RightAnswers, WrongAnswers

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


@right("10.1")
def in_one_array(means, variances, counts):
    m, v, n = (np.array(x, dtype=float) for x in (means, variances, counts))
    mean = np.average(m, weights=n)
    return np.array([mean, np.average(v + (m - mean) ** 2, weights=n)])


@right("10.1")
def in_one_tensor(means, variances, counts):
    return torch.stack(in_tensors(means, variances, counts))


@right("10.1")
def arrays_of_one_value(means, variances, counts):
    return tuple(np.array([value]) for value in from_sums(means, variances, counts))


@wrong("10.1", "the variance comes first")
def swapped(means, variances, counts):
    return from_sums(means, variances, counts)[::-1]


@wrong("10.1", "the variances are taken as unbiased ones")
def pooled(means, variances, counts):
    n, mean = sum(counts), sums(means, variances, counts)[1] / sum(counts)
    inside = sum(v * (k - 1) for v, k in zip(variances, counts, strict=True))
    return mean, (inside + sum(k * (m - mean) ** 2 for m, k in zip(means, counts, strict=True))) / (n - 1)


def unbiased(means, variances, counts):
    mean, variance = from_sums(means, variances, counts)
    return mean, variance * sum(counts) / (sum(counts) - 1)


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


@right("10.2")
def as_arrays(grads, X_hats, deviation):
    return tuple(grad.numpy() for grad in by_hand(grads, X_hats, deviation))


@wrong("10.2", "a list with one tensor for each shard is asked for")
def one_tensor(grads, X_hats, deviation):
    return torch.cat(by_hand(grads, X_hats, deviation))


@wrong("10.2", "it changes the gradients or the normalised values that it gets")
def in_place(grads, X_hats, deviation):
    found = by_hand(grads, X_hats, deviation)
    for grad, result in zip(grads, found, strict=True):
        grad.copy_(result)
    return grads


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


@right("10.3")
def in_an_array(running_mean, running_var, mean, var, n, momentum):
    return np.array(as_lerp(running_mean, running_var, mean, var, n, momentum))


@wrong("10.3", "the running variance comes first")
def other_order(running_mean, running_var, mean, var, n, momentum):
    return as_lerp(running_mean, running_var, mean, var, n, momentum)[::-1]


class TestAnswers(RightAnswers, WrongAnswers):
    answers = answers
