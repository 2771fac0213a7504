import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from d2lite.collectives.on_devices import all_reduce
from d2lite.labs.chapter_04 import all_reduce_many, assign_owners

SHAPES = st.lists(st.integers(0, 4), max_size=3)


@given(k=st.integers(1, 5), shapes=st.lists(SHAPES, max_size=6), op=st.sampled_from(["sum", "mean"]))
def test_all_reduce_many_equals_all_reduce(k, shapes, op):
    device_tensors = [[torch.randn(shape, dtype=torch.float64) for shape in shapes] for _ in range(k)]
    expected = [getattr(torch.stack(tensors), op)(0) for tensors in zip(*device_tensors, strict=True)]
    all_reduce_many(device_tensors, op)
    for tensors in device_tensors:
        assert all(torch.equal(t, first) for t, first in zip(tensors, device_tensors[0], strict=True))
        torch.testing.assert_close(tensors, expected)


def test_all_reduce_many_adds_on_the_owner():
    device_tensors = [[torch.randn(50), torch.randn(100)] for _ in range(3)]
    rotated = [device_tensors[i][0].clone() for i in (1, 2, 0)]  # the smaller one is for device 1
    all_reduce(rotated)
    all_reduce_many(device_tensors)
    assert torch.equal(device_tensors[0][0], rotated[0])  # bit for bit: whose are added first shows in the rounding


@given(sizes=st.lists(st.integers(0, 1000), max_size=12), k=st.integers(1, 5))
def test_assign_owners_is_never_far_from_even(sizes, k):
    owners = assign_owners(sizes, k)
    loads = [sum(size for size, owner in zip(sizes, owners, strict=True) if owner == i) for i in range(k)]
    assert sum(loads) == sum(sizes)
    assert max(loads) <= sum(sizes) / k + (1 - 1 / k) * max(sizes, default=0) + 1e-9  # Graham 1966, for any order


def test_all_reduce_many_shares_lenet_s_gradients_by_size():
    sizes = [180, 20, 25_000, 50, 102_400, 128, 1280, 10]
    owners = assign_owners(sizes, 2)
    assert [sum(s for s, owner in zip(sizes, owners, strict=True) if owner == i) for i in (0, 1)] == [102_400, 26_668]


def test_all_reduce_many_refuses_what_makes_no_sense():
    one = torch.ones(3)
    with pytest.raises(ValueError, match=r"expected lists of one length, one per device, got lengths \[1, 0\]"):
        all_reduce_many([[torch.ones(1)], []])
    with pytest.raises(ValueError, match="expected lists of one length, one per device, got lengths"):
        all_reduce_many([])
    with pytest.raises(ValueError, match=r"device_tensors\[1\]\[0\] shares its memory"):
        all_reduce_many([[one], [one]])
    with pytest.raises(ValueError, match="op: expected one of sum, mean, got 'max'"):
        all_reduce_many([[one], [one.clone()]], "max")


def test_all_reduce_many_sees_what_different_parameters_share():
    one, two, three = torch.ones(3), torch.ones(3), torch.ones(3)
    with pytest.raises(ValueError, match=r"device_tensors\[1\]\[1\] shares its memory with device_tensors\[0\]\[0\]"):
        all_reduce_many([[one, two], [three, one]])
    with pytest.raises(ValueError, match=r"device_tensors\[0\]\[1\] shares its memory with device_tensors\[0\]\[0\]"):
        all_reduce_many([[one, one], [two, three]])
    assert one.tolist() == two.tolist() == three.tolist() == [1, 1, 1]


def test_assign_owners_refuses_what_makes_no_sense():
    with pytest.raises(ValueError, match="k: expected a positive whole number, got 0"):
        assign_owners([1], 0)
    with pytest.raises(ValueError, match=r"sizes\[0\]: expected a whole number from 0 on, got -1"):
        assign_owners([-1], 2)
