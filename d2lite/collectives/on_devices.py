"""Collectives over a list of tensors, one per device: what GPUs do over their links, as plain copies.

`all_reduce` runs the naive algorithm unless another one is named: add everything on the first device, then copy the sum
to the others. All of these functions take an `algorithm`, and can write what was sent to a Trace.
"""

from collections.abc import Sequence

import torch

from d2lite.collectives.execute import execute, rows
from d2lite.collectives.planner import check_device, cut, make_plan
from d2lite.collectives.schedule import Plan
from d2lite.parallel import one_intra_op_thread, parallel_apply
from d2lite.trace import Trace

__all__ = [
    "all_gather",
    "all_reduce",
    "all_reduce_many",
    "all_reduce_naive",
    "assign_owners",
    "broadcast",
    "check_tensors",
    "reduce",
    "reduce_scatter",
]


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

    Raises:
        ValueError: if shapes or dtypes differ, two tensors share memory, a tensor is sparse or expanded, the dtype does
            not fit `op`, `op` or `algorithm` is unknown, or `per_host` does not divide the number of devices.
        TypeError: if an entry is not a tensor; a gradient is None before `backward()`.

    Example:
        >>> import torch
        >>> grads = [torch.tensor([1.0, 2.0]), torch.tensor([10.0, 20.0])]
        >>> all_reduce(grads, op="sum")
        >>> grads
        [tensor([11., 22.]), tensor([11., 22.])]
    """
    check_tensors(tensors, op)
    with one_intra_op_thread([tensor.device for tensor in tensors]):
        if algorithm == "naive" and op != "max" and trace is None and per_host is None:
            all_reduce_naive(tensors, op)
            return
        plan = make_plan("all_reduce", algorithm, len(tensors), per_host=per_host)
        with rows(tensors) as flat:
            _run(plan, flat, op, trace, "all_reduce", algorithm)


def all_reduce_naive(tensors: Sequence[torch.Tensor], op: str = "sum") -> None:
    """Replace each tensor, in place, by the sum (op="sum") or the mean (op="mean") of all; nothing is checked.

    The first device adds all tensors in the order of the list, and the others copy its result.
    """
    with torch.no_grad():
        total = tensors[0]
        for tensor in tensors[1:]:
            total += tensor.to(total.device)
        if op == "mean":
            total /= len(tensors)
        for tensor in tensors[1:]:
            tensor.copy_(total)


def all_reduce_many(device_tensors: Sequence[Sequence[torch.Tensor]], op: str = "sum") -> None:
    """All-reduce several tensors per device, in place; each is added on the device that `assign_owners` gives it.

    All devices add at the same time.

    Args:
        device_tensors: device_tensors[i] is the list of tensors on device i, its gradients for example.
        op: "sum" or "mean".

    Raises:
        ValueError: if the lists differ in length, or as in `all_reduce`.
        TypeError: if an entry is not a tensor.
    """
    k = len(device_tensors)
    if len({len(tensors) for tensors in device_tensors}) != 1:
        lengths = [len(tensors) for tensors in device_tensors]
        raise ValueError(f"device_tensors: expected lists of one length, one per device, got lengths {lengths}.")
    if op not in ("sum", "mean"):
        raise ValueError(f'op: expected "sum" or "mean", got {op!r}.')
    for tensors in zip(*device_tensors, strict=True):
        check_tensors(tensors, op)
    owners = assign_owners([tensor.numel() for tensor in device_tensors[0]], k)

    def add_mine(i: int) -> None:
        for j, owner in enumerate(owners):
            if owner == i:
                # the owner first: all_reduce_naive adds on the first
                all_reduce_naive([device_tensors[(i + n) % k][j] for n in range(k)], op)

    if owners:
        parallel_apply(add_mine, [(i,) for i in range(k)], [tensors[0].device for tensors in device_tensors])


def assign_owners(sizes: Sequence[int], k: int) -> list[int]:
    """Return for each of `sizes` one of k owners: the largest first, always to the owner with the least so far.

    Source: Graham 1969, Bounds on multiprocessing timing anomalies, SIAM J. Appl. Math. 17(2).
    """
    owners, loads = [0] * len(sizes), [0] * k
    for j in sorted(range(len(sizes)), key=lambda j: -sizes[j]):
        owners[j] = loads.index(min(loads))
        loads[owners[j]] += sizes[j]
    return owners


def broadcast(
    tensors: Sequence[torch.Tensor],
    src: int = 0,
    algorithm: str = "ring",
    trace: Trace | None = None,
    per_host: int | None = None,
) -> None:
    """Replace each tensor, in place, by tensors[src].

    The other arguments and the errors are those of `all_reduce`.
    """
    check_tensors(tensors)
    check_device("src", src, len(tensors))
    plan = make_plan("broadcast", algorithm, len(tensors), src, per_host)
    with rows(tensors) as flat:
        _run(plan, flat, None, trace, "broadcast", algorithm)


def reduce(
    tensors: Sequence[torch.Tensor],
    dst: int = 0,
    op: str = "sum",
    algorithm: str = "ring",
    trace: Trace | None = None,
    per_host: int | None = None,
) -> None:
    """Replace tensors[dst], in place, by the sum, the mean or the maximum of all; the others stay as they are.

    The other arguments and the errors are those of `all_reduce`.
    """
    check_tensors(tensors, op)
    check_device("dst", dst, len(tensors))
    plan = make_plan("reduce", algorithm, len(tensors), dst, per_host)
    with rows(tensors) as flat:
        work = [row.clone() for row in flat]
        _run(plan, work, op, trace, "reduce", algorithm)
        flat[dst].copy_(work[dst])


def reduce_scatter(
    tensors: Sequence[torch.Tensor],
    op: str = "sum",
    algorithm: str = "ring",
    trace: Trace | None = None,
    per_host: int | None = None,
) -> None:
    """Replace chunk i of tensors[i], in place, by the sum, the mean or the maximum of chunk i of all tensors.

    Chunk i of k is `tensor.view(-1).tensor_split(k)[i]`. The other chunks stay as they are; `all_gather` would fetch
    them. The other arguments and the errors are those of `all_reduce`.
    """
    check_tensors(tensors, op)
    plan = make_plan("reduce_scatter", algorithm, len(tensors), per_host=per_host)
    with rows(tensors) as flat:
        work = [row.clone() for row in flat]
        _run(plan, work, op, trace, "reduce_scatter", algorithm)
        for i in range(len(tensors)):
            flat[i].tensor_split(len(tensors))[i].copy_(work[i].tensor_split(len(tensors))[i])


def all_gather(
    tensors: Sequence[torch.Tensor],
    algorithm: str = "ring",
    trace: Trace | None = None,
    per_host: int | None = None,
) -> None:
    """Replace chunk i of every tensor, in place, by chunk i of tensors[i]; the chunks are those of `reduce_scatter`.

    The other arguments and the errors are those of `all_reduce`.
    """
    check_tensors(tensors)
    plan = make_plan("all_gather", algorithm, len(tensors), per_host=per_host)
    with rows(tensors) as flat:
        _run(plan, flat, None, trace, "all_gather", algorithm)


def _run(
    plan: Plan, flat: list[torch.Tensor], op: str | None, trace: Trace | None, collective: str, algorithm: str
) -> None:
    chunks = [cut(row, len(flat), len(plan.owners)) for row in flat]
    execute(plan, chunks, op, trace)
    if trace is not None:
        trace.collective, trace.algorithm = collective, algorithm


def check_tensors(tensors: Sequence[torch.Tensor], op: str | None = None) -> None:
    """Raise TypeError or ValueError unless `tensors` can be communicated, and reduced if `op` is given."""
    if op not in (None, "sum", "mean", "max"):
        raise ValueError(f'op: expected "sum", "mean" or "max", got {op!r}.')
    if isinstance(tensors, torch.Tensor) or len(tensors) == 0:
        raise ValueError("tensors: expected a list of tensors, one per device, got none or a single one.")
    first = tensors[0]
    for i, tensor in enumerate(tensors):
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(
                f"tensors[{i}]: expected a tensor, got {type(tensor).__name__}. A gradient is None before backward()."
            )
        if tensor.shape != first.shape or tensor.dtype != first.dtype:
            raise ValueError(
                f"tensors[{i}]: expected {tuple(first.shape)} {first.dtype} as on the first device, "
                f"got {tuple(tensor.shape)} {tensor.dtype}."
            )
        if tensor.layout != torch.strided:
            raise ValueError(f"tensors[{i}]: expected a dense tensor, got {tensor.layout}. Use .to_dense().")
        if any(size > 1 and stride == 0 for size, stride in zip(tensor.shape, tensor.stride(), strict=True)):
            raise ValueError(
                f"tensors[{i}]: expected memory of its own for each number, got an expanded tensor. Use .clone()."
            )
    if op == "mean" and not (first.is_floating_point() or first.is_complex()):
        raise ValueError(f'op="mean": expected floating point tensors, got {first.dtype}.')
    if op == "max" and first.is_complex():
        raise ValueError(f'op="max": expected numbers that have an order, got {first.dtype}.')
    if op == "sum" and first.dtype == torch.bool:
        raise ValueError(f'op="sum": expected numbers, got {first.dtype}. Use .int(), or op="max" for "is any True?".')
    _check_overlap(tensors)


def _check_overlap(tensors: Sequence[torch.Tensor]) -> None:
    """Raise ValueError if two tensors begin at one address, or two contiguous ones overlap in part."""
    places = [(t.device, t.data_ptr()) for t in tensors if t.numel()]
    if len(set(places)) < len(places):
        twin = next(i for i, place in enumerate(places) if place in places[:i])
        raise ValueError(
            f"tensors[{twin}] shares its memory with tensors[{places.index(places[twin])}]: two replicas "
            "are one tensor. Copy with .to(device, copy=True) or replicate(params, devices)."
        )
    spans = [
        (str(t.device), t.data_ptr(), t.data_ptr() + t.numel() * t.element_size(), i)
        for i, t in enumerate(tensors)
        if t.numel() and t.is_contiguous()
    ]
    spans.sort()
    for (device, _, end, i), (other, start, _, j) in zip(spans, spans[1:], strict=False):
        if device == other and start < end:
            raise ValueError(f"tensors[{j}] shares a part of its memory with tensors[{i}]. Use .clone().")
