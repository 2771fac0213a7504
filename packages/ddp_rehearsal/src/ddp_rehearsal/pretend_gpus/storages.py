"""On which pretend GPU each storage is, and how many bytes are on each GPU.

A storage is the memory of a tensor. Views, `.data` and what autograd saves share it with the tensor, so the device is
kept for the storage: what shares memory is on one device, as on real GPUs. (A weak reference to each tensor would also
keep `torch.utils.swap_tensors` from working, and with it `fully_shard`.)
"""

import os
import threading
import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from ddp_rehearsal.pretend_gpus.devices import check_fork, check_memory, note_use

__all__ = [
    "count_of",
    "device_of",
    "device_of_storage",
    "each_tensor",
    "gpus_in_use",
    "is_pinned",
    "own_device",
    "pin",
    "place",
    "place_storage",
    "shares_memory",
]

own_device: Any = torch._C.TensorBase.device.__get__  # where the memory really is
_address_of: Any = torch._C._storage_address  # type: ignore[attr-defined]  # the one way that no mode looks into
_functorch: Any = torch._C._functorch
_PLAIN = (torch.Tensor, torch.nn.Parameter)


class _Held(NamedTuple):
    device: torch.device
    n_bytes: int
    until: weakref.ref[torch.UntypedStorage]  # its callback takes the entry out when the storage is freed


class Bytes:
    """Bytes on one GPU: `now`, and the most at a time, `peak`."""

    def __init__(self) -> None:
        self.now = self.peak = 0


_held: dict[int, _Held] = {}  # address of a storage -> where it pretends to be
_pinned: dict[int, weakref.ref[torch.UntypedStorage]] = {}
_bytes_on: dict[int, Bytes] = {}  # index of a GPU -> its bytes
_locks = [threading.RLock()]  # a storage may be freed while another one is counted


def _new_lock() -> None:
    _locks[0] = threading.RLock()  # another thread may have held the old one at the fork


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_new_lock)


def _memory(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor that has the memory: of a DTensor its local one, of a sparse tensor its values."""
    while _functorch.is_functorch_wrapped_tensor(tensor):  # in torch.func.grad and vmap
        tensor = _functorch.get_unwrapped(tensor)
    while type(tensor) not in _PLAIN and hasattr(tensor, "__tensor_flatten__"):
        tensor = getattr(tensor, tensor.__tensor_flatten__()[0][0])
    with torch._C.DisableTorchFunction():
        if tensor.layout is torch.sparse_coo:
            return tensor._values()
        return tensor if tensor.layout is torch.strided else tensor.values()


def _address(tensor: torch.Tensor) -> int:
    if type(tensor) in _PLAIN:
        try:
            return _address_of(tensor)
        except NotImplementedError:  # it has no memory itself
            pass
    return _address_of(_memory(tensor))


def device_of(tensor: torch.Tensor) -> torch.device:
    """Return the device that a tensor pretends to be on; else the one where it is."""
    held = _held.get(_address(tensor))
    return held.device if held else own_device(tensor)


def shares_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors have one storage."""
    return one is other or _address(one) == _address(other)


def device_of_storage(storage: torch.UntypedStorage) -> torch.device | None:
    """Return the pretend GPU that a storage is on, or None."""
    held = _held.get(storage._cdata)
    return held.device if held else None


def place(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Let the memory of a tensor pretend to be on `device`, and return the tensor; nothing happens for the CPU."""
    if device.type == "cuda" and device_of(tensor) != device:
        memory = _memory(tensor)
        with torch._C.DisableTorchFunction():
            place_storage(memory.untyped_storage(), device)
    return tensor


def place_storage(storage: torch.UntypedStorage, device: torch.device) -> None:
    """Let a storage pretend to be on a GPU until it is freed."""
    address = storage._cdata
    check_fork()
    note_use()
    with _locks[0]:
        _take_out(address)
        check_memory(device.index, count_of(device.index).now, storage.nbytes())
        _held[address] = _Held(device, storage.nbytes(), weakref.ref(storage, lambda _: _take_out(address)))
        count = count_of(device.index)
        count.now += storage.nbytes()
        count.peak = max(count.peak, count.now)


def _take_out(address: int) -> None:
    with _locks[0]:
        held = _held.pop(address, None)
        if held is not None:
            _bytes_on[held.device.index].now -= held.n_bytes


def pin(tensor: torch.Tensor) -> torch.Tensor:
    """Let the memory of a tensor pretend to be pinned until it is freed, and return the tensor."""
    with torch._C.DisableTorchFunction():
        storage = tensor.untyped_storage()
    address = storage._cdata
    _pinned[address] = weakref.ref(storage, lambda _: _pinned.pop(address, None))
    return tensor


def is_pinned(tensor: torch.Tensor) -> bool:
    """Return whether the memory of a tensor pretends to be pinned."""
    return _address(tensor) in _pinned


def gpus_in_use() -> list[int]:
    """Return the GPUs on which this process has had tensors."""
    return sorted(gpu for gpu, held in _bytes_on.items() if held.peak)


def count_of(gpu: int) -> Bytes:
    """Return the bytes that are on a GPU."""
    return _bytes_on.setdefault(gpu, Bytes())


def each_tensor(value: object, depth: int = 0) -> Iterator[torch.Tensor]:
    """Yield the tensors in lists, tuples and dicts, which may be nested four deep."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)) and depth < 4:
        for item in value:
            yield from each_tensor(item, depth + 1)
    elif isinstance(value, dict) and depth < 4:
        for item in value.values():
            yield from each_tensor(item, depth + 1)
