import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from d2lite.training.replicate import replicate
from d2lite.training.scatter import gather, scatter, split_batch

CPU = torch.device("cpu")


@given(n=st.integers(1, 60), k=st.integers(1, 9))
def test_split_batch_loses_nothing_and_is_even(n, k):
    X, y = torch.arange(2 * n).view(n, 2), torch.arange(n)
    if n < k:
        with pytest.raises(ValueError, match=f"one example for each of {k} devices, got {n}"):
            split_batch(X, y, [CPU] * k)
        return
    X_shards, y_shards = split_batch(X, y, [CPU] * k)
    sizes = [len(s) for s in X_shards]
    assert len(sizes) == k and max(sizes) - min(sizes) <= 1 and sizes == [len(s) for s in y_shards]
    assert torch.equal(torch.cat(X_shards), X) and torch.equal(torch.cat(y_shards), y)


def test_split_batch_refuses():
    with pytest.raises(ValueError, match="got 4 examples and 3 labels"):
        split_batch(torch.zeros(4, 1), torch.zeros(3), [CPU])
    with pytest.raises(ValueError, match="devices: expected at least one device, got none"):
        split_batch(torch.zeros(4, 1), torch.zeros(4), [])
    with pytest.raises(TypeError, match="devices: expected a list of devices, got device"):
        split_batch(torch.zeros(4, 1), torch.zeros(4), CPU)


def test_parameters_from_an_iterator_reach_each_replica():
    net = torch.nn.Linear(3, 2)
    for replica in replicate(net.parameters(), [CPU] * 3):
        assert all(torch.equal(p, q) for p, q in zip(replica, net.parameters(), strict=True))


@given(k=st.integers(1, 9))
def test_replicas_share_no_storage(k):
    params = [torch.randn(3, 2), torch.zeros(2)]
    copies = replicate(params, [CPU] * k)
    everything = [*params, *(p for replica in copies for p in replica)]
    assert len({p.untyped_storage().data_ptr() for p in everything}) == len(everything)
    assert all(p.requires_grad and p.is_leaf for replica in copies for p in replica)
    assert all(torch.equal(p, q) for replica in copies for p, q in zip(replica, params, strict=True))


@given(n=st.integers(0, 20), k=st.integers(1, 9))
def test_gather_undoes_scatter(n, k):
    tensor = torch.arange(3 * n).view(n, 3)
    shards = scatter(tensor, [CPU] * k)
    assert len(shards) == k and torch.equal(gather(shards), tensor)
    assert max(map(len, shards)) - min(map(len, shards)) <= 1
    with pytest.raises(ValueError, match="devices: expected at least one device, got none"):
        scatter(tensor, [])
