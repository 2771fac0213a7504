"""Collectives over a list of tensors, one a device: what GPUs do over their links, in plain copies.

`all_reduce` is the naive way: gather everything on the first device, add, send the sum back. The other functions take
an `algorithm` and can write what was sent to a Trace.
"""

import torch

from d2lite.collectives.execute import carry_out, rows
from d2lite.collectives.planner import check_device, cut, make_plan
from d2lite.training.sharding import parallel_apply

__all__ = [
    "all_gather",
    "all_reduce",
    "all_reduce_by",
    "all_reduce_many",
    "broadcast",
    "reduce",
    "reduce_scatter",
    "share_out",
]


def all_reduce(tensors, op="sum"):
    """Replace each tensor, in place, by the sum (op="sum") or the mean (op="mean") of all.

    `tensors` holds one tensor a device, all of one shape and dtype, none sharing memory with another.
    Added in the order of the list, so that every entry ends equal bit for bit. Raises ValueError or TypeError.
    """
    check_tensors(tensors, op)
    with torch.no_grad():
        total = tensors[0]
        for tensor in tensors[1:]:
            total += tensor.to(total.device)
        if op == "mean":
            total /= len(tensors)
        for tensor in tensors[1:]:
            tensor.copy_(total)


def all_reduce_by(tensors, op="sum", algorithm="ring", trace=None, per_host=None):
    """Replace each tensor, in place, by the sum, the mean or the maximum (op="max") of all, by any algorithm.

    `algorithm` is one of ALGORITHMS, `trace` a Trace that is filled, `per_host` how many devices a host has, for
    "two-level". Every entry ends equal bit for bit; the algorithms add in different orders, and so round differently.
    Raises ValueError or TypeError, as all_reduce does.
    """
    check_inputs(tensors, op)
    plan = make_plan("all_reduce", algorithm, len(tensors), per_host=per_host)
    with rows(tensors) as flat:
        _run(plan, flat, op, trace, "all_reduce", algorithm)


def all_reduce_many(device_tensors, op="sum"):
    """All-reduce several tensors a device, in place, each on the device that `share_out` gives it: all add at once.

    device_tensors[i] is the list of tensors on device i, its gradients for instance. Each is treated as by all_reduce.
    Raises ValueError or TypeError.
    """
    k = len(device_tensors)
    if len({len(tensors) for tensors in device_tensors}) != 1:
        lengths = [len(tensors) for tensors in device_tensors]
        raise ValueError(f"device_tensors: expected lists of one length, one a device, got lengths {lengths}.")
    for tensors in zip(*device_tensors, strict=True):
        check_tensors(tensors, op)
        check_inputs(tensors, op)
    owners = share_out([tensor.numel() for tensor in device_tensors[0]], k)

    def add_up_mine(i):
        for j, owner in enumerate(owners):
            if owner == i:
                all_reduce([device_tensors[(i + n) % k][j] for n in range(k)], op)  # the owner first: it adds

    if owners:
        parallel_apply(add_up_mine, [(i,) for i in range(k)], [tensors[0].device for tensors in device_tensors])


def share_out(sizes, k):
    """Return for each of `sizes` one of k owners: the largest first, always to the owner that has least so far.

    Source: Graham 1969, Bounds on multiprocessing timing anomalies, SIAM J. Appl. Math. 17(2).
    """
    owners, loads = [0] * len(sizes), [0] * k
    for j in sorted(range(len(sizes)), key=lambda j: -sizes[j]):
        owners[j] = loads.index(min(loads))
        loads[owners[j]] += sizes[j]
    return owners


def broadcast(tensors, src=0, algorithm="ring", trace=None, per_host=None):
    """Replace each tensor, in place, by tensors[src]; the rest is as for all_reduce_by."""
    check_inputs(tensors)
    check_device("src", src, len(tensors))
    plan = make_plan("broadcast", algorithm, len(tensors), src, per_host)
    with rows(tensors) as flat:
        _run(plan, flat, None, trace, "broadcast", algorithm)


def reduce(tensors, dst=0, op="sum", algorithm="ring", trace=None, per_host=None):
    """Replace tensors[dst], in place, by the sum, the mean or the maximum of all; the others stay as they are.

    The rest is as for all_reduce_by.
    """
    check_inputs(tensors, op)
    check_device("dst", dst, len(tensors))
    plan = make_plan("reduce", algorithm, len(tensors), dst, per_host)
    with rows(tensors) as flat:
        work = [row.clone() for row in flat]
        _run(plan, work, op, trace, "reduce", algorithm)
        flat[dst].copy_(work[dst])


