"""Answers to the exercises of chapter 4: right ones of other forms, and wrong ones that are not among its mistakes."""

import math

import numpy as np
import torch

from d2lite import all_reduce
from d2lite.collectives import Move, make_plan
from d2lite.costs import all_reduce_seconds
from d2lite.labs.chapter_04 import all_reduce_many, assign_owners
from tests.book.exercises.scoring import Answers, RightAnswers, WrongAnswers

answers = Answers()
right, wrong = answers.right, answers.wrong


def steps_of(k, partner, num_steps=None):
    count = int(math.log2(k)) if num_steps is None else num_steps
    return [[Move(i, partner(i, s), 0) for i in range(k)] for s in range(count)]


@right("4.1")
def blocks(k):
    steps, distance = [], 1
    while distance < k:
        step = []
        for i in range(k):
            step.append((i, i + distance if i // distance % 2 == 0 else i - distance, 0))
        steps.append(step[::-1])
        distance *= 2
    return steps


@right("4.1")
def as_a_generator(k):
    yield from steps_of(k, lambda i, s: i ^ 2**s)


@right("4.1")
def sets_of_numpys_numbers(k):
    i = np.arange(k)
    return ({Move(*numbers, 0) for numbers in zip(i, i ^ (1 << s), strict=True)} for s in range(k.bit_length() - 1))


@right("4.1")
def arrays(k):
    return [np.array(step) for step in steps_of(k, lambda i, s: i ^ 2**s)]


@wrong("4.1", "names a device that is not there")
def too_many(k):
    return steps_of(k, lambda i, s: i ^ 2**s, k.bit_length())


@wrong("4.1", "one flat list of")
def flat(k):
    return [move for step in steps_of(k, lambda i, s: i ^ 2**s) for move in step]


def ring(k):
    return steps_of(k, lambda i, s: (i + 1) % k, k - 1)


@wrong("4.1", "expected moves in each step: 4, 4;")
def tree(k):
    plan = make_plan("all_reduce", "tree", k)
    return plan.reduce_steps + plan.copy_steps


@wrong("4.1", "a step is not a list of moves")
def numbers(k):
    return [[i ^ 2**s for i in range(k)] for s in range(k.bit_length() - 1)]


@right("4.2")
def bisects(k, link):
    low, high = 0.0, 1e15
    for _ in range(200):
        n = (low + high) / 2
        tree_wins = all_reduce_seconds("tree", k, n, link) < all_reduce_seconds("ring", k, n, link)
        low, high = (n, high) if tree_wins else (low, n)
    return int(low)


def border(link, ring, tree):
    """n at which `ring` and `tree`, (latencies, n bytes), take equally long."""
    return (ring[0] - tree[0]) * link.latency_s / ((tree[1] - ring[1]) / link.bandwidth_bytes_per_s)


@wrong("4.2", "in every case it gives 0.5 times what is expected")
def half(k, link):
    return border(link, (k - 1, (k - 1) / k), (math.log2(k), math.log2(k))) / 2


def by_levels(k, link, levels):
    return border(link, (k - 1, (k - 1) / k), (levels, levels))


@right("4.2")
def numpys_whole_number(k, link):
    return np.int64(by_levels(k, link, np.log2(k)))


@right("4.2")
def rounded_tensor(k, link):
    return torch.tensor(round(by_levels(k, link, k.bit_length() - 1)))


@wrong("4.2", "expected 359183.7, got")
def table_of_levels(k, link):
    return by_levels(k, link, {4: 2, 8: 3}.get(k, 6))


@wrong("4.2", "in every case it gives 1.001 times what is expected")
def nearly(k, link):
    return 1.0008 * by_levels(k, link, math.log2(k))


@wrong("4.2", "expected 23040, got 23000")
def hundreds(k, link):
    return round(by_levels(k, link, math.log2(k)), -2)


@wrong("4.2", "it gives 100000 in every case")
def constant(k, link):
    return 100_000


def largest_first(sizes, k):
    owners, loads = [0] * len(sizes), [0] * k
    for j in sorted(range(len(sizes)), key=lambda j: -sizes[j]):
        owners[j] = loads.index(min(loads))
        loads[owners[j]] += sizes[j]
    return owners


def sizes_of(device_tensors):
    return [tensor.numel() for tensor in device_tensors[0]]


def rotated(device_tensors, j, owner):
    k = len(device_tensors)
    return [device_tensors[(owner + n) % k][j] for n in range(k)]


@right("4.3")
def all_reduces(device_tensors):
    owners = largest_first(sizes_of(device_tensors), len(device_tensors))
    for j, owner in enumerate(owners):
        all_reduce(rotated(device_tensors, j, owner))
    return owners


@right("4.3")
def by_hand(device_tensors):
    owners = largest_first(sizes_of(device_tensors), len(device_tensors))
    for j, owner in enumerate(owners):
        here = device_tensors[owner][j].device
        total = sum(tensors[j].to(here) for tensors in device_tensors)
        for tensors in device_tensors:
            tensors[j][:] = total
    return torch.tensor(owners)


@right("4.3")
def of_the_kit(device_tensors):
    all_reduce_many(device_tensors)
    return assign_owners(sizes_of(device_tensors), len(device_tensors))


@right("4.3")
def as_an_array(device_tensors):
    return np.array(all_reduces(device_tensors))


@right("4.3")
def yields_owners(device_tensors):
    yield from all_reduces(device_tensors)


@wrong("4.3", "gradient 1 is added on device 0, and the list names device 1")
def invented_owners(device_tensors):
    for tensors in zip(*device_tensors, strict=True):
        all_reduce(tensors)
    return largest_first(sizes_of(device_tensors), len(device_tensors))


@wrong("4.3", "the devices add [6, 0] numbers: device 0 has more work than needed")
def all_on_device_0(device_tensors):
    for tensors in zip(*device_tensors, strict=True):
        all_reduce(tensors)
    return [0] * len(device_tensors[0])


@wrong("4.3", "has more work than needed")
def in_turn(device_tensors):
    owners = [j % len(device_tensors) for j in range(len(device_tensors[0]))]
    for j, owner in enumerate(owners):
        all_reduce(rotated(device_tensors, j, owner))
    return owners


@wrong("4.3", "gradient 0 on device 1 does not hold the sum of all devices, but still its own numbers")
def reduce_only(device_tensors):
    owners = largest_first(sizes_of(device_tensors), len(device_tensors))
    for j, owner in enumerate(owners):
        first, *others = rotated(device_tensors, j, owner)
        for other in others:
            first += other.to(first.device)
    return owners


@wrong("4.3", "gradient 0 on device 0 does not hold the sum of all devices, but still its own numbers")
def rebinds(device_tensors):
    owners = largest_first(sizes_of(device_tensors), len(device_tensors))
    for j, owner in enumerate(owners):
        first, *others = rotated(device_tensors, j, owner)
        total = first + sum(other.to(first.device) for other in others)
        for tensors in device_tensors:
            tensors[j] = total.to(tensors[j].device, copy=True)
    return owners


@wrong("4.3", "does not hold the sum of all devices, but other numbers")
def mean(device_tensors):
    owners = largest_first(sizes_of(device_tensors), len(device_tensors))
    for j, owner in enumerate(owners):
        all_reduce(rotated(device_tensors, j, owner), "mean")
    return owners


@wrong("4.3", "has tensors of device 0 and device 1, which GPUs refuse")
def mixes_devices(device_tensors):
    for tensors in zip(*device_tensors, strict=True):
        total = sum(tensors)
        for tensor in tensors:
            tensor.copy_(total)
    return largest_first(sizes_of(device_tensors), len(device_tensors))


@wrong("4.3", "it does not return a list with one device number per gradient")
def returns_nothing(device_tensors):
    all_reduces(device_tensors)


@wrong("4.3", 'a tensor is sent to "cpu", which names none of the devices')
def to_the_cpu(device_tensors):
    for tensors in zip(*device_tensors, strict=True):
        total = sum(tensor.to("cpu") for tensor in tensors)
        for tensor in tensors:
            tensor.copy_(total)
    return largest_first(sizes_of(device_tensors), len(device_tensors))


@wrong("4.3", "no device adds gradient 0 as a tensor")
def in_lists(device_tensors):
    for tensors in zip(*device_tensors, strict=True):
        total = [sum(numbers) for numbers in zip(*(tensor.tolist() for tensor in tensors), strict=True)]
        for tensor in tensors:
            tensor.copy_(torch.tensor(total, dtype=tensor.dtype))
    return largest_first(sizes_of(device_tensors), len(device_tensors))


class TestAnswers(RightAnswers, WrongAnswers):
    answers = answers
