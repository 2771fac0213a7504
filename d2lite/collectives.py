"""Collectives over a list of tensors, one a device: what GPUs do over their links, in plain copies.

Here the naive way: gather everything on the first device, add, send the sum back.
"""

import torch

__all__ = ["all_reduce"]


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
    if op == "mean" and not (tensors[0].is_floating_point() or tensors[0].is_complex()):
        raise ValueError(f'op="mean": expected floating point tensors, got {tensors[0].dtype}.')
    places = [(t.device, t.data_ptr()) for t in tensors if t.numel()]
    if len(set(places)) < len(places):
        twin = next(i for i, place in enumerate(places) if place in places[:i])
        raise ValueError(
            f"tensors[{twin}] shares its memory with tensors[{places.index(places[twin])}]: two replicas "
            "are one tensor. Copy with .to(device, copy=True) or replicate(params, devices)."
        )
