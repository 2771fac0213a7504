"""Each wrong answer of chapter 9 draws its hint; right ones of any form are right."""

import math

import torch

from d2lite.exercises.chapter_9 import EXERCISES
from d2lite.training import GradientNorms, noise_scale, warm_up
from tests.exercises.answers import Answers, AnswerTests

answers = Answers()
right, wrong = answers.right, answers.wrong


@right("9.1")
def counted(num_examples, batch_per_gpu, num_gpus, num_epochs):
    updates = 0
    for _ in range(num_epochs):
        updates += len(range(0, num_examples, batch_per_gpu * num_gpus))
    return updates


@wrong("9.1", "the last minibatch of an epoch, which is smaller, is left out")
def dropped_last(num_examples, batch_per_gpu, num_gpus, num_epochs):
    return num_examples // (batch_per_gpu * num_gpus) * num_epochs


@wrong("9.1", "the number of devices does not count")
def one_device(num_examples, batch_per_gpu, num_gpus, num_epochs):
    return num_epochs * -(-num_examples // batch_per_gpu)


@wrong("9.1", "the update of each device is counted for itself")
def each_device(num_examples, batch_per_gpu, num_gpus, num_epochs):
    return num_gpus * num_epochs * math.ceil(num_examples / batch_per_gpu / num_gpus)


@wrong("9.1", "these are the updates of one epoch")
def one_epoch(num_examples, batch_per_gpu, num_gpus, num_epochs):
    return math.ceil(num_examples / (batch_per_gpu * num_gpus))


@wrong("9.1", "minibatches go on from one epoch into the next")
def across_epochs(num_examples, batch_per_gpu, num_gpus, num_epochs):
    return math.ceil(num_epochs * num_examples / (batch_per_gpu * num_gpus))


@wrong("9.1", "the number is not rounded")
def fractions(num_examples, batch_per_gpu, num_gpus, num_epochs):
    return num_epochs * num_examples / (batch_per_gpu * num_gpus)


@right("9.2")
def with_the_package(step, base_lr, k, warm_up_steps):
    return (
        warm_up(k * base_lr, step - 1, warm_up_steps, start=base_lr) if step else base_lr * (1 if warm_up_steps else k)
    )


@right("9.2")
def bounded(step, base_lr, k, warm_up_steps):
    return base_lr * (1 + (k - 1) * min(1, step / max(warm_up_steps, 1e-9))) if warm_up_steps else k * base_lr


@wrong("9.2", "the warm-up begins at zero")
def from_zero(step, base_lr, k, warm_up_steps):
    return k * base_lr * min(1, step / warm_up_steps) if warm_up_steps else k * base_lr


@wrong("9.2", "the warm-up begins with a part of the large rate")
def usual_warm_up(step, base_lr, k, warm_up_steps):
    return warm_up(k * base_lr, step, warm_up_steps)


@wrong("9.2", "it is one step early")
def early(step, base_lr, k, warm_up_steps):
    return warm_up(k * base_lr, step, warm_up_steps, start=base_lr)


@wrong("9.2", "there is no warm-up")
def at_once(step, base_lr, k, warm_up_steps):
    return k * base_lr


@wrong("9.2", "the rate is not multiplied by k")
def unscaled(step, base_lr, k, warm_up_steps):
    return base_lr


@wrong("9.2", "this is the square root rule")
def rooted(step, base_lr, k, warm_up_steps):
    goal = base_lr * math.sqrt(k)
    return goal if step >= warm_up_steps else base_lr + (goal - base_lr) * step / warm_up_steps


@wrong("9.2", "the rate grows beyond k times base_lr")
def endless(step, base_lr, k, warm_up_steps):
    return base_lr * (1 + (k - 1) * step / warm_up_steps) if warm_up_steps else k * base_lr


@wrong("9.2", "each step multiplies the rate by the same factor")
def geometric(step, base_lr, k, warm_up_steps):
    return k * base_lr if step >= warm_up_steps else base_lr * k ** (step / warm_up_steps)


def norms(shard_gradients, shard_size):
    grads = torch.tensor(shard_gradients, dtype=torch.float64)
    small, big = grads.square().sum(1).mean().item(), grads.mean(0).square().sum().item()
    return GradientNorms(small, big, shard_size, shard_size * len(grads))


@right("9.3")
def by_the_package(shard_gradients, shard_size):
    return noise_scale([norms(shard_gradients, shard_size)]).num_examples


@right("9.3")
def by_the_variance(shard_gradients, shard_size):
    grads = torch.tensor(shard_gradients, dtype=torch.float64)
    noise = grads.var(0).sum() * shard_size  # the unbiased variance of the shards' gradients
    return noise / (grads.mean(0).square().sum() - noise / grads.shape[0] / shard_size)


@wrong("9.3", "it is signal over noise")
def inverted(shard_gradients, shard_size):
    return 1 / by_the_package(shard_gradients, shard_size)


@wrong("9.3", "the squared length of the mean gradient is taken for the signal")
def biased(shard_gradients, shard_size):
    grads = torch.tensor(shard_gradients, dtype=torch.float64)
    return grads.var(0).sum() * shard_size / grads.mean(0).square().sum()


@wrong("9.3", "it counts shards and not examples")
def in_shards(shard_gradients, shard_size):
    return by_the_package(shard_gradients, 1)


@wrong("9.3", "the gradients are summed where their mean is needed")
def summed(shard_gradients, shard_size):
    n = norms(shard_gradients, shard_size)
    total = torch.tensor(shard_gradients, dtype=torch.float64).sum(0).square().sum().item()
    signal = (n.num_big * total - n.num_small * n.small) / (n.num_big - n.num_small)
    return (n.small - total) / (1 / n.num_small - 1 / n.num_big) / signal


@wrong("9.3", "it is the signal alone")
def signal_alone(shard_gradients, shard_size):
    return noise_scale([norms(shard_gradients, shard_size)]).signal


@wrong("9.3", "it is the noise alone")
def noise_alone(shard_gradients, shard_size):
    return noise_scale([norms(shard_gradients, shard_size)]).noise


class TestAnswers(AnswerTests):
    exercises, answers = EXERCISES, answers
