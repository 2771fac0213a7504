"""A diagnosis is the right name or none: right code and bugs, each written in several ways, none of them the book's."""

import functools
import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from d2lite import all_reduce, forward_backward, lenet, parallel_apply, sgd_step, split_batch, train_batch
from d2lite.labs.chapter_11.check_step import judge_step

UNSURE = "different, cause unknown"


def nothing(params):
    """What is done to the gradients of one replica."""


def step_of(
    share=lambda n_i, n, k: 1 / n, op="sum", before=nothing, after=nothing, change=lambda X, rank: X, reduce=all_reduce
):
    """A step of plain SGD: sums of losses times share(n_i, n, k), `before`, the all-reduce, `after`, the update."""

    def step(X, y, device_params, devices, lr):
        for rank, (X_shard, y_shard, params) in enumerate(zip(*split_batch(X, y, devices), device_params, strict=True)):
            for param in params:
                param.grad = None
            loss = F.cross_entropy(lenet(change(X_shard, rank), params), y_shard, reduction="sum")
            (loss * share(len(y_shard), len(y), len(devices))).backward()
            before(params)
        for i in range(len(device_params[0])):
            reduce([params[i].grad for params in device_params], op)
        with torch.no_grad():
            for params in device_params:
                after(params)
                for param in params:
                    param -= lr * param.grad

    return step


def over_n(n_i, n, k):
    return 1 / n


def k_over_n(n_i, n, k):
    return k / n


def over_n_i(n_i, n, k):
    return 1 / n_i


def clip(norm):
    return lambda params: torch.nn.utils.clip_grad_norm_(params, norm)


def clip_by_hand(norm):
    def clipped(params):
        length = torch.cat([p.grad.flatten() for p in params]).norm()
        if length > norm:
            for param in params:
                param.grad *= norm / length

    return clipped


def with_optimizer(kind=torch.optim.SGD, **settings):
    """DDP's way, with an optimizer for each replica that is kept from step to step."""
    kept = {}

    def step(X, y, device_params, devices, lr):
        if not any(p.grad is not None for p in device_params[0]):  # new replicas
            kept["optimizers"] = [kind(params, lr=lr, **settings) for params in device_params]
        step_of(k_over_n, "mean", after=nothing)(X, y, device_params, devices, 0.0)
        for optimizer in kept["optimizers"]:
            optimizer.step()

    return step


def shrink(share, times_lr=True, biases=True):
    """Weight decay apart from the gradient, before the update."""

    def step(X, y, device_params, devices, lr):
        before = [[p.detach().clone() for p in params] for params in device_params]
        train_batch(X, y, device_params, devices, lr)
        with torch.no_grad():
            for params, olds in zip(device_params, before, strict=True):
                for param, old in zip(params, olds, strict=True):
                    if biases or param.dim() > 1:
                        param -= share * (lr if times_lr else 1) * old

    return step


def momentum_by_hand(X, y, device_params, devices, lr, factor=0.9):
    for X_shard, y_shard, params in zip(*split_batch(X, y, devices), device_params, strict=True):
        forward_backward(X_shard, y_shard, params)
    for i in range(len(device_params[0])):
        all_reduce([params[i].grad for params in device_params])
    with torch.no_grad():
        for params in device_params:
            for param in params:
                param.velocity = factor * getattr(param, "velocity", 0) + param.grad / len(X)
                param -= lr * param.velocity


def penalty(rate):
    """Add the gradient of rate / 2 * |w|**2 to that of each replica."""

    def added(params):
        for param in params:
            param.grad += rate * param.detach()

    return added


