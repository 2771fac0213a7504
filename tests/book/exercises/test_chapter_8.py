"""Answers to the exercises of chapter 8: right ones of other forms, and wrong ones that are not among its mistakes."""

import dataclasses
import math
import os

import numpy as np
import pytest
import torch

from d2lite.exercises import check
from d2lite.exercises.specifications import find_exercise
from tests.book.exercises.scoring import Answers, RightAnswers, WrongAnswers
from tests.by_value import by_value

answers = Answers()
right, wrong = answers.right, answers.wrong


@right("8.1")
def lists_for_pairs(arrivals_s, end_s):
    return [[max(arrivals_s) - arrival, end_s - max(arrivals_s)] for arrival in arrivals_s]


@right("8.1")
def as_a_tensor(arrivals_s, end_s):
    arrivals = torch.tensor(arrivals_s)
    return torch.stack([arrivals.max() - arrivals, (end_s - arrivals.max()).expand(len(arrivals))], dim=1)


@right("8.1")
def with_zip(arrivals_s, end_s):
    last = np.max(arrivals_s)
    return zip(last - np.array(arrivals_s), [end_s - last] * len(arrivals_s), strict=False)


@wrong("8.1", "expected [(2, 1), (0, 1), (0.5, 1)]")
def since_the_last_in_the_list(arrivals_s, end_s):
    return [(arrivals_s[-1] - arrival, end_s - arrivals_s[-1]) for arrival in arrivals_s]


@right("8.2")
def halves_first(overhead_s, s_per_example, all_reduce_s):
    return max(math.ceil(all_reduce_s / (s_per_example / 2)), 2)


@right("8.3")
def fraction_first(k, low, high):
    return (low + k * high) / (k + 1)


@right("8.4")
def with_a_loop_over_numbers(ready_s, send_s):
    free = ready_s[0]
    for i in range(len(ready_s)):
        free = ready_s[i] + send_s[i] if ready_s[i] > free else free + send_s[i]
    return free


@right("8.4")
def as_float32(ready_s, send_s):
    free = np.float32(0)
    for ready, seconds in zip(ready_s, send_s, strict=False):
        free = np.maximum(free, np.float32(ready)) + np.float32(seconds)
    return free


@wrong("8.4", "the link waits for the first and the second bucket only")
def one_gap(ready_s, send_s):
    if len(ready_s) == 1:
        return ready_s[0] + send_s[0]
    return max(ready_s[0] + send_s[0], ready_s[1]) + sum(send_s[1:])


@wrong("8.4", "expected 36, got 17")
def two_gaps(ready_s, send_s):
    return max(ready_s[i] + sum(send_s[i:]) for i in range(min(3, len(ready_s))))


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
    assert not check(dataclasses.replace(find_exercise("8.2"), limit_s=0.5), tries_them_all).solved
    assert "it took longer than 0.5 s" in capsys.readouterr().out


class TestAnswers(RightAnswers, WrongAnswers):
    answers = answers
