"""Answers to the exercises of chapter 3: right ones of other forms, and wrong ones that are not among its mistakes."""

import re
from collections import OrderedDict
from itertools import accumulate

import torch
from torch import nn

from d2lite.exercises.specifications import find_exercise
from tests.book.exercises.scoring import Answers, RightAnswers, WrongAnswers

answers = Answers()
right, wrong = answers.right, answers.wrong


@right("3.1")
def ordered(state, prefix="module."):
    return OrderedDict((n[len(prefix) :] if n.startswith(prefix) else n, v) for n, v in state.items())


@right("3.1")
def of_torch_on_a_copy(state, prefix="module."):
    copy = dict(state)
    nn.modules.utils.consume_prefix_in_state_dict_if_present(copy, prefix)
    return copy


@right("3.1")
def in_a_loop(state, prefix="module."):
    found = {}
    for name in state:
        found[re.sub(f"^{re.escape(prefix)}", "", name)] = state[name]
    return found


@wrong("3.1", "seven letters are removed, whatever the prefix is")
def seven(state, prefix="module."):
    return {name[7:] if name.startswith(prefix) else name: state[name] for name in state}


@wrong("3.1", "the prefix is removed where it first occurs")
def replaced_once(state, prefix="module."):
    return dict((name.replace(prefix, "", 1), value) for name, value in state.items())


@right("3.2")
def a_float(num_replicas, batch_size):
    return float(num_replicas)


@wrong("3.2", "it gives 4 in every case")
def constant(num_replicas, batch_size):
    return 4


@wrong("3.2", "in every case it gives 2 times what is expected")
def twice(num_replicas, batch_size):
    return 2 * num_replicas


def cut(X, y, sizes):
    return X.split(sizes), y.split(sizes)


@right("3.3")
def one_by_one(X, y, devices, speeds):
    sizes = [0] * len(devices)
    for _ in range(len(X)):  # each example to the device that ends first with it
        ends = [(size + 1) / speed for size, speed in zip(sizes, speeds, strict=True)]
        sizes[ends.index(min(ends))] += 1
    return cut(X, y, sizes)


@right("3.3")
def rounded_cuts(X, y, devices, speeds):
    places = [int(len(X) * part / sum(speeds) + 0.5) for part in accumulate(speeds)][:-1]
    return [list(X.tensor_split(places)), list(y.tensor_split(places))]


@right("3.3")
def rest_to_the_fastest(X, y, devices, speeds):
    sizes = [int(len(X) * speed / sum(speeds)) for speed in speeds]
    sizes[speeds.index(max(speeds))] += len(X) - sum(sizes)
    return cut(X, y, sizes)


@right("3.3")
def generators_of_arrays(X, y, devices, speeds):
    X_shards, y_shards = rounded_cuts(X, y, devices, speeds)
    return (shard.numpy() for shard in X_shards), (shard.numpy() for shard in y_shards)


@wrong("3.3", "each share is rounded on its own, and split refuses")
def rounded_shares(X, y, devices, speeds):
    return cut(X, y, [round(len(y) * speed / sum(speeds)) for speed in speeds])


@wrong("3.3", "each share is rounded on its own, and where the sizes do not add up")
def rounded_slices(X, y, devices, speeds):
    X_shards, y_shards, begin = [], [], 0
    for device, speed in zip(devices, speeds, strict=True):
        end = begin + round(len(y) * speed / sum(speeds))
        X_shards.append(X[begin:end].to(device))
        y_shards.append(y[begin:end].to(device))
        begin = end
    return X_shards, y_shards


@right("3.3")
def rounded_shares_and_the_rest_one_by_one(X, y, devices, speeds):
    exact = [len(y) * speed / sum(speeds) for speed in speeds]
    sizes = [int(share) for share in exact]
    by_rest = sorted(range(len(exact)), key=lambda i: sizes[i] - exact[i])
    for i in by_rest[: len(y) - sum(sizes)]:
        sizes[i] += 1
    return cut(X, y, sizes)


@wrong("3.3", "it does not return two lists, X_shards and y_shards")
def sizes_alone(X, y, devices, speeds):
    return [round(len(X) * speed / sum(speeds)) for speed in speeds]


@wrong("3.3", "the order of the examples has changed")
def strided(X, y, devices, speeds):
    order = torch.arange(len(y)).flip(0)
    return rounded_cuts(X[order], y[order], devices, speeds)


@wrong("3.3", "an example is in more than one shard")
def overlapping(X, y, devices, speeds):
    return [X] * len(devices), [y] * len(devices)


@wrong("3.3", "it does not return two lists, X_shards and y_shards")
def pairs(X, y, devices, speeds):
    return list(zip(*rounded_cuts(X, y, devices, speeds), strict=True))


@right("3.4")
def by_examples_per_second(batch_size, example_s, sending_s, overhead_s):
    each = batch_size // 16
    parts = [(overhead_s, "overhead"), (each * example_s, "computing"), (sending_s, "sending")]
    saved = {
        "larger minibatch": (overhead_s + sending_s) / 2,
        "faster network": 3 * sending_s / 4,
        "less overhead": 9 * overhead_s / 10,
    }
    return [each, max(parts)[1], max(saved, key=saved.get)]


def test_each_change_is_the_best_one_somewhere_and_each_part_the_longest():
    found = [find_exercise("3.4").solution(*args) for args in find_exercise("3.4").cases().values()]
    assert {part for _, part, _ in found} == {"overhead", "computing", "sending"}
    assert {change for *_, change in found} == {"larger minibatch", "faster network", "less overhead"}


class TestAnswers(RightAnswers, WrongAnswers):
    answers = answers
