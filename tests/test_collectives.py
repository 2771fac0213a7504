import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from d2lite.collectives import all_reduce

SHAPES = st.lists(st.integers(0, 4), max_size=3)


@given(k=st.integers(1, 9), shape=SHAPES, op=st.sampled_from(["sum", "mean"]), seed=st.integers(0, 99))
def test_all_reduce_equals_the_oracle_and_all_entries_are_equal(k, shape, op, seed):
    generator = torch.Generator().manual_seed(seed)
    tensors = [torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(k)]
    expected = getattr(torch.stack(tensors), op)(0)
    places = [t.data_ptr() for t in tensors]
    assert all_reduce(tensors, op=op) is None
    assert [t.data_ptr() for t in tensors] == places  # in place, nothing rebound
    torch.testing.assert_close(tensors[0], expected)
    assert all(torch.equal(t, tensors[0]) for t in tensors)


def test_all_reduce_leaves_no_graph():
    params = [torch.ones(2, requires_grad=True) for _ in range(2)]
    all_reduce(params)
    assert all(p.is_leaf and p.tolist() == [2, 2] for p in params)


def test_all_reduce_integers_and_the_mean_of_integers():
    tensors = [torch.tensor([1]), torch.tensor([2])]
    all_reduce(tensors)
    assert [t.item() for t in tensors] == [3, 3]
    with pytest.raises(ValueError, match='op="mean": expected floating point tensors, got torch.int64'):
        all_reduce(tensors, op="mean")


@pytest.mark.parametrize(
    ("tensors", "op", "error", "message"),
    [
        ([torch.ones(2)], "max", ValueError, 'op: expected "sum" or "mean", got \'max\''),
        ([], "sum", ValueError, "tensors: expected a list of tensors"),
        (torch.ones(2), "sum", ValueError, "tensors: expected a list of tensors"),
        ([torch.ones(2), None], "sum", TypeError, r"tensors\[1\]: expected a tensor, got NoneType"),
        ([torch.ones(2), torch.ones(3)], "sum", ValueError, r"tensors\[1\]: expected \(2,\)"),
        ([torch.ones(2), torch.ones(2).double()], "sum", ValueError, "float32.*got .*float64"),
    ],
)
def test_all_reduce_refuses(tensors, op, error, message):
    with pytest.raises(error, match=message):
        all_reduce(tensors, op=op)


def test_all_reduce_refuses_one_tensor_twice():
    one = torch.ones(2)
    with pytest.raises(ValueError, match=r"tensors\[2\] shares its memory with tensors\[0\]"):
        all_reduce([one, torch.ones(2), one.to("cpu")])
    assert one.tolist() == [1, 1]
