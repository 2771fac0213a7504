"""Tensors that name their device, although one CPU holds them all; it is logged which device computes what.

A `PretendTensor` names its device: "cpu:2" is device 2. It moves with `.to(device)` and `copy_`, and an operation on
tensors of two devices is refused, as GPUs refuse it. So an exercise can see on which device something was computed.

`ddp_rehearsal.pretend_gpus` changes a complete process, to its end, and not where there are real GPUs. Here are a few
tensors of one answer, in the process of a notebook, and each operation is logged.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch

from d2lite.exercises.observed import Unfit

__all__ = ["COPIES", "PretendDevices", "PretendTensor", "without_device"]

MOVES = ("to", "cpu", "cuda", "type_as")
COPIES = ("copy_", "__setitem__")  # from one device to another
Watch = Callable[[str, int, torch.Tensor, list["PretendTensor"]], None]


class PretendDevices:
    """Several devices. `watch(name, i, result, inputs)` is called after each operation that gives a tensor on device i.

    If `strict`, an operation on tensors of two devices raises Unfit; else its result is on the device of the first.
    """

    def __init__(self, watch: Watch, strict: bool = True) -> None:
        self.watch, self.strict = watch, strict

    def put(self, tensor: torch.Tensor, i: int) -> "PretendTensor":
        """Return a tensor on device i that shares the memory of `tensor`."""
        there = tensor.detach().as_subclass(PretendTensor)
        there.devices, there.home = self, i
        return there


class PretendTensor(torch.Tensor):
    """A tensor on device `home` of a PretendDevices; `PretendDevices.put` makes it."""

    devices: PretendDevices
    home: int

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Do what `func` does, on the device of its arguments."""
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        inputs = list(_pretend_tensors_in((args, kwargs)))
        own = inputs[0]
        if func == torch.Tensor.device.__get__:
            return torch.device("cpu", own.home)
        if name in MOVES:
            own = args[0] if isinstance(args[0], PretendTensor) else own
            return _moved(func, name, own, args, kwargs)
        if name in COPIES and isinstance(args[0], PretendTensor):
            own = args[0]
        elif own.devices.strict and len({tensor.home for tensor in inputs}) > 1:
            homes = " and ".join(f"device {i}" for i in sorted({tensor.home for tensor in inputs}))
            raise Unfit(
                f"an operation ({name.strip('_')}) has tensors of {homes}, which GPUs refuse.",
                "A device computes with what is in its own memory. What must be done to a tensor before that?",
            )
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **kwargs)
        if name == "__setitem__":  # it returns None
            _tagged(args[0], name, own.devices, own.home, inputs)
            return None
        return _tagged(result, name, own.devices, own.home, inputs)


def without_device(value: Any) -> Any:
    """Return a tensor, or a list of them, without its device."""
    if isinstance(value, (list, tuple)):
        return [without_device(item) for item in value]
    with torch._C.DisableTorchFunctionSubclass():
        return value.as_subclass(torch.Tensor) if isinstance(value, PretendTensor) else value


def _pretend_tensors_in(value: Any, depth: int = 0) -> Iterator[PretendTensor]:
    if isinstance(value, PretendTensor):
        yield value
    elif isinstance(value, (list, tuple, dict)) and depth < 5:
        for item in value.values() if isinstance(value, dict) else value:
            yield from _pretend_tensors_in(item, depth + 1)


def _tagged(result: Any, name: str, devices: PretendDevices, home: int, inputs: list[PretendTensor]) -> Any:
    if isinstance(result, (list, tuple)) and any(isinstance(item, torch.Tensor) for item in result):
        return type(result)([_tagged(item, name, devices, home, inputs) for item in result])
    if not isinstance(result, torch.Tensor):
        return result
    if not isinstance(result, PretendTensor):
        with torch._C.DisableTorchFunctionSubclass():
            result = result.as_subclass(PretendTensor)
        result.devices, result.home = devices, home
    with torch._C.DisableTorchFunctionSubclass():
        devices.watch(name, home, result, inputs)
    return result


def _moved(func: Any, name: str, own: PretendTensor, args: Any, kwargs: Any) -> Any:
    """Do what `.to(...)` does: a copy on another device, or the same tensor if nothing changes."""
    target = kwargs.get("device", args[1] if len(args) > 1 else kwargs.get("other"))
    dtype = next((x for x in (*args[1:], *kwargs.values()) if isinstance(x, torch.dtype)), None)
    if name in ("cpu", "cuda"):
        raise _unknown(f"{name}()")
    home = own.home
    if not isinstance(args[0], PretendTensor):  # plain.to(other), plain.type_as(other): a copy where `other` is
        with torch._C.DisableTorchFunctionSubclass():
            return _tagged(args[0].to(own.dtype, copy=True), name, own.devices, own.home, [])
    if isinstance(target, torch.Tensor):
        home, dtype = getattr(target, "home", own.home), target.dtype
    elif isinstance(target, (str, torch.device, int)):
        device = torch.device(target)
        if device.type != "cpu" or device.index is None:
            raise _unknown(f'"{device}"')
        home = device.index
    copies = home != own.home or bool(kwargs.get("copy"))
    with torch._C.DisableTorchFunctionSubclass():
        result = own.to(dtype or own.dtype, copy=copies)
    if result is own:
        return own
    return _tagged(result, name, own.devices, home, [own])


def _unknown(target: str) -> Unfit:
    return Unfit(
        f"a tensor is sent to {target}, which names none of the devices of the tensors.",
        "Each tensor has a .device: take the target from there.",
    )
