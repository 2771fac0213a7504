"""What the collectives check before anything is written or sent: their tensors, and memory that they share."""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import pairwise

import torch

from d2lite.collectives.execute import write_chunk

__all__ = ["OPS", "check_each", "check_memory"]

OPS = ("sum", "mean", "max")
_View = tuple[tuple[int, ...], tuple[int, ...], int]  # shape, strides, first place


def check_each(tensors: Sequence[torch.Tensor], op: str | None = None, name: str = "tensors[{}]") -> None:
    """Raise TypeError or ValueError unless tensors, one per device, are alike, can be written to, and reduced by `op`.

    Messages call tensor i `name.format(i)`. `check_memory` is for memory that they share.
    """
    expected = f"{name.partition('[')[0]}: expected a list of tensors, one per device, got "
    if isinstance(tensors, torch.Tensor):
        raise ValueError(expected + "a single one.")
    if isinstance(tensors, (str, Mapping)) or not (hasattr(tensors, "__len__") and hasattr(tensors, "__getitem__")):
        raise TypeError(f"{expected}{type(tensors).__name__}.")
    if len(tensors) == 0:
        raise ValueError(expected + "none.")
    for i, tensor in enumerate(tensors):
        if not isinstance(tensor, torch.Tensor):
            kind = type(tensor).__name__
            raise TypeError(f"{name.format(i)}: expected a tensor, got {kind}. A gradient is None before backward().")
        if wrong := _difference(tensor, tensors[0]):
            raise ValueError(f"{name.format(i)}: expected {wrong}")
    if op is not None:
        _check_dtype(op, tensors[0].dtype, tensors[0].device.type)


def _difference(tensor: torch.Tensor, first: torch.Tensor) -> str:
    """Return what is expected in place of a tensor that cannot be sent, or not added to the first one; else ""."""
    if tensor.layout != torch.strided or tensor.is_nested:
        return f"a dense tensor, got {'a nested one' if tensor.is_nested else tensor.layout}. Use .to_dense()."
    if tensor.shape != first.shape or tensor.dtype != first.dtype:
        wanted, got = (f"{tuple(t.shape)} {t.dtype}" for t in (first, tensor))
        return f"{wanted} as on the first device, got {got}."
    if tensor.is_meta:
        return 'a tensor with numbers, got one on the device "meta".'
    if tensor.is_inference() and not torch.is_inference_mode_enabled():
        return (
            "a tensor that may be written to, got one made in inference_mode(). Use .clone() outside of it, or call "
            "this inside."
        )
    return ""


def _check_dtype(op: str, dtype: torch.dtype, device: str) -> None:
    """Raise ValueError unless tensors of this dtype can be reduced by `op`."""
    if op == "mean" and not (dtype.is_floating_point or dtype.is_complex):
        raise ValueError(f'op="mean": expected floating point tensors, got {dtype}.')
    if op == "max" and dtype.is_complex:
        raise ValueError(f'op="max": expected numbers that have an order, got {dtype}.')
    if op == "sum" and dtype == torch.bool:
        raise ValueError(f'op="sum": expected numbers, got {dtype}. Use .int(), or op="max" for "is any True?".')
    if not _can_reduce(op, dtype, device):
        raise ValueError(f'op="{op}": expected numbers that PyTorch can reduce, got {dtype}. Use .to(dtype).')


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
    """Raise ValueError if two numbers are in one place in memory.

    Views that take turns, such as x[::2] and x[1::2], share none.
    """
    spans = []  # device, addresses of the first byte and behind the last, tensor
    for i, tensor in enumerate(tensors):
        if tensor.numel():
            begin, size = tensor.data_ptr(), tensor.element_size()
            spans.append((str(tensor.device), begin, begin + size * (1 + _last_place(tensor)), i))
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


def _last_place(tensor: torch.Tensor) -> int:
    """Return where the last number of a tensor is in memory, in numbers after its first."""
    return sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def _check_group(tensors: Sequence[torch.Tensor], names: Sequence[str], group: Sequence[int]) -> None:
    """Raise ValueError if two numbers of a group, indices in the order of addresses, share a place.

    The number of each tensor is written into a map of their bytes. A place that is marked already is shared with an
    earlier tensor. A tensor that has marked fewer places than it has numbers overlaps itself.
    """
    for i, j in pairwise(group):
        if tensors[i].data_ptr() == tensors[j].data_ptr():
            raise ValueError(
                f"{names[j]} shares its memory with {names[i]}: two replicas are one tensor. Copy with "
                ".to(device, copy=True) or replicate(params, devices)."
            )
    if not group or (len(group) == 1 and not _could_overlap_itself(tensors[group[0]])):
        return
    views, n = _views_in_marks([tensors[i] for i in group])
    marks = torch.zeros(n, dtype=torch.int32, device="cpu")
    for j, view in zip(group, views, strict=True):
        mine = marks.as_strided(*view)
        if twin := int(mine.max()):
            raise ValueError(f"{names[j]} shares a part of its memory with {names[twin - 1]}. Use .clone().")
        mine.fill_(j + 1)
        if int((marks == j + 1).sum()) < mine.numel():
            raise ValueError(
                f"{names[j]}: expected memory of its own for each number, got a tensor that overlaps itself: an "
                "expanded or unfolded one. Use .clone()."
            )


def _views_in_marks(tensors: Sequence[torch.Tensor]) -> tuple[list[_View], int]:
    """Return the view of each tensor in a map with as few marks as possible, and how many marks it has."""
    begin = tensors[0].data_ptr()
    unit = math.gcd(*(t.element_size() for t in tensors), *(t.data_ptr() - begin for t in tensors))  # bytes per mark
    views, n = [], 0
    for tensor in tensors:
        per_number, first = tensor.element_size() // unit, (tensor.data_ptr() - begin) // unit
        strides = (*(stride * per_number for stride in tensor.stride()), 1)
        views.append(((*tensor.shape, per_number), strides, first))
        n = max(n, first + per_number * (1 + _last_place(tensor)))
    return views, n


def _could_overlap_itself(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has a stride within the reach of smaller ones; slices and transposed tensors do not."""
    reach = 0
    for stride, size in () if tensor.is_contiguous() else sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and stride <= reach:
            return True
        reach += (size - 1) * stride
    return False
