"""What the collectives check before anything is written or sent: their tensors, their `op`, and shared memory."""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import torch

from d2lite.collectives.execute import write_chunk
from d2lite.trace import Trace

__all__ = ["check_each", "check_memory", "check_op", "check_tensors", "check_trace"]


def check_op(op: Any, ops: Sequence[str] = ("sum", "mean", "max")) -> None:
    """Raise ValueError unless `op` is one of `ops`, TypeError if it is not a text."""
    if not isinstance(op, str) or op not in ops:
        quoted = [f'"{name}"' for name in ops]
        error = ValueError if isinstance(op, str) else TypeError
        raise error(f"op: expected {', '.join(quoted[:-1])} or {quoted[-1]}, got {op!r}.")


def check_trace(trace: Any) -> None:
    """Raise TypeError unless `trace` is a Trace or None."""
    if trace is not None and not isinstance(trace, Trace):
        raise TypeError(f"trace: expected a Trace or None, got {trace!r:.80}. Pass Trace().")


def check_tensors(tensors: Sequence[torch.Tensor], op: str | None = None) -> None:
    """Raise TypeError or ValueError unless collectives can send `tensors`, and reduce them with `op` if it is given."""
    check_each(tensors, op)
    check_memory(tensors, [f"tensors[{i}]" for i in range(len(tensors))])


def check_each(tensors: Sequence[torch.Tensor], op: str | None = None, name: str = "tensors[{}]") -> None:
    """Raise TypeError or ValueError as `check_tensors` does, except for shared memory.

    Messages call tensor i `name.format(i)`.
    """
    if op is not None:
        check_op(op)
    whole = name.partition("[")[0]
    if isinstance(tensors, torch.Tensor):
        raise ValueError(f"{whole}: expected a list of tensors, one per device, got a single one.")
    if isinstance(tensors, (str, Mapping)) or not (hasattr(tensors, "__len__") and hasattr(tensors, "__getitem__")):
        raise TypeError(f"{whole}: expected a list of tensors, one per device, got {type(tensors).__name__}.")
    if len(tensors) == 0:
        raise ValueError(f"{whole}: expected a list of tensors, one per device, got none.")
    first, may_write = tensors[0], torch.is_inference_mode_enabled()
    for i, tensor in enumerate(tensors):
        if not isinstance(tensor, torch.Tensor):
            kind = type(tensor).__name__
            raise TypeError(f"{name.format(i)}: expected a tensor, got {kind}. A gradient is None before backward().")
        if tensor.layout != torch.strided or tensor.is_nested:
            layout = "a nested one" if tensor.is_nested else tensor.layout
            raise ValueError(f"{name.format(i)}: expected a dense tensor, got {layout}. Use .to_dense().")
        if tensor.shape != first.shape or tensor.dtype != first.dtype:
            raise ValueError(
                f"{name.format(i)}: expected {tuple(first.shape)} {first.dtype} as on the first device, "
                f"got {tuple(tensor.shape)} {tensor.dtype}."
            )
        if tensor.is_meta:
            raise ValueError(f'{name.format(i)}: expected a tensor with numbers, got one on the device "meta".')
        if not may_write and tensor.is_inference():
            raise ValueError(
                f"{name.format(i)}: expected a tensor that may be written to, got one made in inference_mode(). "
                "Use .clone() outside of it, or call this inside."
            )
    if op == "mean" and not (first.is_floating_point() or first.is_complex()):
        raise ValueError(f'op="mean": expected floating point tensors, got {first.dtype}.')
    if op == "max" and first.is_complex():
        raise ValueError(f'op="max": expected numbers that have an order, got {first.dtype}.')
    if op == "sum" and first.dtype == torch.bool:
        raise ValueError(f'op="sum": expected numbers, got {first.dtype}. Use .int(), or op="max" for "is any True?".')
    if op is not None and not _can_reduce(op, first.dtype, first.device.type):
        raise ValueError(f'op="{op}": expected numbers that PyTorch can reduce, got {first.dtype}. Use .to(dtype).')


