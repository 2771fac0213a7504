"""Statistics of memory: the bytes of the tensors that are alive on each pretend GPU."""

from collections import Counter
from typing import Any

import torch

from ddp_rehearsal.pretend_gpus.devices import DeviceLike, gpu_index, memory_of_gpu, replace
from ddp_rehearsal.pretend_gpus.said_once import say_once
from ddp_rehearsal.pretend_gpus.storages import count_of, device_of_storage, place_storage

__all__ = ["pretend_memory"]

COUNTED = "memory is counted from the tensors that Python sees; what backward and kernels need in between is not."
_resize = torch.UntypedStorage.resize_


def _allocated(device: DeviceLike = None) -> int:
    say_once(COUNTED)
    return count_of(gpu_index(device)).now


def _peak(device: DeviceLike = None) -> int:
    say_once(COUNTED)
    return count_of(gpu_index(device)).peak


def _reset_peak(device: DeviceLike = None) -> None:
    count = count_of(gpu_index(device))
    count.peak = count.now


def _memory_stats(device: DeviceLike = None) -> dict[str, int]:
    counts = {"current": _allocated(device), "peak": _peak(device)}
    kinds = ("allocated", "reserved")
    return Counter({f"{kind}_bytes.all.{when}": n for kind in kinds for when, n in counts.items()})  # others are 0


def _mem_get_info(device: DeviceLike = None) -> tuple[int, int]:
    return max(0, memory_of_gpu() - _allocated(device)), memory_of_gpu()


def _resize_counted(storage: torch.UntypedStorage, n_bytes: int) -> Any:
    result, device = _resize(storage, n_bytes), device_of_storage(storage)
    if device is not None:  # `fully_shard` frees and takes memory in this way
        place_storage(storage, device)
    return result


def pretend_memory() -> None:
    """Let torch.cuda and torch.accelerator count the bytes of each pretend GPU."""
    functions: dict[str, Any] = {
        "empty_cache": lambda: None,
        "memory_allocated": _allocated,
        "max_memory_allocated": _peak,
        "memory_reserved": _allocated,
        "max_memory_reserved": _peak,
        "memory_stats": _memory_stats,
        "reset_peak_memory_stats": _reset_peak,
        "reset_accumulated_memory_stats": lambda device=None: None,
    }
    for_cuda: dict[str, Any] = {
        "mem_get_info": _mem_get_info,
        "reset_max_memory_allocated": _reset_peak,
        "reset_max_memory_cached": _reset_peak,
        "memory_cached": _allocated,
        "max_memory_cached": _peak,
        "memory_summary": lambda device=None, abbreviated=False: f"{_allocated(device)} bytes, peak {_peak(device)}",
        "set_per_process_memory_fraction": lambda fraction, device=None: None,
    }
    replace(functions, torch.cuda, torch.cuda.memory, torch.accelerator)
    replace(for_cuda, torch.cuda, torch.cuda.memory)
    replace({"get_memory_info": _mem_get_info}, torch.accelerator)
    replace({"resize_": _resize_counted}, torch.UntypedStorage)