def reduce_scatter(tensors, op="sum", algorithm="ring", trace=None, per_host=None):
    """Replace chunk i of tensors[i], in place, by the sum, the mean or the maximum of chunk i of all tensors.

    Chunk i of k is `tensor.view(-1).tensor_split(k)[i]`; the other chunks stay as they are, and all_gather would fetch
    them. The rest is as for all_reduce_by.
    """
    check_inputs(tensors, op)
    plan = make_plan("reduce_scatter", algorithm, len(tensors), per_host=per_host)
    with rows(tensors) as flat:
        work = [row.clone() for row in flat]
        _run(plan, work, op, trace, "reduce_scatter", algorithm)
        for i in range(len(tensors)):
            flat[i].tensor_split(len(tensors))[i].copy_(work[i].tensor_split(len(tensors))[i])


def all_gather(tensors, algorithm="ring", trace=None, per_host=None):
    """Replace chunk i of every tensor, in place, by chunk i of tensors[i]; chunks are those of reduce_scatter.

    The rest is as for all_reduce_by.
    """
    check_inputs(tensors)
    plan = make_plan("all_gather", algorithm, len(tensors), per_host=per_host)
    with rows(tensors) as flat:
        _run(plan, flat, None, trace, "all_gather", algorithm)


def _run(plan, flat, op, trace, collective, algorithm):
    chunks = [cut(row, len(flat), len(plan.owners)) for row in flat]
    carry_out(plan, chunks, op, trace)
    if trace is not None:
        trace.collective, trace.algorithm = collective, algorithm


def check_inputs(tensors, op=None):
    """Raise TypeError or ValueError unless `tensors` can be sent round, and reduced if `op` is given."""
    if op not in (None, "sum", "mean", "max"):
        raise ValueError(f'op: expected "sum", "mean" or "max", got {op!r}.')
    check_tensors(tensors, "mean" if op == "mean" else "sum")
    dtype = tensors[0].dtype
    if op == "max" and dtype.is_complex:
        raise ValueError(f'op="max": expected numbers that have an order, got {dtype}.')
    if op == "sum" and dtype == torch.bool:
        raise ValueError(f'op="sum": expected numbers, got {dtype}. Use .int(), or op="max" for "is any True?".')
    for i, tensor in enumerate(tensors):
        if any(size > 1 and stride == 0 for size, stride in zip(tensor.shape, tensor.stride(), strict=True)):
            raise ValueError(f"tensors[{i}]: expected a place for each number, got an expanded tensor. Use .clone().")
    check_overlap(tensors)


def check_overlap(tensors):
    """Raise ValueError if two contiguous tensors lie partly on each other."""
    spans = [
        (str(t.device), t.data_ptr(), t.data_ptr() + t.numel() * t.element_size(), i)
        for i, t in enumerate(tensors)
        if t.numel() and t.is_contiguous()
    ]
    spans.sort()
    for (device, _, end, i), (other, start, _, j) in zip(spans, spans[1:], strict=False):
        if device == other and start < end:
            raise ValueError(f"tensors[{j}] shares a part of its memory with tensors[{i}]. Use .clone().")


def check_tensors(tensors, op):
    """Raise TypeError or ValueError unless `tensors` can be reduced with `op`."""
    if op not in ("sum", "mean"):
        raise ValueError(f'op: expected "sum" or "mean", got {op!r}.')
    if isinstance(tensors, torch.Tensor) or len(tensors) == 0:
        raise ValueError("tensors: expected a list of tensors, one a device, got none or a single one.")
    for i, tensor in enumerate(tensors):
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(
                f"tensors[{i}]: expected a tensor, got {type(tensor).__name__}. A gradient is None before backward()."
            )
        if tensor.shape != tensors[0].shape or tensor.dtype != tensors[0].dtype:
            raise ValueError(
                f"tensors[{i}]: expected {tuple(tensors[0].shape)} {tensors[0].dtype} as on the first device, "
                f"got {tuple(tensor.shape)} {tensor.dtype}."
            )
        if tensor.layout != torch.strided:
            raise ValueError(f"tensors[{i}]: expected a dense tensor, got {tensor.layout}. Use .to_dense().")
    if op == "mean" and not (tensors[0].is_floating_point() or tensors[0].is_complex()):
        raise ValueError(f'op="mean": expected floating point tensors, got {tensors[0].dtype}.')
    places = [(t.device, t.data_ptr()) for t in tensors if t.numel()]
    if len(set(places)) < len(places):
        twin = next(i for i, place in enumerate(places) if place in places[:i])
        raise ValueError(
            f"tensors[{twin}] shares its memory with tensors[{places.index(places[twin])}]: two replicas "
            "are one tensor. Copy with .to(device, copy=True) or replicate(params, devices)."
        )
