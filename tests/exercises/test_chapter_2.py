"""Each wrong answer of chapter 2 draws its hint; right ones of any form are right."""

import pytest
import torch

from d2lite import all_reduce, lenet, parallel_apply, split_batch
from d2lite.exercises.chapter_2 import EXERCISES
from tests.exercises.answers import Answers, AnswerTests

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


@right("2.1")
def of_the_kit(tensors):
    all_reduce(tensors, "mean")


@right("2.1")
def sums_a_generator(tensors):
    mean = sum(tensor.to(tensors[0].device) for tensor in tensors) / len(tensors)
    for tensor in tensors:
        tensor.data.copy_(mean)


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


@wrong("2.1", "still hold their old numbers: new ones were made")
def rebinds(tensors):
    mean = sum(tensors) / len(tensors)
    for i in range(len(tensors)):
        tensors[i] = mean.clone()
    return tensors


@wrong("2.1", "still hold their old numbers: new ones were made")
def new_list(tensors):
    return [sum(tensors) / len(tensors) for _ in tensors]


@wrong("2.1", "the tensors hold the sum")
def sums(tensors):
    total = sum(tensors)
    for tensor in tensors:
        tensor.copy_(total)


@wrong("2.1", "only the first tensor has the mean: that is a reduce")
def reduces(tensors):
    for tensor in tensors[1:]:
        tensors[0] += tensor
    tensors[0] /= len(tensors)


@wrong("2.1", "the others have the sum")
def divides_late(tensors):
    total = tensors[0]
    for tensor in tensors[1:]:
        total += tensor
    for tensor in tensors[1:]:
        tensor.copy_(total)
    total /= len(tensors)


@wrong("2.1", "the first tensor has the sum, the others have the mean")
def divides_the_others(tensors):
    for tensor in tensors[1:]:
        tensors[0] += tensor
    for tensor in tensors[1:]:
        tensor.copy_(tensors[0] / len(tensors))


@wrong("2.1", "read again")
def reads_what_it_wrote(tensors):
    for tensor in tensors:
        tensor.copy_(sum(tensors) / len(tensors))


@wrong("2.1", "the mean of a mean and the next tensor")
def running_mean(tensors):
    mean = tensors[0].clone()
    for tensor in tensors[1:]:
        mean = (mean + tensor) / 2
    for tensor in tensors:
        tensor.copy_(mean)


@wrong("2.1", "the tensors have another memory afterwards")
def shares_memory(tensors):
    mean = sum(tensors) / len(tensors)
    for tensor in tensors:
        tensor.data = mean


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


@wrong("2.2", "the accuracies of the shards are averaged")
def averages_fractions(X, y, device_params, devices):
    return sum(on_shards(accuracy, X, y, device_params, devices)) / len(devices)


@wrong("2.2", "the accuracies of the shards are added")
def adds_fractions(X, y, device_params, devices):
    return sum(on_shards(accuracy, X, y, device_params, devices))


@wrong("2.2", "it is the number of right answers")
def no_division(X, y, device_params, devices):
    return sum(on_shards(count, X, y, device_params, devices))


@wrong("2.2", "divided by the number of devices")
def divides_by_devices(X, y, device_params, devices):
    return sum(on_shards(count, X, y, device_params, devices)) / len(devices)


@wrong("2.2", "only the right answers of the first shard")
def first_shard(X, y, device_params, devices):
    return on_shards(count, X, y, device_params, devices)[0] / len(y)


@wrong("2.2", "the first replica computes everything")
def one_device(X, y, device_params, devices):
    return accuracy(X.to(devices[0]), y.to(devices[0]), device_params[0])


@wrong("2.2", "every replica computes the complete minibatch")
def all_of_it_everywhere(X, y, device_params, devices):
    return sum(accuracy(X, y, params) for params in device_params) / len(devices)


@wrong("2.2", "the shards and the replicas do not belong together")
def reversed_replicas(X, y, device_params, devices):
    return sum(on_shards(count, X, y, device_params[::-1], devices)) / len(y)


@right("2.3")
def a_list(k, batch_size, lr):
    return [batch_size * k, torch.tensor(lr * k, dtype=torch.float64)]


@wrong("2.3", "the minibatch of all devices together is that of one device")
def same_batch(k, batch_size, lr):
    return batch_size, lr


@wrong("2.3", "the minibatch is smaller than that of one device")
def shares(k, batch_size, lr):
    return batch_size // k, lr


@wrong("2.3", "the learning rate is that of one device")
def same_lr(k, batch_size, lr):
    return k * batch_size, lr


@wrong("2.3", "the square root of k")
def square_root(k, batch_size, lr):
    return k * batch_size, lr * k**0.5


@wrong("2.3", "the learning rate falls with k")
def smaller_lr(k, batch_size, lr):
    return k * batch_size, lr / k


@wrong("2.3", "the square of k")
def square(k, batch_size, lr):
    return k * batch_size, k * k * lr


@wrong("2.3", "the learning rate is doubled for every k")
def doubled(k, batch_size, lr):
    return k * batch_size, 2 * lr


@wrong("2.3", "wrong order")
def swapped(k, batch_size, lr):
    return k * lr, k * batch_size


@wrong("2.3", "it gives (512, 0.4) in every case")
def constant(k, batch_size, lr):
    return 512, 0.4


def test_k_devices_with_these_settings_go_as_far_as_one_where_the_gradient_is_constant():
    """What the answer of 2.3 says: the sum of all steps of an epoch, for a loss with a constant gradient."""
    for k, batch_size, lr in ((2, 256, 0.2), (4, 128, 0.1)):
        batch_of_all, lr_of_all = EXERCISES["2.3"].solution(k, batch_size, lr)
        examples = 8 * k * batch_size
        assert examples / batch_of_all * lr_of_all == pytest.approx(examples / batch_size * lr)
        assert batch_of_all / k == batch_size


class TestAnswers(AnswerTests):
    exercises, answers = EXERCISES, answers
