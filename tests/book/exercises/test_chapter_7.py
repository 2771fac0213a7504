"""Answers to the exercises of chapter 7: right ones of other forms, and wrong ones that are not among its mistakes."""

import numpy as np
import torch

from tests.book.exercises.scoring import Answers, RightAnswers, WrongAnswers

answers = Answers()
right, wrong = answers.right, answers.wrong


@right("7.1")
def with_hosts(compute_s, n_bytes, num_hosts):
    saved_s = compute_s * (num_hosts - 1) / num_hosts
    return 2 * (num_hosts - 1) / num_hosts * n_bytes / saved_s


@wrong("7.1", "whatever its arguments are")
def a_constant(compute_s, n_bytes, num_hosts):
    return 5_000_000.0


@wrong("7.1", "expected 7.5, got 7")
def whole_bytes(compute_s, n_bytes, num_hosts):
    return 2 * n_bytes // compute_s


@right("7.2")
def by_trying_tensors(save_s, mean_s):
    tried = save_s * 1.002 ** torch.arange(5_000)
    return tried[(save_s / tried + tried / (2 * mean_s)).argmin()]


@right("7.2")
def by_trying(save_s, mean_s):
    tried = [save_s * 1.002**i for i in range(5_000)]
    return min(tried, key=lambda between_s: save_s / between_s + between_s / (2 * mean_s))


@wrong("7.2", "whatever its arguments are")
def two_minutes(save_s, mean_s):
    return 120


@right("7.3")
def grouped_from_the_last_host(host_of):
    hosts = sorted(set(host_of), reverse=True)
    return [gpu for host in hosts for gpu, other in enumerate(host_of) if other == host]


@right("7.3")
def begins_inside_a_host(host_of):
    order = sorted(range(len(host_of)), key=lambda gpu: (host_of[gpu], gpu))
    return order[1:] + order[:1]


@right("7.3")
def with_numpy(host_of):
    return np.argsort(host_of)


@right("7.3")
def with_a_tensor(host_of):
    return torch.tensor(host_of).argsort()


@wrong("7.3", "it does not return a list of numbers of GPUs")
def fractions_of_gpus(host_of):
    return [float(gpu) for gpu in sorted(range(len(host_of)), key=host_of.__getitem__)]


@wrong("7.3", "the first GPU is there twice")
def closes_the_ring(host_of):
    order = sorted(range(len(host_of)), key=lambda gpu: host_of[gpu])
    return [*order, order[0]]


@wrong("7.3", "expected each of the GPUs 0 to 7 once, got [0, 4]")
def one_of_each_host(host_of):
    return [host_of.index(host) for host in sorted(set(host_of))]


@wrong("7.3", "it does not return a list of numbers of GPUs")
def lists_of_lists(host_of):
    return [[gpu for gpu, other in enumerate(host_of) if other == host] for host in sorted(set(host_of))]


@right("7.4")
def as_a_tuple(compute_s, n_bytes, bandwidth_bytes_per_s):
    sending_s = n_bytes / bandwidth_bytes_per_s
    return compute_s + sending_s / 2, (2 * compute_s + sending_s) / 2, compute_s + sending_s / 10


@right("7.4")
def as_an_array(compute_s, n_bytes, bandwidth_bytes_per_s):
    return compute_s + n_bytes / bandwidth_bytes_per_s / np.array([2.0, 2.0, 10.0])


@right("7.4")
def as_a_generator(compute_s, n_bytes, bandwidth_bytes_per_s):
    return (compute_s + n_bytes / bandwidth_bytes_per_s / factor for factor in (2, 2, 10))


class TestAnswers(RightAnswers, WrongAnswers):
    answers = answers
