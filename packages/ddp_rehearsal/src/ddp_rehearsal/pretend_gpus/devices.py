"""The pretend GPUs of this process: how many there are, each thread's current one, what torch.cuda says about them."""

import os
import threading
from types import SimpleNamespace
from typing import Any

import torch

from ddp_rehearsal.pretend_gpus.cards import Card

__all__ = [
    "CPU",
    "DeviceLike",
    "as_device",
    "check_fork",
    "check_memory",
    "choose_card",
    "current_device",
    "forget_use",
    "gpu_index",
    "gpu_of_machine",
    "memory_of_gpu",
    "note_use",
    "number_of_gpus",
    "pretend_devices",
    "replace",
    "visible_gpus",
]

CPU = torch.device("cpu")
NAME = "pretend GPU (the CPU computes)"
MEMORY = 8 << 30  # bytes that a pretend GPU without a card says it has; more are not refused
_gpus: Any = SimpleNamespace(count=0, in_use=False, in_use_at_fork=False, card=None)
FORKED = (
    "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the 'spawn' start "
    "method"
)
OUT = (
    "CUDA out of memory. Tried to allocate {}. GPU {} has a total capacity of {} of which {} is free. (Predicted for a "
    "{}: tensors that Python sees are counted, not what the backward pass, kernels and the allocator take.)"
)
AcceleratorError: Any = getattr(torch, "AcceleratorError", RuntimeError)  # a RuntimeError, which new PyTorch has
DeviceLike = torch.device | str | int | None  # what PyTorch takes for a device
_current = threading.local()  # `index` of the current device of a thread


def replace(functions: dict[str, Any], *modules: Any) -> None:
    """Put functions in place of those that have the same names in modules of PyTorch."""
    for module in modules:
        for name, function in functions.items():
            setattr(module, name, function)


def number_of_gpus() -> int:
    """Return how many pretend GPUs this process has; CUDA_VISIBLE_DEVICES counts until one of them is used."""
    return _gpus.count if _gpus.in_use else visible_gpus(_gpus.count)


def visible_gpus(k: int) -> int:
    """Return how many of `k` GPUs CUDA_VISIBLE_DEVICES names; all of them where it is not set."""
    return k if "CUDA_VISIBLE_DEVICES" not in os.environ else min(k, len(_visible_names()))


def gpu_of_machine(index: int) -> int:
    """Return the number on this machine of the GPU that has the number `index` here."""
    names = _visible_names()
    return int(names[index]) if index < len(names) and names[index].isdecimal() else index


def _visible_names() -> list[str]:
    return [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]


def current_device() -> int:
    """Return the index of this thread's current pretend GPU."""
    return getattr(_current, "index", 0)


def as_device(device: DeviceLike) -> Any:
    """Return a device with an index, or None for None; raise PyTorch's RuntimeError for a GPU that is not there."""
    if device is None:
        return None
    device = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    if device.type != "cuda":
        return device
    check_fork()
    index = current_device() if device.index is None else device.index
    if index >= number_of_gpus():
        raise AcceleratorError("CUDA error: invalid device ordinal")
    return torch.device("cuda", index)


def check_fork() -> None:
    """Raise PyTorch's RuntimeError in a fork of a process that had used a GPU."""
    if _gpus.in_use_at_fork:
        raise RuntimeError(FORKED)


def choose_card(card: Card) -> None:
    """Let all pretend GPUs be of this card."""
    _gpus.card = card


def memory_of_gpu() -> int:
    """Return the bytes that a pretend GPU says it has."""
    return _gpus.card.n_bytes if _gpus.card else MEMORY


def check_memory(gpu: int, now: int, wanted: int) -> None:
    """Raise PyTorch's OutOfMemoryError if so many bytes do not fit on the card beside those that are there."""
    if _gpus.card is not None and now + wanted > _gpus.card.n_bytes:
        total, free, asked = (f"{n / 2**30:.2f} GiB" for n in (_gpus.card.n_bytes, _gpus.card.n_bytes - now, wanted))
        raise torch.OutOfMemoryError(OUT.format(asked, gpu, total, free, _gpus.card.name))


def note_use() -> None:
    """Note that this process has something on a GPU: its forks cannot use GPUs then, and the number of GPUs stays."""
    if not _gpus.in_use:
        _gpus.count, _gpus.in_use = number_of_gpus(), True


