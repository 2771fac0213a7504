"""Answers to the exercises of chapter 9: right ones of other forms."""

import numpy as np
import pytest
import torch

from d2lite.exercises.judge import judge
from d2lite.exercises.run_cases import run_cases
from d2lite.exercises.specifications import find_exercise
from d2lite.labs.chapter_09 import GradientNorms, noise_scale, warm_up
from tests.book.exercises.scoring import Answers, RightAnswers

answers = Answers()
right = answers.right


@right("9.1")
def counted(num_examples, batch_per_gpu, num_gpus, num_epochs):
    updates = 0
    for _ in range(num_epochs):
        updates += len(range(0, num_examples, batch_per_gpu * num_gpus))
    return updates


@right("9.2")
def with_the_package(step, base_lr, k, warm_up_steps):
    return (
        warm_up(k * base_lr, step - 1, warm_up_steps, start=base_lr) if step else base_lr * (1 if warm_up_steps else k)
    )


@right("9.2")
def bounded(step, base_lr, k, warm_up_steps):
    return base_lr * (1 + (k - 1) * min(1, step / max(warm_up_steps, 1e-9))) if warm_up_steps else k * base_lr


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


def test_a_table_of_the_cases_that_are_the_same_every_day_is_not_enough():
    exercise = find_exercise("9.1")
    table = {args: exercise.solution(*args) for args in exercise.cases().values()}
    drawn = exercise.with_drawn_cases(1)
    assert drawn.cases() != exercise.with_drawn_cases(2).cases()
    *_, (label, args) = drawn.cases().items()
    assert args[0] % (args[1] * args[2])  # a smaller minibatch at the end
    score = judge(drawn, [(0, result) for result in run_cases(drawn, lambda *args: table.get(args, 0))])
    assert (score.right, score.total) == (6, 7) and label in score.wrong


@pytest.mark.parametrize(
    ("name", "answer", "words"),
    [
        ("9.1", lambda n, b, k, e: (n // (b * k) + 1) * e, "one is always added"),
        ("9.3", lambda g, b: numpy_variance(g, b), "divided by k: around their own mean"),
    ],
)
def test_usual_slips_have_a_name(name, answer, words):
    exercise = find_exercise(name)
    assert words in judge(exercise, [(0, result) for result in run_cases(exercise, answer)]).wrong


def numpy_variance(shard_gradients, shard_size):
    grads = np.array(shard_gradients)
    noise = shard_size * grads.var(0).sum()
    return noise / (np.square(grads.mean(0)).sum() - noise / (shard_size * len(grads)))


class TestAnswers(RightAnswers):
    answers = answers
