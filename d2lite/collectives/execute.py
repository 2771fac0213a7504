"""A plan carried out on tensors, one step after the other, with a log of what was sent."""

from contextlib import contextmanager

import torch

from d2lite.trace import Send

__all__ = ["WRITE", "execute", "exchange", "rows"]

WRITE = {  # what a device does with a chunk that it gets: write(mine, what_came)
    "sum": torch.Tensor.add_,
    "mean": torch.Tensor.add_,  # and one division, where the sum is whole
    "max": lambda mine, came: torch.maximum(mine, came, out=mine),
    None: torch.Tensor.copy_,
}


def exchange(moves, chunks, op=None):
    """Make the moves of one step at the same time: `chunks[i][c]` is chunk c on device i.

    All is read before anything is written. What comes is added (op="sum" or "mean"), compared (op="max") or copied.
    """
    sent = [chunks[m.src][m.chunk].to(chunks[m.dst][m.chunk].device, copy=True) for m in moves]
    for move, what in zip(moves, sent, strict=True):
        WRITE[op](chunks[move.dst][move.chunk], what)


def execute(plan, chunks, op="sum", trace=None):
    """Carry out a plan in place on `chunks`, chunks[i][c] being chunk c on device i; write to `trace` what is sent."""
    if trace is not None:
        _begin(trace, plan, chunks)
    with torch.no_grad():
        for moves in plan.reduce:
            exchange(moves, chunks, op)
            _log(trace, moves, chunks, adds=True)
        if op == "mean":
            for c, owner in enumerate(plan.owners):
                chunks[owner][c].div_(len(chunks))
        for moves in plan.spread:
            exchange(moves, chunks)
            _log(trace, moves, chunks, adds=False)


def _begin(trace, plan, chunks):
    """Empty a Trace for a plan: where chunks are added up each device has its own; else the owner alone has any."""
    k, num_chunks = len(chunks), len(chunks[0])
    starts = [[{i} if plan.reduce or plan.owners[c] == i else set() for c in range(num_chunks)] for i in range(k)]
    trace.start, trace.steps = [[frozenset(held) for held in row] for row in starts], []
    trace.collective = trace.algorithm = ""
    trace.chunk_n_bytes = [chunk.numel() * chunk.element_size() for chunk in chunks[0]]


def _log(trace, moves, chunks, adds):
    """Append a step's moves to a Trace, if there is one."""
    if trace is not None:
        step, sizes = len(trace.steps), trace.chunk_n_bytes
        trace.steps.append([Send(step, m.src, m.dst, m.chunk, sizes[m.chunk], adds) for m in moves])


@contextmanager
def rows(tensors):
    """Give each tensor as a row, that is with one dimension; what is written there is in the tensor afterwards.

    A row is the tensor's own memory where that lies in order, else a copy that is written back at the end.
    """
    flat = [tensor.detach().reshape(-1) for tensor in tensors]
    yield flat
    with torch.no_grad():
        for tensor, row in zip(tensors, flat, strict=True):
            if row.data_ptr() != tensor.data_ptr():
                tensor.copy_(row.view(tensor.shape))