def forget_use() -> None:
    """Let this fork stand for a new process, in which nothing has used a GPU."""
    _gpus.in_use = _gpus.in_use_at_fork = False


def _note_fork() -> None:
    _gpus.in_use_at_fork = _gpus.in_use


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_note_fork)


def gpu_index(device: DeviceLike = None) -> int:
    """Return the index of a GPU; of the current one for None."""
    return as_device("cuda" if device is None else device).index


def set_device(device: DeviceLike) -> None:
    """Make `device` the current one of this thread; a negative index changes nothing."""
    if not (isinstance(device, int) and device < 0):
        _current.index = gpu_index(device)
        note_use()


class PretendDevice:
    """`torch.cuda.device`: the current device within a block."""

    def __init__(self, device: DeviceLike) -> None:
        self.index = current_device() if device in (None, -1) else gpu_index(device)

    def __enter__(self) -> None:
        self.before, _current.index = current_device(), self.index

    def __exit__(self, *error: object) -> None:
        _current.index = self.before


class PretendDeviceOf(PretendDevice):
    """`torch.cuda.device_of`: the device of a tensor within a block."""

    def __init__(self, tensor: torch.Tensor) -> None:
        super().__init__(tensor.get_device() if tensor.is_cuda else None)


def _check_id(device: Any) -> None:
    device = torch.device("cuda", device) if isinstance(device, int) else torch.device(device or "cuda")
    if (device.index or 0) >= number_of_gpus():
        raise AssertionError("Invalid device id")


def _properties(device: DeviceLike = None) -> SimpleNamespace:
    _check_id(device)
    note_use()
    return SimpleNamespace(
        name=f"{_gpus.card.name}, {NAME}" if _gpus.card else NAME,
        total_memory=memory_of_gpu(),
        major=_gpus.card.capability[0] if _gpus.card else 8,
        minor=_gpus.card.capability[1] if _gpus.card else 0,
        multi_processor_count=1,
        max_threads_per_multi_processor=1,
        warp_size=32,
    )


def _capability(device: DeviceLike = None) -> tuple[int, int]:
    found = _properties(device)
    return found.major, found.minor


def _synchronize(device: DeviceLike = None) -> None:
    gpu_index(device)


def _nothing(*args: Any, **kwargs: Any) -> None:
    """Do nothing: the CPU has computed everything already, and keeps no memory back."""


def pretend_devices(k: int) -> None:
    """Let torch.cuda and torch.accelerator count `k` devices."""
    _gpus.count = k
    cuda: dict[str, Any] = {
        "is_available": lambda: True,
        "is_initialized": lambda: _gpus.in_use,
        "_is_in_bad_fork": lambda: _gpus.in_use_at_fork,  # torch.manual_seed asks
        "_initialized": True,  # only then does checkpointing keep the states of the GPUs' generators
        "init": _nothing,
        "device_count": number_of_gpus,
        "current_device": current_device,
        "set_device": set_device,
        "device": PretendDevice,
        "device_of": PretendDeviceOf,
        "synchronize": _synchronize,
        "ipc_collect": _nothing,
        "get_device_name": lambda device=None: _properties(device).name,
        "get_device_properties": _properties,
        "get_device_capability": _capability,
        "can_device_access_peer": lambda device, peer: True,
        "is_bf16_supported": lambda including_emulation=True: including_emulation or _capability()[0] >= 8,
        "is_tf32_supported": lambda: False,
    }
    accelerator: dict[str, Any] = {
        "is_available": lambda: True,
        "device_count": number_of_gpus,
        "current_accelerator": lambda check_available=False: torch.device("cuda"),
        "current_device_index": current_device,
        "current_device_idx": current_device,
        "set_device_index": set_device,
        "set_device_idx": set_device,
        "device_index": PretendDevice,
        "synchronize": _synchronize,
    }
    replace(cuda, torch.cuda)
    # without cuDNN, a layer does not ask for one memory of all its weights
    replace({"is_available": lambda: True, "is_acceptable": lambda tensor: False}, torch.backends.cudnn)
    replace({"is_built": lambda: True}, torch.backends.cuda)
    replace(accelerator, torch.accelerator)
    replace({"_get_accelerator": lambda check=None: torch.device("cuda")}, torch._C)  # `fully_shard` asks here
