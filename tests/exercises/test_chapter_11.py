"""Each wrong answer of chapter 11 draws its hint; right ones of any form are right."""

import torch

from d2lite.exercises.chapter_11 import EXERCISES
from tests.exercises.answers import Answers, AnswerTests

answers = Answers()
right, wrong = answers.right, answers.wrong
NAMES = {"A": "loss divided by the local batch", "B": "forgotten zero_grad", "C": "rebinding all-reduce"}


@right("11.1")
def by_cases(n_i, n, k, op):
    if op == "sum":
        return n_i / n
    return k * n_i / n


@wrong("11.1", "nothing is weighted")
def one(n_i, n, k, op):
    return 1.0


@wrong("11.1", "whatever its number of examples")
def equal_shards(n_i, n, k, op):
    return {"sum": 1 / k, "mean": 1}[op]


@wrong("11.1", "op is not used")
def always_one_over_k(n_i, n, k, op):
    return 1 / k


@wrong("11.1", "right for a sum")
def share(n_i, n, k, op):
    return n_i / n


@wrong("11.1", "right for a mean over replicas")
def share_times_k(n_i, n, k, op):
    return n_i * k / n


@wrong("11.1", "divides by k once more")
def divided_again(n_i, n, k, op):
    return n_i / n if op == "sum" else n_i / n / k


@wrong("11.1", "upside down")
def inverse(n_i, n, k, op):
    return n / n_i if op == "sum" else k * n / n_i


@wrong("11.1", "makes a sum over examples out of the mean")
def size(n_i, n, k, op):
    return n_i


@right("11.2")
def with_flat_vectors(device_params):
    first, *others = (torch.cat([p.flatten() for p in params]) for params in device_params)
    return max([(other - first).abs().max() for other in others], default=torch.tensor(0.0))


@wrong("11.2", "the sign is missing")
def signed(device_params):
    return max(
        ((q - p).max().item() for params in device_params[1:] for p, q in zip(device_params[0], params, strict=True)),
        default=0.0,
    )


@wrong("11.2", "only replica 1 is compared")
def second(device_params):
    return with_flat_vectors(device_params[:2])


@wrong("11.2", "only the first parameter is compared")
def first_parameter(device_params):
    return with_flat_vectors([params[:1] for params in device_params])


@wrong("11.2", "it is the mean over a parameter")
def means(device_params):
    return max(
        ((q - p).abs().mean() for params in device_params[1:] for p, q in zip(device_params[0], params, strict=True)),
        default=0.0,
    )


@wrong("11.2", "the sum of all differences")
def total(device_params):
    return sum(
        (q - p).abs().sum().item() for own in device_params[1:] for p, q in zip(device_params[0], own, strict=True)
    )


@wrong("11.2", "by how much is asked for")
def whether(device_params):
    return with_flat_vectors(device_params).item() > 0


@wrong("11.2", "it changes the parameters")
def in_place(device_params):
    parts = [q.sub_(p) for params in device_params[1:] for p, q in zip(device_params[0], params, strict=True)]
    return max((part.abs().max().item() for part in parts), default=0.0)


@right("11.3")
def all_found(letter):
    return NAMES[letter]


@wrong("11.3", "exhibit A is not 'sum for mean'")
def first_wrong(letter):
    return (NAMES | {"A": "sum for mean"})[letter]


@wrong("11.3", "exhibit B is not 'pieces divided by their number'")
def second_wrong(letter):
    return (NAMES | {"B": "pieces divided by their number"})[letter]


@wrong("11.3", "exhibit C is not 'no all-reduce'")
def third_wrong(letter):
    return (NAMES | {"C": "no all-reduce"})[letter]


@wrong("11.3", "is not the name of an exhibit")
def other_words(letter):
    return "zero_grad"


@wrong("11.3", "None' is not the name of an exhibit")
def nothing(letter):
    return None if letter == "C" else NAMES[letter]


class TestAnswers(AnswerTests):
    exercises, answers = EXERCISES, answers
