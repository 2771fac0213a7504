"""Answers to the exercises of chapter 1: right ones of other forms, and wrong ones that are not among its mistakes."""

import functools
import math
import operator

import numpy as np
import torch
import torch.nn.functional as F

from tests.book.exercises.scoring import Answers, RightAnswers, WrongAnswers

answers = Answers()
right, wrong = answers.right, answers.wrong


@right("1.1")
def counts(shapes, k):
    params = [torch.zeros(shape) for shape in shapes]
    n_bytes = sum(p.numel() * p.element_size() for p in params)
    held = sum(4 * p.nbytes for p in params)
    return [n_bytes * (k - 1) + (k - 1) * n_bytes, held]


@right("1.1")
def with_numpy(shapes, k):
    num_params = sum(np.prod(shape) for shape in shapes)
    return tuple(np.array([8 * (k - 1), 16]) * num_params)


@right("1.1")
def message_by_message(shapes, k):
    P = 4 * sum(functools.reduce(operator.mul, shape, 1) for shape in shapes)
    gathered, returned = [P for device in range(1, k)], [P for device in range(1, k)]
    return sum(gathered + returned), P + P + 2 * P


@wrong("1.1", "it gives (1032544, 2065088) in every case")
def a_constant(shapes, k):
    return 1032544, 2065088


@wrong("1.1", "device 0 sends its gradients to itself")
def to_itself(shapes, k):
    P = 4 * sum(math.prod(shape) for shape in shapes)
    return 2 * k * P, 4 * P


@wrong("1.1", "one of the tensors of a device is missing")
def one_of_adam(shapes, k):
    P = 4 * sum(math.prod(shape) for shape in shapes)
    return 2 * (k - 1) * P, 3 * P


@right("1.2")
def searches(params_n_bytes, cut_n_bytes_per_example):
    batch_size = max(1, params_n_bytes // cut_n_bytes_per_example - 2)
    while 2 * params_n_bytes >= 2 * cut_n_bytes_per_example * batch_size:
        batch_size += 1
    return batch_size


@wrong("1.2", "it gives 162 in every case")
def constant(params_n_bytes, cut_n_bytes_per_example):
    return 162


@right("1.3")
def with_a_loop(X_parts, W, b):
    out, begin = b, 0
    for X in X_parts:
        out = out + F.linear(X, W[:, begin : begin + X.shape[1]])
        begin += X.shape[1]
    return out


@right("1.3")
def stacked(X_parts, W, b):
    W_parts = W.split([X.shape[1] for X in X_parts], dim=1)
    return torch.stack([X @ w.T for X, w in zip(X_parts, W_parts, strict=True)]).sum(0) + b


@right("1.3")
def moved_in_place(X_parts, W, b):
    W_parts = W.split([X.shape[1] for X in X_parts], dim=1)
    out = X_parts[0] @ W_parts[0].T
    for X, w in zip(X_parts[1:], W_parts[1:], strict=True):
        out += (w @ X.T).T.to(out.device)
    return out + b


@wrong("1.3", "it joins the inputs")
def joined(X_parts, W, b):
    return F.linear(torch.cat(X_parts, dim=1), W, b)


@wrong("1.3", "it joins the inputs")
def joined_by_hand(X_parts, W, b):
    X, begin = torch.empty(len(X_parts[0]), W.shape[1]), 0
    for part in X_parts:
        X[:, begin : begin + part.shape[1]] = part
        begin += part.shape[1]
    return X @ W.T + b


@wrong("1.3", "it sends inputs to a different device")
def joined_on_the_first_device(X_parts, W, b):
    return F.linear(torch.cat([X.to(X_parts[0].device) for X in X_parts], dim=1), W, b)


@wrong("1.3", "it sends inputs to a different device")
def multiplied_on_the_first_device(X_parts, W, b):
    W_parts = W.split([X.shape[1] for X in X_parts], dim=1)
    return sum(X.to(X_parts[0].device) @ w.T for X, w in zip(X_parts, W_parts, strict=True)) + b


@wrong("1.3", "expected [")
def with_a_relu(X_parts, W, b):
    W_parts = W.split([X.shape[1] for X in X_parts], dim=1)
    return sum(F.relu(X @ w.T) for X, w in zip(X_parts, W_parts, strict=True)) + b


@right("1.3")
def in_64_bit_numbers(X_parts, W, b, *, begin=0):
    out = b.double()
    for X in X_parts:
        out = out + X.to(torch.float64) @ W[:, begin : begin + X.shape[1]].T.double().to(X.device)
        begin += X.shape[1]
    return out


def test_a_partial_a_method_and_an_object_are_as_good(score):
    class Counter:
        def count(self, shapes, k):
            return message_by_message(shapes, k)

        __call__ = count

    for answer in (Counter(), Counter().count, functools.partial(lambda zero, s, k: counts(s, k + zero), 0)):
        assert score("1.1", answer).solved


class TestAnswers(RightAnswers, WrongAnswers):
    answers = answers
