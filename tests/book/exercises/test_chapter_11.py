"""Answers to the exercises of chapter 11: right ones of other forms, and wrong ones that are not among its mistakes."""

import torch

from tests.book.exercises.scoring import Answers, RightAnswers, WrongAnswers

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


@right("11.2")
def stacked(device_params):
    whole = torch.stack([torch.cat([p.flatten() for p in params]) for params in device_params])
    return (whole - whole[0]).abs().max()


@right("11.2")
def infinity_norm(device_params):
    norms = [
        torch.linalg.vector_norm(p - q, float("inf"))
        for params in device_params
        for p, q in zip(device_params[0], params, strict=True)
    ]
    return max(norms).item()


def by_pairs(pairs):
    return max((largest(one, other) for one, other in pairs), default=0.0)


def largest(one, other):
    return max((p - q).abs().max().item() for p, q in zip(one, other, strict=True))


@wrong("11.2", "the largest difference of any two replicas")
def all_pairs(device_params):
    return by_pairs([(one, other) for one in device_params for other in device_params])


@wrong("11.2", "only the last replica is compared")
def last_replica(device_params):
    return largest(device_params[0], device_params[-1])


@wrong("11.2", "compared with the one before it")
def neighbours(device_params):
    return by_pairs(zip(device_params, device_params[1:], strict=False))


@wrong("11.2", "the largest difference of any two replicas")
def max_minus_min(device_params):
    stacked = [torch.stack(parts) for parts in zip(*device_params, strict=True)]
    return max((part.amax(0) - part.amin(0)).max().item() for part in stacked)


@wrong("11.2", "it raised ValueError for a single replica")
def no_default(device_params):
    return max(largest(device_params[0], params) for params in device_params[1:])


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
