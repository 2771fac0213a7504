import math

import pytest
import torch

from d2lite import replicate, try_gpus
from d2lite.labs.chapter_11 import replica_drift


def test_drift_is_the_largest_distance_over_the_norm_of_replica_0():
    first = [torch.tensor([3.0]), torch.tensor([[0.0, 4.0]])]
    near, far = [torch.tensor([3.0]), torch.tensor([[0.0, 4.1]])], [torch.tensor([3.3]), torch.tensor([[0.0, 4.4]])]
    assert replica_drift([first, near]) == pytest.approx(0.1 / 5, rel=1e-5)
    assert replica_drift([first, near, far]) == pytest.approx(0.5 / 5, rel=1e-5)
    assert replica_drift([first, far, near]) == replica_drift([first, near, far])


def test_copies_and_a_single_replica_have_none():
    params = [torch.rand(3), torch.rand(2, 2)]
    assert replica_drift(replicate(params, try_gpus(3))) == 0.0
    assert replica_drift([params]) == 0.0
    assert replica_drift([[torch.zeros(2)], [torch.tensor([0.0, 2.0])]]) == 2.0  # no norm to divide by


def test_nan_is_seen_and_wrong_lists_are_refused():
    assert math.isnan(replica_drift([[torch.ones(2)], [torch.tensor([1.0, math.nan])]]))
    with pytest.raises(ValueError, match="expected at least one list of parameters, got none"):
        replica_drift([])
    with pytest.raises(ValueError, match=r"expected as many parameters on each device, got \[1, 2\]"):
        replica_drift([[torch.ones(2)], [torch.ones(2), torch.ones(1)]])
