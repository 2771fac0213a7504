"""Each wrong answer of chapter 1 draws its hint; right ones of any form are right."""

import functools
import math

import torch
import torch.nn.functional as F

from d2lite.exercises.chapter_1 import EXERCISES
from tests.exercises.answers import Answers, AnswerTests

answers = Answers()
right, wrong = answers.right, answers.wrong


@right("1.1")
def counts(num_examples, batch_size):
    sizes = [len(batch) for batch in torch.arange(num_examples).split(batch_size)]
    return [len(sizes), sizes[-1]]


@right("1.1")
def ceils(num_examples, batch_size):
    return math.ceil(num_examples / batch_size), num_examples % batch_size or batch_size


@wrong("1.1", "the iterations are rounded down")
def floors(num_examples, batch_size):
    return num_examples // batch_size, num_examples % batch_size or batch_size


@wrong("1.1", "there is one iteration too many where the examples fill all batches")
def one_more(num_examples, batch_size):
    return num_examples // batch_size + 1, num_examples % batch_size


@wrong("1.1", "is not a whole number")
def divides(num_examples, batch_size):
    return num_examples / batch_size, batch_size


@wrong("1.1", "rounded to the nearest")
def rounds(num_examples, batch_size):
    return round(num_examples / batch_size), num_examples % batch_size or batch_size


@wrong("1.1", "said to be empty")
def empty_last(num_examples, batch_size):
    return -(-num_examples // batch_size), num_examples % batch_size


@wrong("1.1", "said to be full in every case")
def full_last(num_examples, batch_size):
    return math.ceil(num_examples / batch_size), batch_size


@wrong("1.1", "wrong order")
def swapped(num_examples, batch_size):
    return num_examples % batch_size or batch_size, math.ceil(num_examples / batch_size)


@wrong("1.1", "the number of iterations alone")
def one_number(num_examples, batch_size):
    return math.ceil(num_examples / batch_size)


@wrong("1.1", "it gives (47, 224) in every case")
def a_constant(num_examples, batch_size):
    return 47, 224


@right("1.2")
def searches(params_n_bytes, cut_n_bytes_per_example):
    batch_size = max(1, params_n_bytes // cut_n_bytes_per_example - 2)
    while 2 * params_n_bytes >= 2 * cut_n_bytes_per_example * batch_size:
        batch_size += 1
    return batch_size


@wrong("1.2", "where both ways send the same number of bytes")
def ceil(params_n_bytes, cut_n_bytes_per_example):
    return math.ceil(params_n_bytes / cut_n_bytes_per_example)


@wrong("1.2", "at this batch size data parallelism does not send fewer bytes yet")
def floor(params_n_bytes, cut_n_bytes_per_example):
    return params_n_bytes // cut_n_bytes_per_example


@wrong("1.2", "it is not a whole number")
def fraction(params_n_bytes, cut_n_bytes_per_example):
    return params_n_bytes / cut_n_bytes_per_example


@wrong("1.2", "rounded to the nearest")
def nearest(params_n_bytes, cut_n_bytes_per_example):
    return round(params_n_bytes / cut_n_bytes_per_example)


@wrong("1.2", "one direction of data parallelism is not counted")
def gradients_one_way(params_n_bytes, cut_n_bytes_per_example):
    return params_n_bytes // (2 * cut_n_bytes_per_example) + 1


@wrong("1.2", "one direction of the pipeline is not counted")
def activations_one_way(params_n_bytes, cut_n_bytes_per_example):
    return 2 * params_n_bytes // cut_n_bytes_per_example + 1


@wrong("1.2", "the division is the wrong way round")
def inverse(params_n_bytes, cut_n_bytes_per_example):
    return cut_n_bytes_per_example // params_n_bytes + 1


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


@wrong("1.3", "the parts are averaged")
def mean_of_parts(X_parts, W, b):
    W_parts = W.split([X.shape[1] for X in X_parts], dim=1)
    return torch.stack([X @ w.T + b for X, w in zip(X_parts, W_parts, strict=True)]).mean(0)


@wrong("1.3", "the bias is added once for each part")
def bias_each(X_parts, W, b):
    W_parts = W.split([X.shape[1] for X in X_parts], dim=1)
    return sum(F.linear(X, w, b) for X, w in zip(X_parts, W_parts, strict=True))


@wrong("1.3", "the bias is not added")
def no_bias(X_parts, W, b):
    W_parts = W.split([X.shape[1] for X in X_parts], dim=1)
    return sum(X @ w.T for X, w in zip(X_parts, W_parts, strict=True))


@wrong("1.3", "W is cut into equal parts, and the inputs are not")
def equal_parts(X_parts, W, b):
    out = 0
    for X, w in zip(X_parts, W.tensor_split(len(X_parts), dim=1), strict=True):
        out = out + X @ w.T
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


@wrong("1.3", "only the inputs of the first device")
def first_only(X_parts, W, b):
    return F.linear(X_parts[0], W[:, : X_parts[0].shape[1]], b)


@wrong("1.3", "one tensor per device")
def a_list(X_parts, W, b):
    return [X @ w.T for X, w in zip(X_parts, W.split([X.shape[1] for X in X_parts], dim=1), strict=True)]


@wrong("1.3", "the result is transposed")
def transposed(X_parts, W, b):
    W_parts = W.split([X.shape[1] for X in X_parts], dim=1)
    return sum(w @ X.T for X, w in zip(X_parts, W_parts, strict=True)) + b[:, None]


def test_a_partial_a_method_and_an_object_are_as_good(score):
    class Counter:
        def count(self, num_examples, batch_size):
            return -(-num_examples // batch_size), num_examples % batch_size or batch_size

        __call__ = count

    for answer in (Counter(), Counter().count, functools.partial(lambda zero, n, b: ceils(n + zero, b), 0)):
        assert score("1.1", answer).solved


class TestAnswers(AnswerTests):
    exercises, answers = EXERCISES, answers
