"""Messages between ranks inside an answer: they arrive as without the watch, and a wait that cannot end is named."""

import pytest
import torch
import torch.distributed as dist

from d2lite.exercises import Lockstep
from tests.ranks import NEEDS_RANKS, pool_of

pytestmark = [NEEDS_RANKS, pytest.mark.filterwarnings("ignore:3 ranks share")]
pool = pool_of(3)


def called(answer):
    """What an answer returns on this rank, or the error that it raises."""
    rank, k = dist.get_rank(), dist.get_world_size()
    try:
        return Lockstep().call(answer, rank, (rank + 1) % k, (rank - 1) % k)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def on_ranks(pool, answer):
    return pool.run(called, answer)


def isend_in_a_ring(rank, after, before):
    tensor, own = torch.zeros(2), torch.full((2,), float(rank))
    work = dist.isend(own, after)
    dist.recv(tensor, src=before)
    work.wait()
    return tensor.tolist()


def irecv_in_a_ring(rank, after, before):
    tensor, own = torch.full((2,), -1.0), torch.full((2,), float(rank))
    work = dist.irecv(tensor, before)
    dist.send(own, dst=after)
    early = tensor.tolist()
    work.wait()
    assert early == [-1.0, -1.0] and work.is_completed()  # not before it is waited for
    return tensor.tolist()


def batch_in_a_ring(rank, after, before):
    tensor, own = torch.zeros(2), torch.full((2,), float(rank))
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, own, after), dist.P2POp(dist.irecv, tensor, before)])
    for work in works:
        work.wait()
    return tensor.tolist()


@pytest.mark.parametrize("answer", [isend_in_a_ring, irecv_in_a_ring, batch_in_a_ring])
def test_messages_arrive(pool, answer):
    assert on_ranks(pool, answer) == [[2.0, 2.0], [0.0, 0.0], [1.0, 1.0]]


def by_tags(rank, after, before):
    one, other = torch.zeros(1), torch.zeros(1)
    if rank == 0:
        works = [dist.isend(torch.tensor([float(tag)]), 1, tag=tag) for tag in (5, 6)]
        for work in works:
            work.wait()
    if rank == 1:
        dist.recv(one, group_src=0, tag=6)
        dist.recv(other, 0, tag=5)
    return one.item(), other.item()


def before_a_collective(rank, after, before):
    tensor = torch.zeros(1)
    if rank == 1:
        dist.send(torch.ones(1), 0)
    if rank == 0:
        assert dist.recv(tensor, 1) == 1
    dist.all_reduce(tensor)
    return tensor.item()


def sends_and_returns(rank, after, before):
    """Rank 0 has returned when rank 1 asks for its message."""
    tensor = torch.zeros(1)
    if rank == 0:
        dist.isend(torch.ones(1), 1)
    if rank == 1:
        dist.recv(torch.zeros(1), 2)
        dist.recv(tensor, 0)
    if rank == 2:
        dist.send(torch.ones(1), 1)
    return tensor.item()


def test_tags_collectives_and_an_early_return_go_together_with_messages(pool):
    assert on_ranks(pool, by_tags)[1] == (6.0, 5.0)
    assert on_ranks(pool, before_a_collective) == [1.0, 1.0, 1.0]
    assert on_ranks(pool, sends_and_returns) == [0.0, 1.0, 0.0]


def both_send_first(rank, after, before):
    if rank < 2:
        dist.send(torch.ones(1), 1 - rank)
        dist.recv(torch.ones(1), 1 - rank)


def waits_beside_a_collective(rank, after, before):
    if rank == 0:
        dist.recv(torch.ones(1), 2, tag=4)
    else:
        dist.barrier()


def other_size(rank, after, before):
    if rank == 0:
        dist.send(torch.ones(4), 1)
    if rank == 1:
        dist.recv(torch.ones(3), 0)


def other_dtype(rank, after, before):
    if rank == 0:
        dist.send(torch.ones(4, dtype=torch.float64), 1)
    if rank == 1:
        dist.recv(torch.ones(4), 0)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (both_send_first, "rank 0 waits in send to rank 1, rank 1 waits in send to rank 0, rank 2 returns."),
        (waits_beside_a_collective, "rank 0 waits in recv from rank 2 with tag 4, rank 1 calls barrier, rank 2 calls"),
        (other_size, "rank 0 sends 4 numbers to rank 1, which expects 3."),
        (other_dtype, "rank 0 sends 4 numbers (float64) to rank 1, which expects 4 (float32)."),
    ],
)
def test_a_wait_that_cannot_end_is_unfit_on_all_ranks(pool, answer, words):
    for got in on_ranks(pool, answer):
        assert got.startswith("Unfit: ") and words in got
    assert on_ranks(pool, isend_in_a_ring)[0] == [2.0, 2.0]  # nothing is left over


def sends_none(rank, after, before):
    dist.send(None, after) if rank == 1 else dist.recv(torch.ones(1), before)


def sends_to_itself(rank, after, before):
    dist.send(torch.ones(1), rank) if rank == 1 else dist.recv(torch.ones(1), before)


def sends_columns(rank, after, before):
    dist.send(torch.ones(2, 3).T, after) if rank == 1 else dist.recv(torch.ones(6), before)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (sends_none, "TypeError: send: expected a tensor, got None"),
        (sends_to_itself, "ValueError: send on rank 1: dst is one of the other ranks from 0 to 2, got 1"),
        (sends_columns, "ValueError: send: expected a contiguous tensor"),
    ],
)
def test_the_error_of_the_rank_that_others_wait_for_is_what_is_shown(pool, answer, error):
    first, second, third = on_ranks(pool, answer)
    assert second.startswith(error)
    assert first.startswith(f"Unfit: on rank 1 it raised {error}") and third == first