def half_of_the_batch(X, y, device_params, devices, lr):
    half = max(len(devices), len(X) // 2)
    train_batch(X[:half], y[:half], device_params, devices, lr)


def divided_by(divisor):
    def step(X, y, device_params, devices, lr):
        X_shards, y_shards = split_batch(X, y, devices)
        parallel_apply(forward_backward, devices, X_shards, y_shards, device_params)
        for i in range(len(device_params[0])):
            all_reduce([params[i].grad for params in device_params], op="sum")
        parallel_apply(lambda params: sgd_step(params, lr, divisor(len(X))), devices, device_params)

    return step


def one_by_one(X, y, device_params, devices, lr):
    """Example by example on the first device, and never divided."""
    grads = [torch.zeros_like(p) for p in device_params[0]]
    for i in range(len(X)):
        loss = F.nll_loss(F.log_softmax(lenet(X[i : i + 1], device_params[0]), 1), y[i : i + 1])
        for total, grad in zip(grads, torch.autograd.grad(loss, device_params[0]), strict=True):
            total += grad
    with torch.no_grad():
        for params in device_params:
            for param, grad in zip(params, grads, strict=True):
                param -= lr * grad


def strided(X, y, device_params, devices, lr):
    """Each device takes every k-th example."""
    k, n = len(devices), len(X)
    for rank, params in enumerate(device_params):
        for param in params:
            param.grad = None
        (F.cross_entropy(lenet(X[rank::k], params), y[rank::k], reduction="sum") / n).backward()
    for i in range(len(device_params[0])):
        all_reduce([params[i].grad for params in device_params])
    for params in device_params:
        sgd_step(params, lr, 1)


def accumulated(X, y, device_params, devices, lr, size=3):
    """Sums of pieces of three examples."""
    for X_shard, y_shard, params in zip(*split_batch(X, y, devices), device_params, strict=True):
        for param in params:
            param.grad = None
        for X_piece, y_piece in zip(X_shard.split(size), y_shard.split(size), strict=True):
            F.cross_entropy(lenet(X_piece, params), y_piece, reduction="sum").backward()
    for i in range(len(device_params[0])):
        all_reduce([params[i].grad for params in device_params])
    for params in device_params:
        sgd_step(params, lr, len(X))


def noise(seed_of):
    def change(X, rank):
        return X + 0.1 * torch.randn(X.shape, generator=torch.Generator().manual_seed(seed_of(rank))).double()

    return change


def same_global_seed(X, rank):
    torch.manual_seed(3)
    return F.dropout(X, 0.2)


def of_numpy(X, rank):
    np.random.seed(1)
    return X + torch.from_numpy(0.1 * np.random.randn(*X.shape))


def smoothed(X, y, device_params, devices, lr):
    for X_shard, y_shard, params in zip(*split_batch(X, y, devices), device_params, strict=True):
        for param in params:
            param.grad = None
        F.cross_entropy(lenet(X_shard, params), y_shard, reduction="sum", label_smoothing=0.1).backward()
    for i in range(len(device_params[0])):
        all_reduce([params[i].grad for params in device_params])
    for params in device_params:
        sgd_step(params, lr, len(X))


def means_of_threes(X, y, device_params, devices, lr):
    for X_shard, y_shard, params in zip(*split_batch(X, y, devices), device_params, strict=True):
        for param in params:
            param.grad = None
        pieces = list(zip(X_shard.split(3), y_shard.split(3), strict=True))
        for X_piece, y_piece in pieces:
            (F.cross_entropy(lenet(X_piece, params), y_piece) / len(pieces) * len(X_shard)).backward()
    for i in range(len(device_params[0])):
        all_reduce([params[i].grad for params in device_params])
    for params in device_params:
        sgd_step(params, lr, len(X))


RIGHT = {
    "sums": step_of(),
    "weighted means": step_of(k_over_n, "mean"),
    "sums divided after": divided_by(lambda n: n),
    "every k-th example": strided,
    "pieces": accumulated,
    "an optimizer": with_optimizer(),
    "a norm that is never reached": step_of(before=clip(1e9)),
    "a weight decay of 0": with_optimizer(weight_decay=0.0),
    "a draw that changes nothing": step_of(change=lambda X, rank: (torch.rand(3), X)[1]),
}

NEVER, CLIPPED, DECAY, MOMENTUM, SEED = (
    "never divided by the examples", "clipping on each replica", "weight decay", "momentum",
    "same random numbers on each replica",
)  # fmt: skip
NAMED = [
    (NEVER, "sum", divided_by(lambda n: 1)),
    (NEVER, "step_of", step_of(lambda n_i, n, k: 1.0)),
    (NEVER, "by replicas alone", step_of(lambda n_i, n, k: 1.0, "mean")),
    (NEVER, "by 256", divided_by(lambda n: 256)),
    (NEVER, "one by one", one_by_one),
    (CLIPPED, "DDP, 1", step_of(k_over_n, "mean", clip(1.0))),
    (CLIPPED, "DDP, 0.1", step_of(k_over_n, "mean", clip(0.1))),
    (CLIPPED, "means", step_of(over_n_i, "mean", clip(1.0))),
    (CLIPPED, "parts of the mean", step_of(over_n, "sum", clip(0.3))),
    (CLIPPED, "by hand", step_of(k_over_n, "mean", clip_by_hand(0.5))),
    (DECAY, "SGD", with_optimizer(weight_decay=0.01)),
    (DECAY, "strong", with_optimizer(weight_decay=1.0)),
    (DECAY, "apart", shrink(0.01)),
    (DECAY, "whatever lr is", shrink(0.001, times_lr=False)),
    (DECAY, "weights alone", shrink(0.1, biases=False)),
    (DECAY, "in the gradient", step_of(after=penalty(0.05))),
    ("weight decay k times", "in each loss", step_of(before=penalty(0.01))),
    (MOMENTUM, "SGD", with_optimizer(momentum=0.9)),
    (MOMENTUM, "by hand", momentum_by_hand),
    (MOMENTUM, "small", functools.partial(momentum_by_hand, factor=0.1)),
    (SEED, "a generator", step_of(change=noise(lambda rank: 5))),
    (SEED, "the seed of all", step_of(change=same_global_seed)),
    (SEED, "NumPy", step_of(change=of_numpy)),
]


DRAWS = {
    "dropout": step_of(change=lambda X, rank: F.dropout(X, 0.2)),
    "seeds of their own": step_of(change=noise(lambda rank: rank)),
    "noise in the gradient": step_of(
        before=lambda params: [p.grad.add_(0.01 * torch.randn(p.shape).double()) for p in params]
    ),
    "a random learning rate": step_of(lambda n_i, n, k: (0.5 + random.random()) / n),
}
WITHOUT_NAME = {
    "by n - 1": divided_by(lambda n: n - 1),
    "half of the batch": half_of_the_batch,
    "clip by value": step_of(
        k_over_n, "mean", lambda params: torch.nn.utils.clip_grad_value_(params, 0.01), change=lambda X, rank: X
    ),
    "clip each parameter": step_of(k_over_n, "mean", lambda params: [clip(0.1)([p]) for p in params]),
    "clip after the all-reduce": step_of(k_over_n, "mean", after=clip(0.5)),
    "Nesterov": with_optimizer(momentum=0.9, nesterov=True),
    "momentum and decay": with_optimizer(momentum=0.9, weight_decay=0.01),
    "Adam": with_optimizer(torch.optim.Adam),
    "signs": step_of(after=lambda params: [p.grad.sign_() for p in params]),
    "0.9 of the rate": divided_by(lambda n: n / 0.9),
    "label smoothing": smoothed,
    "mean of pieces of 3": means_of_threes,
}


@pytest.mark.parametrize("name", RIGHT)
def test_right_code_draws_no_complaint(name):
    verdict = judge_step(RIGHT[name])
    assert verdict.passed, verdict


@pytest.mark.parametrize(("bug", "step"), [pytest.param(b, s, id=f"{b}: {way}") for b, way, s in NAMED])
def test_a_bug_gets_its_name(bug, step):
    verdict = judge_step(step)
    assert verdict.name == bug, verdict


@pytest.mark.parametrize("name", DRAWS)
def test_a_step_that_draws_is_said_to_draw(name):
    verdict = judge_step(DRAWS[name])
    assert verdict.name == UNSURE and "draws random numbers" in verdict.words, verdict


@pytest.mark.parametrize("name", WITHOUT_NAME)
def test_where_no_name_is_sure_none_is_given(name):
    verdict = judge_step(WITHOUT_NAME[name])
    assert verdict.name == UNSURE and "random" not in verdict.words, verdict
