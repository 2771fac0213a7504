"""Answers to the exercises of chapter 2: right ones of other forms, and wrong ones that are not among its mistakes."""

import numpy as np
import pytest
import torch

from d2lite import all_reduce, lenet, parallel_apply, split_batch
from d2lite.collectives.on_devices import all_reduce_naive
from d2lite.exercises.specifications import find_exercise
from tests.book.exercises.scoring import Answers, RightAnswers, WrongAnswers

answers = Answers()
right, wrong = answers.right, answers.wrong


@right("2.1")
def returns_nothing(tensors):
    total = tensors[0]
    for tensor in tensors[1:]:
        total += tensor.to(total.device)
    total /= len(tensors)
    for tensor in tensors[1:]:
        tensor.copy_(total)


@right("2.1")
def returns_the_list(tensors):
    mean = torch.stack([tensor.to(tensors[0].device) for tensor in tensors]).mean(0)
    for tensor in tensors:
        tensor[:] = mean
    return tensors


@wrong("2.1", "it uses all_reduce, and the exercise is to write an all-reduce without it")
def of_the_kit(tensors):
    all_reduce(tensors, "mean")


@wrong("2.1", "it uses all_reduce_naive")
def of_the_chapter(tensors):
    def apply(reduce):
        reduce(tensors, op="mean")

    apply(all_reduce_naive)


@right("2.1")
def with_numpy(tensors):
    mean = np.mean([tensor.numpy() for tensor in tensors], axis=0)
    for tensor in tensors:
        tensor.copy_(torch.from_numpy(mean))


@right("2.1")
def divides_first(tensors, *, op="mean"):
    for tensor in tensors:
        tensor /= len(tensors)
    total = sum(tensor.to(tensors[0].device) for tensor in tensors)
    for tensor in tensors:
        tensor.copy_(total)


@right("2.1")
def sums_a_generator(tensors):
    mean = sum(tensor.to(tensors[0].device) for tensor in tensors) / len(tensors)
    for tensor in tensors:
        tensor.data.copy_(mean)


@wrong("2.1", "the tensors that it was given still hold their old numbers")
def writes_into_the_list(tensors):
    mean = torch.stack([tensor.cpu() for tensor in tensors]).mean(0)
    for i in range(len(tensors)):
        tensors[i] = mean


@wrong("2.1", "the others still hold their own numbers, divided")
def divides_and_sends_nothing(tensors):
    for tensor in tensors[1:]:
        tensors[0].add_(tensor.to(tensors[0].device))
    for tensor in tensors:
        tensor /= len(tensors)


@wrong("2.1", "(add) has tensors of device 0 and device 1, which GPUs refuse")
def adds_across_devices(tensors):
    mean = sum(tensors) / len(tensors)
    for tensor in tensors:
        tensor.copy_(mean)


@wrong("2.1", "(stack) has tensors of device 0 and device 1")
def stacks_across_devices(tensors):
    mean = torch.stack(tensors).mean(0)
    for tensor in tensors:
        tensor.copy_(mean)


def count(X, y, params):
    with torch.no_grad():
        return (lenet(X, params).argmax(1) == y).sum().item()


def accuracy(X, y, params):
    return count(X, y, params) / len(y)


def on_shards(fn, X, y, device_params, devices):
    return parallel_apply(fn, devices, *split_batch(X, y, devices), device_params)


@right("2.2")
def adds_counts(X, y, device_params, devices):
    return torch.tensor(sum(on_shards(count, X, y, device_params, devices)) / len(y))


@right("2.2")
def weighs_fractions(X, y, device_params, devices):
    shards = split_batch(X, y, devices)[1]
    fractions = on_shards(accuracy, X, y, device_params, devices)
    return sum(f * len(shard) for f, shard in zip(fractions, shards, strict=True)) / len(X)


@right("2.3")
def a_list(k, batch_size, lr):
    return [batch_size * k, torch.tensor(lr * k, dtype=torch.float64)]


@wrong("2.3", "it gives (512, 0.4) in every case")
def constant(k, batch_size, lr):
    return 512, 0.4


def test_k_devices_with_these_settings_go_as_far_as_one_where_the_gradient_is_constant():
    """What the answer of 2.3 says: the sum of all steps of an epoch, for a loss with a constant gradient."""
    for k, batch_size, lr in ((2, 256, 0.2), (4, 128, 0.1)):
        batch_of_all, lr_of_all = find_exercise("2.3").solution(k, batch_size, lr)
        examples = 8 * k * batch_size
        assert examples / batch_of_all * lr_of_all == pytest.approx(examples / batch_size * lr)
        assert batch_of_all / k == batch_size


class TestAnswers(RightAnswers, WrongAnswers):
    answers = answers
