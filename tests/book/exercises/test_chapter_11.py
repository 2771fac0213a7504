"""Answers to the exercises of chapter 11: right ones of other forms, and wrong ones that are not among its mistakes."""

import torch

from tests.book.exercises.answers import Answers, RightAnswers, WrongAnswers

answers = Answers()
right, wrong = answers.right, answers.wrong
NAMES = {"A": "loss divided by the local batch", "B": "forgotten zero_grad", "C": "rebinding all-reduce"}


@right("11.1")
def by_cases(n_i, n, k, op):
    if op == "sum":
        return n_i / n
    return k * n_i / n


@right("11.2")
def with_flat_vectors(device_params):
    first, *others = (torch.cat([p.flatten() for p in params]) for params in device_params)
    return max([(other - first).abs().max() for other in others], default=torch.tensor(0.0))


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


class TestAnswers(RightAnswers, WrongAnswers):
    answers = answers
