"""The types of tensors from before there were devices: `x.type()`, and `torch.cuda.FloatTensor` as a class."""

from typing import Any

import torch

from ddp_rehearsal.pretend_gpus.devices import as_device, replace
from ddp_rehearsal.pretend_gpus.storages import device_of

__all__ = ["device_and_dtype", "dtype_name", "pretend_legacy_types", "type_name"]

NAMES = [f"{kind}Tensor" for kind in "Float Double Half BFloat16 Byte Char Short Int Long Bool".split()]


def type_name(tensor: torch.Tensor) -> str:
    """Return "torch.cuda.FloatTensor", "torch.FloatTensor", ...

    Example:
        >>> type_name(torch.ones(2))
        'torch.FloatTensor'
    """
    with torch._C.DisableTorchFunction():
        name = torch.Tensor.type(tensor)
    return name.replace("torch.", "torch.cuda.", 1) if device_of(tensor).type == "cuda" else name


def dtype_name(tensor: torch.Tensor) -> str:
    """Return "Float", "Long", ..., as PyTorch's C++ calls the dtype of a tensor."""
    return type_name(tensor).split(".")[-1].removesuffix("Tensor")


def device_and_dtype(kind: Any) -> tuple[str, torch.dtype]:
    """Return what such a type says, which is given by its name or as a class.

    Example:
        >>> device_and_dtype("torch.cuda.HalfTensor")
        ('cuda', torch.float16)
    """
    name = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__name__}"
    return "cuda" if ".cuda." in name else "cpu", getattr(torch, name.split(".")[-1]).dtype


class _OnGPU(type):
    """isinstance(tensor, torch.cuda.FloatTensor) looks at device and dtype."""

    def __instancecheck__(cls, tensor: object) -> bool:
        return isinstance(tensor, torch.Tensor) and type_name(tensor) == f"{cls.__module__}.{cls.__name__}"


def _class(name: str) -> Any:
    def make(cls: Any, *args: Any) -> Any:
        return getattr(torch, name)(*args).to(as_device("cuda"))

    return _OnGPU(name, (), {"__new__": make, "__module__": "torch.cuda", "dtype": getattr(torch, name).dtype})


def pretend_legacy_types() -> None:
    """Let torch.cuda have these classes, also in a build of PyTorch without CUDA."""
    replace({name: _class(name) for name in NAMES}, torch.cuda)
