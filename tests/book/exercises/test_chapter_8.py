"""Answers to the exercises of chapter 8: right ones of other forms."""

import dataclasses
import math
import os

import pytest

from d2lite.exercises import check
from d2lite.exercises.specifications import find_exercise
from tests.book.exercises.answers import Answers, RightAnswers
from tests.by_value import by_value

answers = Answers()
right = answers.right


@right("8.1")
def lists_for_pairs(arrivals_s, end_s):
    return [[max(arrivals_s) - arrival, end_s - max(arrivals_s)] for arrival in arrivals_s]


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
    assert "it took longer than 0.5 s." in capsys.readouterr().out


class TestAnswers(RightAnswers):
    answers = answers
