"""`nn.DataParallel` on pretend GPUs: Python in place of the C++ that scatters, broadcasts and gathers."""

from typing import Any

import torch
from torch import nn
from torch.nn.parallel import comm

from ddp_rehearsal.pretend_gpus.devices import CPU, DeviceLike, as_device, replace
from ddp_rehearsal.pretend_gpus.storages import device_of, place
from ddp_rehearsal.pretend_gpus.tensors import moved_tensor

__all__ = ["pretend_modules"]


def _broadcast_coalesced(tensors: Any, devices: Any, buffer_size: int = 0) -> Any:
    devices = [as_device(d) for d in devices]
    return [[t if device_of(t) == d else moved_tensor(t.detach(), d) for t in tensors] for d in devices]


def _reduce_add_coalesced(inputs: Any, destination: DeviceLike = None, buffer_size: int = 0) -> Any:
    device = as_device(destination if destination is not None else "cuda")
    sums: list[Any] = [sum(moved_tensor(t, device) for t in tensors) for tensors in zip(*inputs, strict=True)]
    return [place(total, device) for total in sums]


def _scatter(
    tensor: torch.Tensor,
    devices: Any = None,
    chunk_sizes: Any = None,
    dim: int = 0,
    streams: object = None,
    *,
    out: object = None,
) -> tuple[torch.Tensor, ...]:
    pieces = tensor.split(list(chunk_sizes), dim) if chunk_sizes else tensor.chunk(len(devices), dim)
    return tuple(moved_tensor(piece, as_device(d)) for piece, d in zip(pieces, devices, strict=False))


def _gather(tensors: Any, dim: int = 0, destination: DeviceLike = None, *, out: object = None) -> torch.Tensor:
    device = CPU if destination == -1 else as_device("cuda" if destination is None else destination)
    return moved_tensor(torch.cat([moved_tensor(t, CPU) for t in tensors], dim), device)


def _broadcast(tensor: torch.Tensor, devices: Any = None, *, out: object = None) -> tuple[torch.Tensor, ...]:
    return tuple(moved_tensor(tensor, as_device(d)) for d in devices)


def pretend_modules() -> None:
    """Put functions with the same contract in place of the C++ of nn.DataParallel."""
    functions = {
        "broadcast_coalesced": _broadcast_coalesced,
        "reduce_add_coalesced": _reduce_add_coalesced,
        "scatter": _scatter,
        "gather": _gather,
        "broadcast": _broadcast,
    }
    replace(functions, comm)
    replace({"_get_stream": lambda device: None}, nn.parallel._functions)
