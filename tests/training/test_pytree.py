"""What tensors are found in, and what stays as it is."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from d2lite.training.data_parallel import DataParallel
from d2lite.training.pytree import map_tensors, tensors_in


def test_without_others_everything_else_stays_as_it_is():
    X, others = torch.ones(2), [math.nan, np.arange(3), {1, 2}, object(), None, "text"]
    found = map_tensors(torch.neg, {"X": X, "others": others})
    assert torch.equal(found["X"], -X)
    assert all(a is b for a, b in zip(found["others"], others, strict=True))
    assert tensors_in(X, *others) == [X]


def test_with_others_what_differs_is_an_error():
    value = [torch.ones(1), None, "a", True]
    assert map_tensors(torch.add, value, value) == [torch.tensor([2.0]), None, "a", True]
    with pytest.raises(ValueError, match="expected the same value from each replica, got .True, False."):
        map_tensors(torch.add, True, False)
    with pytest.raises(ValueError, match="expected tensors, tuples, lists, dicts and dataclasses as output, got nan"):
        map_tensors(torch.add, math.nan, math.nan)


class Weighted(nn.Module):
    def forward(self, X, weights, fill):
        return (X * torch.from_numpy(weights)).nan_to_num(fill)


def test_arrays_and_nan_go_to_each_replica():
    X, weights = torch.ones(5, 3), np.array([1.0, 2.0, 3.0])
    net = DataParallel(Weighted(), ["cpu"] * 2)
    assert torch.equal(net(X, weights, fill=math.nan), Weighted()(X, weights, math.nan))
