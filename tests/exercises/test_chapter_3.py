"""Each wrong answer of chapter 3 draws its hint; right ones of any form are right."""

from collections import OrderedDict
from dataclasses import replace
from itertools import accumulate

import torch
from torch import nn

from d2lite import split_batch
from d2lite.costs import predict_scaling
from d2lite.exercises.chapter_3 import EXERCISES
from tests.exercises.answers import Answers, AnswerTests

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


@wrong("3.1", "the dictionary that it was given is changed: whoever")
def changes_the_given(state, prefix="module."):
    for name in list(state):
        if name.startswith(prefix):
            state[name[len(prefix) :]] = state.pop(name)
    return state


@wrong("3.1", "the dictionary that it was given is changed, and nothing is returned")
def of_torch(state, prefix="module."):
    nn.modules.utils.consume_prefix_in_state_dict_if_present(state, prefix)


@wrong("3.1", "the prefix is also removed inside of names")
def replaces(state, prefix="module."):
    return {name.replace(prefix, ""): value for name, value in state.items()}


@wrong("3.1", "the prefix is removed more than once")
def repeats(state, prefix="module."):
    found = {}
    for name, value in state.items():
        while name.startswith(prefix):
            name = name[len(prefix) :]
        found[name] = value
    return found


@wrong("3.1", "names that do not have the prefix are cut as well")
def cuts(state, prefix="module."):
    return {name[len(prefix) :]: value for name, value in state.items()}


@wrong("3.1", "lstrip takes a set of letters")
def strips(state, prefix="module."):
    return {name.lstrip(prefix): value for name, value in state.items()}


@wrong("3.1", "names that do not have the prefix are left out")
def leaves_out(state, prefix="module."):
    return {name[len(prefix) :]: value for name, value in state.items() if name.startswith(prefix)}


@wrong("3.1", "the argument prefix is not used")
def fixed(state, prefix="module."):
    return {name.removeprefix("module."): value for name, value in state.items()}


@wrong("3.1", "everything up to the first point is removed")
def first_point(state, prefix="module."):
    return {name[name.find(".") + 1 :]: value for name, value in state.items()}


@wrong("3.1", "it returns the names alone")
def names(state, prefix="module."):
    return [name.removeprefix(prefix) for name in state]


@right("3.2")
def a_float(num_replicas, batch_size):
    return float(num_replicas)


@wrong("3.2", "it gives 4 in every case")
def constant(num_replicas, batch_size):
    return 4


@wrong("3.2", "nothing is divided")
def one(num_replicas, batch_size):
    return 1.0


@wrong("3.2", "it is the size of the minibatch")
def by_batch(num_replicas, batch_size):
    return batch_size


@wrong("3.2", "it is the size of a shard")
def by_shard(num_replicas, batch_size):
    return batch_size / num_replicas


@wrong("3.2", "it counts the size of the minibatch as well")
def by_both(num_replicas, batch_size):
    return num_replicas * batch_size


@wrong("3.2", "it is the number to multiply by")
def factor(num_replicas, batch_size):
    return 1 / num_replicas


@wrong("3.2", "twice")
def squared(num_replicas, batch_size):
    return num_replicas**2


@wrong("3.2", "in every case it gives 2 times what is expected")
def twice(num_replicas, batch_size):
    return 2 * num_replicas


def cut(X, y, sizes):
    return X.split(sizes), y.split(sizes)


@right("3.4")
def one_by_one(X, y, devices, speeds):
    sizes = [0] * len(devices)
    for _ in range(len(X)):  # each example to the device that ends first with it
        ends = [(size + 1) / speed for size, speed in zip(sizes, speeds, strict=True)]
        sizes[ends.index(min(ends))] += 1
    return cut(X, y, sizes)


@right("3.4")
def rounded_cuts(X, y, devices, speeds):
    places = [int(len(X) * part / sum(speeds) + 0.5) for part in accumulate(speeds)][:-1]
    return [list(X.tensor_split(places)), list(y.tensor_split(places))]


@right("3.4")
def rest_to_the_fastest(X, y, devices, speeds):
    sizes = [int(len(X) * speed / sum(speeds)) for speed in speeds]
    sizes[speeds.index(max(speeds))] += len(X) - sum(sizes)
    return cut(X, y, sizes)


@wrong("3.4", "all shards are equally large")
def equal(X, y, devices, speeds):
    return split_batch(X, y, devices)


@wrong("3.4", "the slow device gets the larger shard")
def inverse(X, y, devices, speeds):
    return one_by_one(X, y, devices, [1 / speed for speed in speeds])


@wrong("3.4", "only the fastest device gets examples")
def fastest(X, y, devices, speeds):
    best = max(speeds)
    if min(speeds) == best:
        return split_batch(X, y, devices)
    return one_by_one(X, y, devices, [1.0 if speed == best else 1e-9 for speed in speeds])


@wrong("3.4", "the shares are sorted")
def in_order_of_speed(X, y, devices, speeds):
    return rounded_cuts(X, y, devices, sorted(speeds)[::-1])