@cache
def _can_reduce(op: str, dtype: torch.dtype, device: str) -> bool:
    """Return whether PyTorch has the kernels of `op`: try two tensors of one number, since it has no list of them."""
    try:
        own, received = (torch.zeros(1, dtype=dtype, device=device) for _ in range(2))
        write_chunk(own, received, op)
        if op == "mean":
            own.div_(2)
    except NotImplementedError:  # any other error, a full GPU's for example, says nothing about the dtype
        return False
    return True


def check_memory(tensors: Sequence[torch.Tensor], names: Sequence[str]) -> None:
    """Raise ValueError if two numbers, of one tensor or of two, are in one place in memory.

    Views that take turns in memory, such as x[::2] and x[1::2], share none.
    """
    spans = []  # device, addresses of the first byte and behind the last, tensor
    for i, tensor in enumerate(tensors):
        if not tensor.numel():
            continue
        last = tensor.numel() - 1
        if not tensor.is_contiguous():
            last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
            if _overlaps_itself(tensor, last + 1):
                raise ValueError(
                    f"{names[i]}: expected memory of its own for each number, got a tensor that overlaps itself: "
                    "an expanded or unfolded one. Use .clone()."
                )
        begin = tensor.data_ptr()
        spans.append((str(tensor.device), begin, begin + (last + 1) * tensor.element_size(), i))
    spans.sort()
    group: list[int] = []  # tensors whose spans overlap
    group_device, end = "", 0
    for device, begin, its_end, i in spans:
        if device != group_device or begin >= end:
            _check_group(tensors, names, group)
            group, group_device, end = [], device, its_end
        group.append(i)
        end = max(end, its_end)
    _check_group(tensors, names, group)


def _overlaps_itself(tensor: torch.Tensor, n: int) -> bool:
    """Return whether two numbers of a tensor, which spans `n` places in memory, are in one place."""
    reach = 0  # how far the dimensions with smaller strides go
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and stride <= reach:  # rare: slices, transposed and channels-last tensors never come here
            if stride == 0:
                return True
            places = torch.zeros(n, dtype=torch.bool, device="cpu")
            places.as_strided(tensor.shape, tensor.stride()).fill_(True)
            return int(places.sum()) < tensor.numel()
        reach += (size - 1) * stride
    return False


def _check_group(tensors: Sequence[torch.Tensor], names: Sequence[str], group: Sequence[int]) -> None:
    """Raise ValueError if two tensors of a group share memory: mark the places that each of them uses.

    `group` has the indices of tensors whose spans overlap, sorted by address.
    """
    if len(group) < 2:
        return
    begin = tensors[group[0]].data_ptr()
    for i, j in pairwise(group):
        if tensors[i].data_ptr() == tensors[j].data_ptr():
            raise ValueError(
                f"{names[j]} shares its memory with {names[i]}: two replicas are one tensor. Copy with "
                ".to(device, copy=True) or replicate(params, devices)."
            )
    sizes = [tensors[i].element_size() for i in group]
    unit = math.gcd(*sizes, *(tensors[i].data_ptr() - begin for i in group))  # bytes per mark
    views = []
    for i, size in zip(group, sizes, strict=True):
        shape = (*tensors[i].shape, size // unit)
        strides = (*(stride * size // unit for stride in tensors[i].stride()), 1)
        views.append((shape, strides, (tensors[i].data_ptr() - begin) // unit))
    n = max(first + sum((m - 1) * stride for m, stride in zip(*view, strict=True)) for *view, first in views) + 1
    marks = torch.zeros(n, dtype=torch.int32, device="cpu")
    for j, view in zip(group, views, strict=True):
        mine = marks.as_strided(*view)
        if twin := int(mine.max()):
            raise ValueError(f"{names[j]} shares a part of its memory with {names[twin - 1]}. Use .clone().")
        mine.fill_(j + 1)
