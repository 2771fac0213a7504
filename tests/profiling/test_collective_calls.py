"""The recorded collectives: which, with whom, and the bytes that a ring sends, against arithmetic."""

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard

from d2lite.profiling import CollectiveCall, recorded_collectives
from tests.ranks import NEEDS_RANKS, pool_of

pytestmark = [
    NEEDS_RANKS,
    pytest.mark.filterwarnings("ignore:3 ranks share"),
]


pool = pool_of(3)


def one_of_each():
    rank, k = dist.get_rank(), dist.get_world_size()
    pair = dist.new_group([0, 2])
    with recorded_collectives() as calls:
        dist.all_reduce(torch.ones(30))
        dist.broadcast(torch.ones(30), src=1)
        dist.all_gather([torch.empty(10) for _ in range(k)], torch.ones(10))
        dist.all_gather_into_tensor(torch.empty(30), torch.ones(10))
        dist.reduce_scatter(torch.empty(10), list(torch.ones(30).chunk(k)))
        dist.reduce_scatter_tensor(torch.empty(10), torch.ones(30))
        dist.all_to_all_single(torch.empty(30), torch.ones(30))
        dist.barrier()  # has no tensor of ours, and is not counted
        if rank != 1:
            dist.all_reduce(torch.ones(5, dtype=torch.float64), group=pair)
    dist.all_reduce(torch.ones(3))  # after the block
    return calls


def test_names_ranks_and_bytes(pool):
    everyone, third = (0, 1, 2), 40.0  # bytes of a third of 30 numbers
    expected = [
        CollectiveCall("all_reduce", everyone, 4 * third),
        CollectiveCall("broadcast", everyone, 2 * third),
        CollectiveCall("all_gather", everyone, 2 * third),
        CollectiveCall("all_gather", everyone, 2 * third),
        CollectiveCall("reduce_scatter", everyone, 2 * third),
        CollectiveCall("reduce_scatter", everyone, 2 * third),
        CollectiveCall("all_to_all", everyone, 2 * third),
    ]
    for rank, calls in enumerate(pool.run(one_of_each)):
        found = [(c.name, c.ranks, pytest.approx(c.sent_n_bytes)) for c in calls]
        wanted = [*expected, *([CollectiveCall("all_reduce", (0, 2), 40.0)] if rank != 1 else [])]
        assert found == [(c.name, c.ranks, c.sent_n_bytes) for c in wanted]


def uneven():
    """Rank 0 keeps 1 row, and sends 2 to rank 1 and 3 to rank 2; the others send nothing."""
    rank = dist.get_rank()
    sends = [1, 2, 3] if rank == 0 else [0, 0, 0]
    with recorded_collectives() as calls:
        dist.all_to_all_single(
            torch.empty([1, 2, 3][rank], 2), torch.ones(sum(sends), 2), [[1, 2, 3][rank], 0, 0], sends
        )
        if rank < 2:
            partner = 1 - rank
            send, receive = torch.ones(4), torch.empty(4)
            ops = [dist.P2POp(dist.isend, send, partner), dist.P2POp(dist.irecv, receive, partner)]
            for work in dist.batch_isend_irecv(ops):
                work.wait()
    return [(call.name, call.sent_n_bytes) for call in calls]


def test_what_stays_on_the_rank_is_not_sent(pool):
    found = pool.run(uneven)
    assert found[0] == [("all_to_all", pytest.approx(40)), ("send", 16)]
    assert found[1] == [("all_to_all", 0), ("send", 16)] and found[2] == [("all_to_all", 0)]


def by_dtensor():
    mesh = init_device_mesh("cpu", (3,))
    whole = torch.arange(30.0)
    tensor = DTensor.from_local(whole.chunk(3)[dist.get_rank()], mesh, [Shard(0)])
    with recorded_collectives() as calls:
        same = bool((tensor.redistribute(placements=[Replicate()]).to_local() == whole).all())
    return same, [(call.name, call.ranks, call.sent_n_bytes) for call in calls]


def test_collectives_of_pytorchs_own_layers_are_recorded(pool):
    for same, calls in pool.run(by_dtensor):
        assert same and calls == [("all_gather", (0, 1, 2), 80)]


def in_backward():
    from d2lite.labs.chapter_14 import copy_to_ranks

    X = torch.ones(30, requires_grad=True)
    with recorded_collectives() as calls:
        copy_to_ranks(X).sum().backward()
    return [call.name for call in calls], X.grad.tolist() == [3.0] * 30


def test_the_backward_pass_is_recorded(pool):
    assert pool.run(in_backward) == [(["all_reduce"], True)] * 3


def not_counted():
    import warnings

    with recorded_collectives() as calls, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dist.reduce(torch.ones(3), dst=0)
    return calls, [str(each.message) for each in caught]


def test_a_collective_that_is_not_counted_is_named(pool):
    for calls, said in pool.run(not_counted):
        assert calls == [] and said == ["recorded_collectives does not count the operator reduce_."]
