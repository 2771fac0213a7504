"""Values become data and come back; what is hostile, large or unknown becomes something harmless."""

import json
import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from d2lite.costs import Link
from d2lite.exercises.as_data import MOST_ITEMS, Other, Sealed, arguments_as_data, as_data, from_data
from d2lite.exercises.compare import same
from d2lite.exercises.observed import Raised, Unfit, Unusable


def through(value):
    return from_data(json.loads(json.dumps(as_data(value), allow_nan=False)))


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, 0, -3, 10**30, 1.5, 1e-300, "text", b"\x00\xff", 1 + 2j, {1, 2}, {"a": 1, 2: [3]}, (1, (2,)), []),
        *(torch.arange(6).view(2, 3), torch.zeros(0, 4), torch.tensor(1.5), torch.tensor([1 + 2j])),
        *(torch.tensor([1.0, math.inf]), torch.tensor([True, False]), torch.ones(2, dtype=torch.bfloat16)),
        *(np.arange(4.0).reshape(2, 2), np.float64(2.5), [np.int64(3)], torch.ones(2, requires_grad=True)),
    ],
    ids=str,
)
def test_a_value_comes_back(value):
    assert same(value, through(value)) and same(through(value), value)


def test_kinds_are_kept():
    assert math.isnan(through(math.nan)) and through(-math.inf) == -math.inf
    assert type(through((1, 2))) is tuple and type(through([1, 2])) is list
    assert through(torch.ones(2, 3).T).shape == (3, 2) and through(torch.ones(2).half()).dtype == torch.float16
    assert through(range(3)) == [0, 1, 2]


def test_what_stands_for_a_result_comes_back():
    assert through(Raised("ValueError", "no", True)) == Raised("ValueError", "no", True)
    assert through(Unfit("wrong", "think")).think == "think"
    assert through(Unusable([1], "why")) == Unusable([1], "why")


@dataclass
class Secret:
    steps: list

    def __repr__(self):
        return f"{len(self.steps)} steps"


def test_an_object_is_sealed():
    data = as_data(Secret([123456]))
    assert "123456" not in json.dumps(data) and str(from_data(data)) == "1 steps"
    assert from_data(data) == from_data(as_data(Secret([123456]))) != from_data(as_data(Secret([123457])))
    assert isinstance(from_data(data), Sealed)


def test_arguments_keep_their_fields_and_classes_are_named():
    (data,) = arguments_as_data([Link(1e-6, 2e9)])
    assert from_data(data, {"Link": Link}) == Link(1e-6, 2e9)
    with pytest.raises(ValueError):
        from_data(data)


def test_an_argument_may_be_the_text_other_and_must_have_a_form():
    args = ["other", {"other": ["other"]}, [1, "b"]]
    assert [from_data(arg) for arg in json.loads(json.dumps(arguments_as_data(args)))] == args
    for value in (len, [object()], 10**400, Link, np.array([None])):
        with pytest.raises(TypeError, match="the arguments of a case: expected numbers, texts, .* got "):
            arguments_as_data([value])


class Hostile:
    def __repr__(self):
        raise SystemExit

    __str__ = __class_getitem__ = __repr__


def test_what_is_no_data_equals_nothing_else():
    endless = []
    endless.append(endless)
    for value in (
        object(),
        endless,
        [0] * (MOST_ITEMS + 1),
        torch.zeros(MOST_ITEMS + 1),
        10**400,
        len,
        (i for i in "a"),
    ):
        assert isinstance(through(value), Other)
    assert through(object()) != through(len)


@pytest.mark.parametrize(
    "data",
    [
        {"object": "Popen", "fields": {}},
        {"tensor": [1, 2], "shape": [10**12], "dtype": "float32"},
        {"tensor": [1], "shape": [1], "dtype": "__class__"},
        {"unknown": 1},
        {},
        {"dict": [[{"dict": []}, 1]]},
        {"float": "x"},
        {"tensor": "x" * 100, "shape": [100], "dtype": "float32"},
    ],
)
def test_forged_data_is_refused(data):
    with pytest.raises(ValueError):
        from_data(data)


def test_deep_data_is_refused():
    data = []
    for _ in range(200):
        data = [data]
    with pytest.raises(ValueError, match="depth"):
        from_data(data)
