"""Which results are equal, and how they are shown."""

import math
from collections import OrderedDict
from types import MappingProxyType

import numpy as np
import pytest
import torch

from d2lite.exercises.compare import describe_value, ratio_of, same, shown, shown_apart
from d2lite.trace import Send

SEND = Send(step=0, src=1, dst=2, chunk=0, n_bytes=8, adds=True)


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        (3, 3.0),
        (0.1 + 0.2, 0.3),
        (1.0, 1.000001),  # 32-bit numbers, added in another order
        (torch.ones(2), torch.full((2,), 1.000001)),
        (0.3, torch.tensor(0.3)),
        (3, np.int64(3)),
        (0.5, np.float32(0.5)),
        ([1, 2], np.array([1, 2])),
        ([0.1, 0.2], np.array([0.1, 0.2], dtype=np.float32)),
        ([[1.0], [2.0]], np.array([[1], [2]])),
        ([], np.array([])),
        ([True, False], np.array([True, False])),
        ({"a": [1]}, {"a": np.array([1])}),
        ([(1, 2.5)], [np.array([1, 2.5])]),
        (np.array([1, 2]), [1, 2]),
        (True, torch.tensor(True)),
        (math.nan, math.nan),
        (math.inf, math.inf),
        ((1, 2), [1, 2]),
        ([1, [2.0]], (1, (2,))),
        ({"a": 1}, OrderedDict(a=1)),
        ({"a": [1]}, MappingProxyType({"a": (1,)})),
        (torch.ones(2), torch.ones(2, dtype=torch.float64)),
        (torch.tensor([math.nan]), torch.tensor([math.nan])),
        (torch.tensor([1j]), torch.tensor([1j])),
        (SEND, Send(step=0, src=1, dst=2, chunk=0, n_bytes=8, adds=True)),
        ({1, 2}, {2, 1}),
        (None, None),
        ("a", "a"),
    ],
)
def test_equal(expected, got):
    assert same(expected, got)


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        (10**15, 10**15 + 1),  # whole numbers are not rounded
        (3, 3.001),
        (1.0, 1.0001),  # more than rounding
        (torch.ones(2), torch.full((2,), 1.0001)),
        (1e-6, 2e-6),
        (1, True),
        (True, 1),
        (1, "1"),
        (0, None),
        (None, 0),
        (math.nan, 0.0),
        (math.inf, 1e308),
        ((1, 2), (2, 1)),
        ((1, 2), (1, 2, 3)),
        ({"a": 1}, {"a": 1, "b": 2}),
        (torch.ones(2), torch.ones(2, 1)),
        (torch.ones(2), [1.0, 1.0]),
        ([1.0, 1.0], torch.ones(2)),
        ([1, 2], np.array([1, 3])),
        ([1, 2], np.array([[1, 2]])),
        ([2, 1], np.array([1, 2])),
        (torch.ones(2), np.ones(2)),  # an array counts as a list
        (1.0, np.ones(1)),
        (SEND, Send(step=0, src=1, dst=2, chunk=0, n_bytes=8, adds=False)),
        ("ab", ["a", "b"]),
        (1.0, 1j),
    ],
)
def test_not_equal(expected, got):
    assert not same(expected, got)


def test_what_cannot_be_compared_is_not_equal():
    assert not same([1], [[]] and np.array([[1, 2]], dtype=object))
    ring = []
    ring.append(ring)
    assert not same(ring, ring)  # compared without end: a RecursionError


def test_values_are_shown_in_one_short_line():
    assert shown(0.1 + 0.2) == "0.3" and shown("a\nb") == r"'a\nb'"
    assert shown(torch.tensor([[1.0, 2.0]])) == "[[1.0, 2.0]]" or shown(torch.tensor([[1.0, 2.0]])) == "[[1, 2]]"
    assert shown(torch.zeros(30, 2)) == "a tensor [30, 2]"
    assert shown((1,)) == "(1,)" and shown({"a": [1]}) == "{'a': [1]}"
    assert shown(list(range(100))).endswith("19, ...]")
    assert len(shown(["x" * 100] * 100)) == len(shown(10**400 * "x" if False else "x" * 500)) == 160
    assert shown("\x1b[31m") == r"'\x1b[31m'" or "\x1b" not in shown("\x1b[31m")


def test_two_values_that_differ_are_shown_differently():
    assert shown_apart(0.3, 0.30000001) == ("0.29999999999999999", "0.30000000999999998")
    assert shown_apart([1.0], torch.ones(1))[1].endswith("(a tensor)")
    assert shown_apart(1, None) == ("1 (a number)", "None (nothing)")
    assert shown_apart([1, 2], np.array([1, 3])) == ("[1, 2]", "[1, 3]")
    assert shown_apart(torch.ones(2), np.ones(2)) == ("[1, 1] (a tensor)", "[1, 1] (an array)")
    # of entries the first one that differs, and of what is long the first number
    returned = {"parameters": [1.0, 2.0], "momenta": [3.0, 4.0]}
    assert shown_apart(returned, returned | {"momenta": [3.0, 5.0]}) == ("[3, 4] at ['momenta']", "[3, 5]")
    long, other = [[i, float(i)] for i in range(100)], [[i, float(i)] for i in range(100)]
    other[70][1] = 7.5
    assert shown_apart({"all": long}, {"all": other}) == ("[70, 70] at ['all'][70]", "[70, 7.5]")
    assert shown_apart(torch.arange(90.0), torch.arange(90.0) + (torch.arange(90) == 4)) == ("4 at [4]", "5")
    assert shown_apart(np.arange(200), np.arange(200) * 2) == ("1 at [1]", "2")
    assert shown_apart({"a": 1}, {"b": 1}) == ("{'a': 1}", "{'b': 1}")
    assert shown_apart(long, long[:-1])[0].endswith("...")  # another length: both are shown


def test_kinds_and_ratios():
    kinds = [describe_value(x) for x in (None, 1, True, "a", [1], {"a": 1}, torch.ones(1), {1})]
    assert kinds[:4] == ["nothing", "a number", "True or False", "a text"]
    assert kinds[4:] == ["a list", "a dictionary", "a tensor", "of the type set"]
    assert ratio_of(4, torch.tensor(2.0)) == 0.5
    assert [ratio_of(a, b) for a, b in ((0, 1), (1, 0), ("a", 1), (1, None), (True, 1), (1, math.inf))] == [None] * 6