@wrong("3.4", "what rounding leaves over all goes to the last device")
def rest_to_the_last(X, y, devices, speeds):
    sizes = [int(len(X) * speed / sum(speeds)) for speed in speeds]
    sizes[-1] += len(X) - sum(sizes)
    return cut(X, y, sizes)


@wrong("3.4", "shares are rounded down, and what is left over is in no shard")
def rest_lost(X, y, devices, speeds):
    ends = list(accumulate(int(len(X) * speed / sum(speeds)) for speed in speeds))
    begins = [0, *ends[:-1]]
    return tuple([t[a:b] for a, b in zip(begins, ends, strict=True)] for t in (X, y))


@wrong("3.4", "images and labels no longer belong together")
def labels_equal(X, y, devices, speeds):
    return rounded_cuts(X, y, devices, speeds)[0], y.tensor_split(len(devices))


@wrong("3.4", "its share grows with the square of its speed")
def squares(X, y, devices, speeds):
    return rounded_cuts(X, y, devices, [speed**2 for speed in speeds])


@wrong("3.4", "the order of the examples has changed")
def strided(X, y, devices, speeds):
    order = torch.arange(len(y)).flip(0)
    return rounded_cuts(X[order], y[order], devices, speeds)


@wrong("3.4", "an example is in more than one shard")
def overlapping(X, y, devices, speeds):
    return [X] * len(devices), [y] * len(devices)


@wrong("3.4", "it does not return two lists, X_shards and y_shards")
def pairs(X, y, devices, speeds):
    return list(zip(*rounded_cuts(X, y, devices, speeds), strict=True))


def parts(step):
    return {
        "overhead": step.overhead_s, "computing": step.compute_s, "sending": step.exposed_s, "waiting": step.wait_s
    }  # fmt: skip


def longest(step):
    return max(parts(step), key=parts(step).get)


def best(changes, seconds):
    return min(changes, key=lambda name: seconds(changes[name]))


def epoch_s(setup):
    return predict_scaling(setup, 16).epoch_s


@right("3.5")
def predicted(setup, changes):
    return [setup.batch_size // 16, longest(predict_scaling(setup, 16).step), best(changes, epoch_s)]


@right("3.5")
def by_examples_per_second(setup, changes):
    def rate(change):
        return -change.batch_size / predict_scaling(change, 16).step.seconds

    return setup.batch_size / 16, longest(predict_scaling(setup, 16).step), best(changes, rate)


@wrong("3.5", "the number of examples is that of all GPUs together")
def all_examples(setup, changes):
    return setup.batch_size, longest(predict_scaling(setup, 16).step), best(changes, epoch_s)


@wrong("3.5", "larger than the minibatch")
def multiplied(setup, changes):
    return 16 * setup.batch_size, longest(predict_scaling(setup, 16).step), best(changes, epoch_s)


@wrong("3.5", "the part that takes longest is that of one GPU")
def one_gpu(setup, changes):
    return setup.batch_size / 16, longest(predict_scaling(setup, 1).step), best(changes, epoch_s)


@wrong("3.5", "as if it came after it")
def all_that_is_sent(setup, changes):
    step = predict_scaling(setup, 16).step
    return setup.batch_size / 16, longest(replace(step, exposed_s=step.communication_s)), best(changes, epoch_s)


@wrong("3.5", "it says that sending takes longest, whatever is predicted")
def always_sending(setup, changes):
    return setup.batch_size / 16, "sending", best(changes, epoch_s)


@wrong("3.5", "the change with the shortest step")
def shortest_step(setup, changes):
    chosen = best(changes, lambda change: predict_scaling(change, 16).step.seconds)
    return setup.batch_size / 16, longest(predict_scaling(setup, 16).step), chosen


@wrong("3.5", "the best one for a single GPU")
def best_of_one(setup, changes):
    chosen = best(changes, lambda change: predict_scaling(change, 1).epoch_s)
    return setup.batch_size / 16, longest(predict_scaling(setup, 16).step), chosen


@wrong("3.5", "the change with the longest epoch")
def the_longest(setup, changes):
    return (
        setup.batch_size / 16,
        longest(predict_scaling(setup, 16).step),
        max(changes, key=lambda n: epoch_s(changes[n])),
    )


@wrong("3.5", "a faster network is chosen, whatever is predicted")
def always_network(setup, changes):
    return setup.batch_size / 16, longest(predict_scaling(setup, 16).step), "a network four times as fast"


@wrong("3.5", "a larger minibatch is chosen, whatever is predicted")
def always_batch(setup, changes):
    return setup.batch_size / 16, longest(predict_scaling(setup, 16).step), "a minibatch twice as large"


def test_each_change_is_the_best_one_somewhere_and_each_part_the_longest():
    found = [EXERCISES["3.5"].solution(*args) for args in EXERCISES["3.5"].cases().values()]
    assert {part for _, part, _ in found} == {"overhead", "computing", "sending", "waiting"}
    assert {change for *_, change in found} == set(next(iter(EXERCISES["3.5"].cases().values()))[1])


class TestAnswers(AnswerTests):
    exercises, answers = EXERCISES, answers
