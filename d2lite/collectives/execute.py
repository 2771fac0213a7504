"""Execute a plan on tensors: add or keep each chunk that is received, and log what is sent."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from d2lite.collectives.schedule import Move, Plan
from d2lite.trace import Send, Trace
from notebook_ranks.shared.checks import one_of

__all__ = ["exchange", "execute", "rows", "write_chunk"]


def write_chunk(own: torch.Tensor, received: torch.Tensor, op: str | None = None) -> None:
    """Write a received chunk into a device's own, in place.

    With op="sum" or "mean" it is added; the mean's complete sum is divided once, on its owner. With op="max" the larger
    number stays in each place. With op=None the received chunk replaces the device's own.
    """
    if op is None:
        own.copy_(received)
    elif op == "max":
        torch.maximum(own, received, out=own)
    else:
        own.add_(received)


def exchange(moves: Sequence[Move], chunks: Sequence[Sequence[torch.Tensor]], op: str | None = None) -> None:
    """Make the moves of one step at the same time: `chunks[i][c]` is chunk c on device i.

    Every chunk is read before any is written. A received chunk is added to the device's own (op="sum" or "mean"),
    compared with it (op="max"), or replaces it (op=None).
    """
    sent = [chunks[m.src][m.chunk].to(chunks[m.dst][m.chunk].device, copy=True) for m in moves]
    for move, what in zip(moves, sent, strict=True):
        write_chunk(chunks[move.dst][move.chunk], what, op)


def execute(
    plan: Plan, chunks: Sequence[Sequence[torch.Tensor]], op: str | None = "sum", trace: Trace | None = None
) -> None:
    """Execute a plan in place on `chunks` (chunks[i][c] is chunk c on device i), and log it; op=None only copies."""
    if op is not None:
        one_of("op", op, ("sum", "mean", "max"))
    if trace is not None:
        _begin(trace, plan, chunks)
    with torch.no_grad():
        for moves in plan.reduce_steps:
            exchange(moves, chunks, op)
            _log(trace, moves, adds=True)
        if op == "mean":
            for c, owner in enumerate(plan.owners):
                chunks[owner][c].div_(len(chunks))
        for moves in plan.copy_steps:
            exchange(moves, chunks)
            _log(trace, moves, adds=False)


def _begin(trace: Trace, plan: Plan, chunks: Sequence[Sequence[torch.Tensor]]) -> None:
    """Empty a Trace for a plan: if it reduces, each device holds its own contribution, else only the owner."""
    k, num_chunks = len(chunks), len(chunks[0])
    starts = [[{i} if plan.reduce_steps or plan.owners[c] == i else () for c in range(num_chunks)] for i in range(k)]
    trace.start, trace.steps = [[frozenset(held) for held in row] for row in starts], []
    trace.collective = trace.algorithm = ""
    trace.chunk_n_bytes = [chunk.numel() * chunk.element_size() for chunk in chunks[0]]


def _log(trace: Trace | None, moves: Sequence[Move], adds: bool) -> None:
    """Append the moves of one step to a Trace, if there is one."""
    if trace is not None:
        step, sizes = len(trace.steps), trace.chunk_n_bytes
        trace.steps.append(
            [Send(step=step, src=m.src, dst=m.dst, chunk=m.chunk, n_bytes=sizes[m.chunk], adds=adds) for m in moves]
        )


@contextmanager
def rows(tensors: Sequence[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """Give each tensor as a row, a tensor with one dimension; what the block writes to it is in the tensor afterwards.

    Where the memory allows it, a row is a view of it. Any other row is a copy, which is written back after the block.
    Conjugate and negative views (x.conj(), x.conj().imag) are copied, too: their memory holds other numbers.
    """
    flat = [tensor.detach().resolve_conj().resolve_neg().reshape(-1) for tensor in tensors]
    yield flat
    with torch.no_grad():
        for tensor, row in zip(tensors, flat, strict=True):
            if row.data_ptr() != tensor.data_ptr():
                tensor.copy_(row.view(tensor.shape))
