"""The same plans executed by real ranks: each rank sends and receives its own part with torch.distributed."""

from collections.abc import Sequence

import torch
import torch.distributed as dist

from d2lite.collectives.execute import rows, write_chunk
from d2lite.collectives.plans import cut_into_chunks, make_plan
from d2lite.collectives.schedule import Move
from d2lite.collectives.tensor_checks import check_each, check_memory, check_op

__all__ = ["all_reduce_on_ranks"]


def all_reduce_on_ranks(
    tensor: torch.Tensor, op: str = "sum", algorithm: str = "ring", per_host: int | None = None
) -> None:
    """Replace this rank's `tensor`, in place, by the sum, the mean or the maximum of the tensors of all ranks.

    Like torch.distributed.all_reduce it must be called on every rank of the process group. The result is that of
    `all_reduce` with the same algorithm, bit for bit: both execute the same plan. With NCCL, a different collective
    must come first in the process group, for example dist.barrier(): the first batch of sends and receives must
    include all ranks (PyTorch's documentation of batch_isend_irecv), and not every algorithm begins with all of them.

    Args:
        tensor: this rank's tensor, with the same shape and dtype on all ranks.
        op: "sum", "mean" or "max".
        algorithm: one of ALGORITHMS: "naive", "tree", "ring", "ring both ways", "two-level", "parameter server" or
            "all pairs".
        per_host: the number of ranks on each host, for the algorithm "two-level" only.

    Raises:
        ValueError: if the tensor is sparse, overlaps itself or was made in inference mode (outside of which it cannot
            be written to), its dtype does not fit `op`, `op` or `algorithm` is unknown, or `per_host` does not
            divide the number of ranks. Nothing has been sent then. What the ranks pass is not compared: if they differ
            in shape, algorithm or number of calls, they fail in torch.distributed or wait for each other.
        TypeError: if an argument has the wrong type.
    """
    check_op(op)
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
