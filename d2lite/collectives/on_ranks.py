"""The same plans carried out by real ranks: each sends and receives its own part, by torch.distributed."""

import torch
import torch.distributed as dist

from d2lite.collectives.execute import WRITE, rows
from d2lite.collectives.on_devices import check_tensors
from d2lite.collectives.planner import cut, make_plan

__all__ = ["all_reduce_on_ranks"]


def all_reduce_on_ranks(tensor, op="sum", algorithm="ring", per_host=None):
    """Replace this rank's `tensor`, in place, by the sum, the mean or the maximum of those of all ranks.

    Called on every rank of the process group, like torch.distributed.all_reduce; shape and dtype must be the same on
    all. For `op`, `algorithm` and `per_host` see collectives.all_reduce, which does the same bit for bit.
    """
    check_tensors([tensor], op)
    rank, k = dist.get_rank(), dist.get_world_size()
    plan = make_plan("all_reduce", algorithm, k, per_host=per_host)
    with rows([tensor]) as (row,), torch.no_grad():
        chunks = cut(row, k, len(plan.owners))
        for moves in plan.reduce:
            _exchange(moves, chunks, rank, op)
        if op == "mean":
            for chunk, owner in zip(chunks, plan.owners, strict=True):
                if owner == rank:
                    chunk.div_(k)
        for moves in plan.spread:
            _exchange(moves, chunks, rank)


def _exchange(moves, chunks, rank, op=None):
    """This rank's part in the moves of one step: send and receive at the same time, then write what has come."""
    moves = [move for move in moves if chunks[move.chunk].numel()]
    came = [(move, torch.empty_like(chunks[move.chunk])) for move in moves if move.dst == rank]
    sends = [dist.P2POp(dist.isend, chunks[m.chunk], m.dst, tag=m.chunk) for m in moves if m.src == rank]
    receives = [dist.P2POp(dist.irecv, what, move.src, tag=move.chunk) for move, what in came]
    for work in dist.batch_isend_irecv(sends + receives) if sends or receives else ():  # NCCL wants them together
        work.wait()
    for move, what in came:
        WRITE[op](chunks[move.chunk], what)
