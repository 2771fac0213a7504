"""Files, pickles and messages between processes: they keep on which GPU a tensor was, as with real GPUs."""

from typing import Any

import torch
from torch.multiprocessing.reductions import reduce_tensor, reduction
from torch.serialization import register_package

from ddp_rehearsal.pretend_gpus.devices import DeviceLike, as_device, number_of_gpus, replace
from ddp_rehearsal.pretend_gpus.storages import device_of, device_of_storage, place, place_storage

__all__ = ["pretend_files"]

ABSENT = (
    "Attempting to deserialize object on CUDA device {} but torch.cuda.device_count() is {}. Please use torch.load "
    "with map_location to map your storages to an existing device."
)


def _location(storage: Any) -> str | None:
    """Return what torch.save writes beside a storage: "cuda:1"."""
    device = device_of_storage(getattr(storage, "_untyped_storage", storage))
    return str(device) if device is not None else None


def _restored(storage: Any, location: str) -> Any:
    """Return a storage from a file on the GPU of its location; None for the CPU, which others restore."""
    if not location.startswith("cuda"):
        return None
    device = torch.device(location)
    if (device.index or 0) >= number_of_gpus():
        raise RuntimeError(ABSENT.format(device.index, number_of_gpus()))
    place_storage(storage, as_device(device))
    return storage


def _storage_cuda(storage: torch.UntypedStorage, device: DeviceLike = None, non_blocking: bool = False) -> Any:
    """`storage.cuda()`, which functions given as map_location call."""
    copy = storage.clone()
    place_storage(copy, as_device("cuda" if device is None else device))
    return copy


def _reduced(tensor: torch.Tensor) -> Any:
    """Return what multiprocessing sends in place of a tensor; the memory is shared, as CUDA's is."""
    device, sent = device_of(tensor), reduce_tensor(tensor)
    return (_rebuilt, (*sent, str(device))) if device.type == "cuda" else sent


def _rebuilt(function: Any, args: Any, device: str) -> Any:
    return place(function(*args), as_device(device))


def pretend_files() -> None:
    """Let torch.save, torch.load, pickle and multiprocessing keep the pretend GPU of each tensor."""
    register_package(5, _location, _restored)  # 10 is the CPU's, which would take all of them
    replace({"cuda": _storage_cuda}, torch.UntypedStorage)
    for kind in (torch.Tensor, torch.nn.Parameter):
        reduction.ForkingPickler.register(kind, _reduced)
