"""Each wrong answer of chapter 8 draws its hint; right ones of any form are right."""

import dataclasses
import math
import os

import pytest

from d2lite.exercises import check
from d2lite.exercises.chapter_8 import EXERCISES
from tests.by_value import by_value
from tests.exercises.answers import Answers, AnswerTests

answers = Answers()
right, wrong = answers.right, answers.wrong


@right("8.1")
def lists_for_pairs(arrivals_s, end_s):
    return [[max(arrivals_s) - arrival, end_s - max(arrivals_s)] for arrival in arrivals_s]


@wrong("8.1", "the sending of a rank begins when it is ready itself")
def sends_when_ready(arrivals_s, end_s):
    return [(max(arrivals_s) - arrival, end_s - arrival) for arrival in arrivals_s]


@wrong("8.1", "the waiting ends with the all-reduce")
def waits_to_the_end(arrivals_s, end_s):
    return [(end_s - arrival, end_s - max(arrivals_s)) for arrival in arrivals_s]


@wrong("8.1", "it gives how much later a rank is than the first one")
def late_ranks_wait(arrivals_s, end_s):
    return [(arrival - min(arrivals_s), end_s - max(arrivals_s)) for arrival in arrivals_s]


@wrong("8.1", "the two numbers of a pair are in the wrong order")
def swapped(arrivals_s, end_s):
    return [(end_s - max(arrivals_s), max(arrivals_s) - arrival) for arrival in arrivals_s]


@wrong("8.1", "it is a flat list")
def flat(arrivals_s, end_s):
    result = []
    for arrival in arrivals_s:
        result += [max(arrivals_s) - arrival, end_s - max(arrivals_s)]
    return result


@wrong("8.1", "it is one list of waits and one of sendings")
def two_lists(arrivals_s, end_s):
    waits = [max(arrivals_s) - arrival for arrival in arrivals_s]
    return waits, [end_s - max(arrivals_s)] * len(waits)


@wrong("8.1", "the pairs are not in the order of the ranks")
def sorted_by_time(arrivals_s, end_s):
    arrivals_s.sort()
    return [(arrivals_s[-1] - arrival, end_s - arrivals_s[-1]) for arrival in arrivals_s]


@right("8.2")
def halves_first(overhead_s, s_per_example, all_reduce_s):
    return max(math.ceil(all_reduce_s / (s_per_example / 2)), 2)


@wrong("8.2", "it compares the all-reduce with all of the computing")
def not_halved(overhead_s, s_per_example, all_reduce_s):
    return max(2, math.ceil(all_reduce_s / s_per_example))


@wrong("8.2", "it counts the overhead")
def with_overhead(overhead_s, s_per_example, all_reduce_s):
    return max(2, math.ceil(2 * (overhead_s + all_reduce_s) / s_per_example))


@wrong("8.2", "it asks for faster, and not slower is enough")
def faster(overhead_s, s_per_example, all_reduce_s):
    return max(2, int(2 * all_reduce_s // s_per_example) + 1)


@wrong("8.2", "it is rounded down")
def rounded_down(overhead_s, s_per_example, all_reduce_s):
    return max(2, int(2 * all_reduce_s / s_per_example))


@wrong("8.2", "it is rounded to the nearest")
def rounded(overhead_s, s_per_example, all_reduce_s):
    return max(2, round(2 * all_reduce_s / s_per_example))


@wrong("8.2", "one example cannot be divided")
def without_the_least(overhead_s, s_per_example, all_reduce_s):
    return math.ceil(2 * all_reduce_s / s_per_example)


@wrong("8.2", "it is always even")
def equal_halves(overhead_s, s_per_example, all_reduce_s):
    return 2 * max(1, math.ceil(all_reduce_s / s_per_example))


@right("8.3")
def fraction_first(k, low, high):
    return (low + k * high) / (k + 1)


@wrong("8.3", "it is the largest time that is possible")
def the_largest(k, low, high):
    return high


@wrong("8.3", "it is the mean of one rank, whatever k is")
def the_middle(k, low, high):
    return low + (high - low) / 2


@wrong("8.3", "it leaves the lower end out")
def without_low(k, low, high):
    return k / (k + 1) * high


@wrong("8.3", "it is the time above low")
def above_low(k, low, high):
    return k / (k + 1) * (high - low)


@wrong("8.3", "for one rank it gives the lowest time")
def one_part_too_few(k, low, high):
    return low + (high - low) * (1 - 1 / k)


@wrong("8.3", "it is the fastest of the k ranks")
def the_fastest(k, low, high):
    return low + (high - low) / (k + 1)


@wrong("8.3", "each further rank halves what is left")
def halves_what_is_left(k, low, high):
    return high - (high - low) / 2**k


@right("8.4")
def with_a_loop_over_numbers(ready_s, send_s):
    free = ready_s[0]
    for i in range(len(ready_s)):
        free = ready_s[i] + send_s[i] if ready_s[i] > free else free + send_s[i]
    return free


@wrong("8.4", "the last bucket is sent as soon as it is ready")
def last_alone(ready_s, send_s):
    return ready_s[-1] + send_s[-1]


@wrong("8.4", "every bucket is sent as soon as it is ready, several at a time")
def all_at_a_time(ready_s, send_s):
    return max(ready + send for ready, send in zip(ready_s, send_s, strict=True))


@wrong("8.4", "the link never waits")
def never_waits(ready_s, send_s):
    return ready_s[0] + sum(send_s)


@wrong("8.4", "nothing is sent before all gradients are ready")
def without_overlap(ready_s, send_s):
    return max(ready_s) + sum(send_s)


@wrong("8.4", "it is the time of sending alone")
def only_sending(ready_s, send_s):
    return sum(send_s)


@wrong("8.4", "the times at which the buckets are ready are added up")
def all_added(ready_s, send_s):
    return sum(ready_s) + sum(send_s)


@pytest.mark.parametrize("name", EXERCISES)
def test_each_mistake_has_a_hint_of_its_own(score, name):
    for mistake in EXERCISES[name].mistakes:
        assert score(name, mistake.answer).wrong == mistake.wrong


@by_value
def tries_them_all(overhead_s, s_per_example, all_reduce_s):
    b = 2
    while s_per_example * b / 2 < all_reduce_s:
        b += 1
    return b


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Workers needs Linux or macOS")
def test_trying_all_minibatches_takes_too_long(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("D2LITE_LEDGER", str(tmp_path / "ledger.json"))
    assert not check(dataclasses.replace(EXERCISES["8.2"], limit_s=0.5), tries_them_all).solved
    assert "it took longer than 0.5 s." in capsys.readouterr().out


class TestAnswers(AnswerTests):
    exercises, answers = EXERCISES, answers
