"""Each wrong answer of chapter 7 draws its hint; right ones of any form are right."""

import itertools
import math

import pytest

from d2lite.exercises.chapter_7 import EXERCISES
from tests.exercises.answers import Answers, AnswerTests

answers = Answers()
right, wrong = answers.right, answers.wrong


@right("7.1")
def with_hosts(compute_s, n_bytes, num_hosts):
    saved_s = compute_s * (num_hosts - 1) / num_hosts
    return 2 * (num_hosts - 1) / num_hosts * n_bytes / saved_s


@wrong("7.1", "it lets the all-reduce take as long as all of the computing")
def all_computing_is_free(compute_s, n_bytes, num_hosts):
    return 2 * (num_hosts - 1) / num_hosts * n_bytes / compute_s


@wrong("7.1", "it lets the all-reduce take as long as the computing that remains")
def remaining_computing(compute_s, n_bytes, num_hosts):
    return 2 * (num_hosts - 1) / num_hosts * n_bytes / (compute_s / num_hosts)


@wrong("7.1", "it is in bits per second")
def bits(compute_s, n_bytes, num_hosts):
    return 8 * 2 * n_bytes / compute_s


@wrong("7.1", "it is half of what is expected")
def factor_forgotten(compute_s, n_bytes, num_hosts):
    return n_bytes / compute_s


@wrong("7.1", "it sends the gradients once")
def sent_once(compute_s, n_bytes, num_hosts):
    return n_bytes / (compute_s - compute_s / num_hosts)


@wrong("7.1", "whatever its arguments are")
def a_constant(compute_s, n_bytes, num_hosts):
    return 5_000_000.0


@right("7.2")
def by_trying(save_s, mean_s):
    tried = [save_s * 1.002**i for i in range(5_000)]
    return min(tried, key=lambda between_s: save_s / between_s + between_s / (2 * mean_s))


@wrong("7.2", "a factor is missing under the root")
def complete_interval_lost(save_s, mean_s):
    return math.sqrt(save_s * mean_s)


@wrong("7.2", "the factor under the root is upside down")
def upside_down(save_s, mean_s):
    return math.sqrt(save_s * mean_s / 2)


@wrong("7.2", "a root is missing")
def no_root(save_s, mean_s):
    return 2 * save_s * mean_s


@wrong("7.2", "it does not depend on how long saving takes")
def half_of_the_time(save_s, mean_s):
    return mean_s / 2


@wrong("7.2", "saving is cheap if it is short")
def saves_less_if_cheap(save_s, mean_s):
    return math.sqrt(2 * mean_s / save_s)


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


@wrong("7.3", "by their number, wherever they are")
def by_number(host_of):
    return [gpu for gpu, _ in enumerate(host_of)]


@wrong("7.3", "the ring goes from host to host with every step")
def in_turn(host_of):
    groups = [[gpu for gpu, other in enumerate(host_of) if other == host] for host in sorted(set(host_of))]
    return [gpu for turn in itertools.zip_longest(*groups) for gpu in turn if gpu is not None]


@wrong("7.3", "it returns the numbers of the hosts")
def numbers_of_hosts(host_of):
    return sorted(host_of)


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


@wrong("7.4", "the second number is for twice as many examples")
def twice_the_examples(compute_s, n_bytes, bandwidth_bytes_per_s):
    sending_s = n_bytes / bandwidth_bytes_per_s
    return [compute_s + sending_s / 2, 2 * compute_s + sending_s, compute_s + sending_s / 10]


@wrong("7.4", "leaves out that twice the minibatch is twice the computing")
def computing_stays(compute_s, n_bytes, bandwidth_bytes_per_s):
    sending_s = n_bytes / bandwidth_bytes_per_s
    return [compute_s + sending_s / 2, compute_s + sending_s, compute_s + sending_s / 10]


@wrong("7.4", "halves the computing of the same examples")
def all_is_halved(compute_s, n_bytes, bandwidth_bytes_per_s):
    sending_s = n_bytes / bandwidth_bytes_per_s
    return [compute_s + sending_s / 2, (compute_s + sending_s) / 2, compute_s + sending_s / 10]


@wrong("7.4", "bytes are taken for bits")
def bytes_for_bits(compute_s, n_bytes, bandwidth_bytes_per_s):
    return as_a_tuple(compute_s, 8 * n_bytes, bandwidth_bytes_per_s)


@wrong("7.4", "it is the sending alone")
def only_sending(compute_s, n_bytes, bandwidth_bytes_per_s):
    return as_a_tuple(0, n_bytes, bandwidth_bytes_per_s)


@wrong("7.4", "the sending is hidden behind the computing")
def hidden(compute_s, n_bytes, bandwidth_bytes_per_s):
    sending_s = n_bytes / bandwidth_bytes_per_s
    return [max(compute_s, sending_s / parts) for parts in (2, 2, 10)]


@pytest.mark.parametrize("name", EXERCISES)
def test_each_mistake_has_a_hint_of_its_own(score, name):
    for mistake in EXERCISES[name].mistakes:
        assert score(name, mistake.answer).wrong == mistake.wrong


class TestAnswers(AnswerTests):
    exercises, answers = EXERCISES, answers
