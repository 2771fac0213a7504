"""Answers to the exercises of chapter 1: right ones of other forms, and wrong ones that are not among its mistakes."""

import functools
import math

import torch
import torch.nn.functional as F

from tests.book.exercises.scoring import Answers, RightAnswers, WrongAnswers

answers = Answers()
right, wrong = answers.right, answers.wrong


@right("1.1")
def counts(num_examples, batch_size):
    sizes = [len(batch) for batch in torch.arange(num_examples).split(batch_size)]
    return [len(sizes), sizes[-1]]


@right("1.1")
def ceils(num_examples, batch_size):
    return math.ceil(num_examples / batch_size), num_examples % batch_size or batch_size


@wrong("1.1", "it gives (47, 224) in every case")
def a_constant(num_examples, batch_size):
    return 47, 224


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


@wrong("1.3", "expected a tensor")
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
        def count(self, num_examples, batch_size):
            return -(-num_examples // batch_size), num_examples % batch_size or batch_size

        __call__ = count

    for answer in (Counter(), Counter().count, functools.partial(lambda zero, n, b: ceils(n + zero, b), 0)):
        assert score("1.1", answer).solved


class TestAnswers(RightAnswers, WrongAnswers):
    answers = answers
