"""The same plans executed by real ranks: each rank sends and receives its own part with torch.distributed."""

from collections.abc import Sequence

import torch
import torch.distributed as dist

from d2lite.collectives.execute import rows, write_chunk
from d2lite.collectives.plans import cut_into_chunks, make_plan
from d2lite.collectives.schedule import Move
from d2lite.collectives.tensor_checks import OPS, check_each, check_memory
from notebook_ranks.shared.checks import one_of

__all__ = ["all_reduce_on_ranks"]


def all_reduce_on_ranks(
    tensor: torch.Tensor, op: str = "sum", algorithm: str = "ring", per_host: int | None = None
) -> None:
    """Replace this rank's `tensor`, in place, by the sum, the mean or the maximum (`op`) of the tensors of all ranks.

    Every rank must call it. It executes the plan of `all_reduce`, with the same result bit for bit, and refuses the
    same. What the ranks pass is not compared: if they differ, they fail in torch.distributed or wait for each other.

    With NCCL, another collective must come first in the process group, dist.barrier() for example: the first batch of
    sends and receives must include all ranks (PyTorch's documentation of batch_isend_irecv), and not every algorithm
    begins so.
    """
    one_of("op", op, OPS)
    check_each([tensor], op, "tensor")
    check_memory([tensor], ["tensor"])
    rank, k = dist.get_rank(), dist.get_world_size()
    plan = make_plan("all_reduce", algorithm, k, per_host=per_host)
    with rows([tensor]) as (row,), torch.no_grad():
        chunks = cut_into_chunks(row, k, len(plan.owners))
        for moves in plan.reduce_steps:
            _exchange(moves, chunks, rank, op)
        if op == "mean":
            for chunk, owner in zip(chunks, plan.owners, strict=True):
                if owner == rank:
                    chunk.div_(k)
        for moves in plan.copy_steps:
            _exchange(moves, chunks, rank)


def _exchange(moves: Sequence[Move], chunks: Sequence[torch.Tensor], rank: int, op: str | None = None) -> None:
    """Make this rank's moves of one step: send and receive at the same time, then write the received chunks."""
    moves = [move for move in moves if chunks[move.chunk].numel()]
    received = [(move, torch.empty_like(chunks[move.chunk])) for move in moves if move.dst == rank]
    sends = [dist.P2POp(dist.isend, chunks[m.chunk], m.dst, tag=m.chunk) for m in moves if m.src == rank]
    receives = [dist.P2POp(dist.irecv, what, move.src, tag=move.chunk) for move, what in received]
    # one batch: with NCCL, sends and receives that must run at the same time belong in one group (its user guide)
    for work in dist.batch_isend_irecv(sends + receives) if sends or receives else ():
        work.wait()
    for move, what in received:
        write_chunk(chunks[move.chunk], what, op)
