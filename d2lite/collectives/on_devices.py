"""Collectives over a list of tensors, one per device: what GPUs do over their links, as plain copies.

`all_reduce` is naive unless another algorithm is named: the first device adds everything, then the others copy the sum.
The others take `op`, `algorithm`, `trace` and `per_host` as `all_reduce` does, and refuse the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from d2lite.collectives.execute import execute, rows
from d2lite.collectives.plans import check_device, cut_into_chunks, make_plan
from d2lite.collectives.schedule import Plan
from d2lite.collectives.tensor_checks import OPS, check_each, check_memory
from d2lite.replica_threads import one_intra_op_thread
from d2lite.trace import Trace
from notebook_ranks.shared.checks import instance_of, one_of

__all__ = ["all_gather", "all_reduce", "broadcast", "reduce", "reduce_scatter"]


def all_reduce(
    tensors: Sequence[torch.Tensor],
    op: str = "sum",
    algorithm: str = "naive",
    trace: Trace | None = None,
    per_host: int | None = None,
) -> None:
    """Replace each tensor, in place, by the sum, the mean or the maximum of all.

    All entries are equal bit for bit afterwards. The algorithms add in different orders, and so round differently.

    Args:
        tensors: one tensor per device, all of one shape and dtype, none sharing memory with another.
        op: "sum", "mean" or "max".
        algorithm: one of `ALGORITHMS`: "naive", "tree", "ring", "ring both ways", "two-level", "parameter server" or
            "all pairs".
        trace: a Trace, which is emptied and filled with what was sent.
        per_host: the number of devices on each host, for the algorithm "two-level" only.

    A wrong argument is a ValueError or TypeError before anything is written: see `check_each` and `check_memory`.

    Example:
        >>> import torch
        >>> grads = [torch.tensor([1.0, 2.0]), torch.tensor([10.0, 20.0])]
        >>> all_reduce(grads, op="sum")
        >>> grads
        [tensor([11., 22.]), tensor([11., 22.])]
    """
    one_of("op", op, OPS)
    plan = _planned("all_reduce", tensors, algorithm, trace, op=op, per_host=per_host)
    with one_intra_op_thread([tensor.device for tensor in tensors]):
        if algorithm == "naive" and op in ("sum", "mean") and trace is None:
            all_reduce_naive(tensors, op)  # the same additions as the plan's, without its copies
        else:
            with rows(tensors) as flat:
                plan.run(flat)


def all_reduce_naive(tensors: Sequence[torch.Tensor], op: str = "sum") -> None:
    """Replace each tensor by the sum or the mean of all: the first device adds in order, the others copy. No checks."""
    with torch.no_grad():
        total = tensors[0]
        for tensor in tensors[1:]:
            total += tensor.to(total.device)
        if op == "mean":
            total /= len(tensors)
        for tensor in tensors[1:]:
            tensor.copy_(total)


def broadcast(
    tensors: Sequence[torch.Tensor],
    src: int = 0,
    algorithm: str = "ring",
    trace: Trace | None = None,
    per_host: int | None = None,
) -> None:
    """Replace each tensor, in place, by tensors[src]."""
    plan = _planned("broadcast", tensors, algorithm, trace, root=("src", src), per_host=per_host)
    with rows(tensors) as flat:
        plan.run(flat)


def reduce(
    tensors: Sequence[torch.Tensor],
    dst: int = 0,
    op: str = "sum",
    algorithm: str = "ring",
    trace: Trace | None = None,
    per_host: int | None = None,
) -> None:
    """Replace tensors[dst], in place, by the sum, the mean or the maximum of all; the others stay as they are."""
    one_of("op", op, OPS)
    plan = _planned("reduce", tensors, algorithm, trace, op=op, root=("dst", dst), per_host=per_host)
    with rows(tensors) as flat:
        work = [row.clone() for row in flat]  # the sums on the way are in copies: only tensors[dst] may change
        plan.run(work)
        flat[dst].copy_(work[dst])


def reduce_scatter(
    tensors: Sequence[torch.Tensor],
    op: str = "sum",
    algorithm: str = "ring",
    trace: Trace | None = None,
    per_host: int | None = None,
) -> None:
    """Replace chunk i of tensors[i], in place, by the sum, the mean or the maximum of chunk i of all tensors.

    Chunk i of k is `tensor.view(-1).tensor_split(k)[i]`. The other chunks stay as they are; `all_gather` fetches them.
    """
    one_of("op", op, OPS)
    plan = _planned("reduce_scatter", tensors, algorithm, trace, op=op, per_host=per_host)
    with rows(tensors) as flat:
        work = [row.clone() for row in flat]  # the sums on the way are in copies: only chunk i of tensors[i] may change
        plan.run(work)
        for i in range(len(tensors)):
            flat[i].tensor_split(len(tensors))[i].copy_(work[i].tensor_split(len(tensors))[i])


def all_gather(
    tensors: Sequence[torch.Tensor], algorithm: str = "ring", trace: Trace | None = None, per_host: int | None = None
) -> None:
    """Replace chunk i of every tensor, in place, by chunk i of tensors[i], with the chunks of `reduce_scatter`."""
    plan = _planned("all_gather", tensors, algorithm, trace, per_host=per_host)
    with rows(tensors) as flat:
        plan.run(flat)


@dataclass(frozen=True)
class _Planned:
    """A collective whose arguments are checked: the plan that it follows, and where it is logged."""

    collective: str
    algorithm: str
    plan: Plan
    op: str | None
    trace: Trace | None

    def run(self, flat: Sequence[torch.Tensor]) -> None:
        """Execute the plan in place on one row [n] per device."""
        chunks = [cut_into_chunks(row, len(flat), len(self.plan.owners)) for row in flat]
        execute(self.plan, chunks, self.op, self.trace)
        if self.trace is not None:
            self.trace.collective, self.trace.algorithm = self.collective, self.algorithm


def _planned(
    collective: str,
    tensors: Sequence[torch.Tensor],
    algorithm: str,
    trace: Trace | None,
    *,
    op: str | None = None,
    root: tuple[str, int] = ("root", 0),
    per_host: int | None = None,
) -> _Planned:
    """Check all arguments and return a collective that can be run; `root` is the name and the value of an argument."""
    instance_of("trace", trace, Trace, type(None), hint="Pass Trace().")
    check_each(tensors, op)
    check_memory(tensors, [f"tensors[{i}]" for i in range(len(tensors))])
    check_device(*root, len(tensors))
    plan = make_plan(collective, algorithm, len(tensors), root[1], per_host)
    return _Planned(collective, algorithm, plan, op, trace)
