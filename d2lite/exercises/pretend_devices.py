"""Tensors that name their device, although one CPU holds them all; `watch` is told which device computes what.

"cpu:2" is device 2. A tensor moves with `.to(device)` and `copy_`; an operation on tensors of two devices is refused,
as GPUs refuse it. `ddp_rehearsal.pretend_gpus` changes a complete process; here are a few tensors of one answer.
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
    devices_of_its_own = True  # the pretend GPUs of ddp_rehearsal leave such a tensor alone

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Do what `func` does, on the device of its arguments."""
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        inputs = list(_pretend_tensors_in((args, kwargs)))
        own, homes = inputs[0], sorted({tensor.home for tensor in inputs})
        if func == torch.Tensor.device.__get__:
            return torch.device("cpu", own.home)
        with torch._C.DisableTorchFunctionSubclass():
            if name in MOVES:
                return _moved(name, own, args, kwargs)
            if name in COPIES and isinstance(args[0], PretendTensor):
                own = args[0]
            elif own.devices.strict and len(homes) > 1:
                raise Unfit(
                    f"an operation ({name.strip('_')}) has tensors of {' and '.join(f'device {i}' for i in homes)}, "
                    "which GPUs refuse.",
                    "A device computes with what is in its own memory. What must be done to a tensor before that?",
                )
            result = func(*args, **kwargs)
            if name == "__setitem__":  # it returns None
                _placed(args[0], name, own.devices, own.home, inputs)
                return None
            return _placed(result, name, own.devices, own.home, inputs)


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


def _placed(result: Any, name: str, devices: PretendDevices, home: int, inputs: list[PretendTensor]) -> Any:
    """Return the tensors of a result on device `home`, and tell the watch of them."""
    if isinstance(result, (list, tuple)) and any(isinstance(item, torch.Tensor) for item in result):
        return type(result)([_placed(item, name, devices, home, inputs) for item in result])
    if not isinstance(result, torch.Tensor):
        return result
    if not isinstance(result, PretendTensor):
        result = result.as_subclass(PretendTensor)
        result.devices, result.home = devices, home
    devices.watch(name, home, result, inputs)
    return result


def _moved(name: str, own: PretendTensor, args: Any, kwargs: Any) -> Any:
    """Do what `.to(...)` does: a copy on another device, or the same tensor if nothing changes."""
    if not isinstance(args[0], PretendTensor):  # plain.to(other), plain.type_as(other): a copy where `other` is
        return _placed(args[0].to(own.dtype, copy=True), name, own.devices, own.home, [])
    given, home = (*args[1:], *kwargs.values()), own.home
    dtype = next((x for x in given if isinstance(x, torch.dtype)), own.dtype)
    other = next((x for x in given if isinstance(x, torch.Tensor)), None)
    device = next((x for x in given if isinstance(x, (str, torch.device)) or type(x) is int), None)
    if other is not None:
        home, dtype = getattr(other, "home", home), other.dtype
    elif device is not None or name in ("cpu", "cuda"):
        target = f"{name}()" if device is None else f'"{device}"'
        place = torch.device("cpu") if device is None else torch.device(device)
        if place.type != "cpu" or place.index is None:
            raise Unfit(
                f"a tensor is sent to {target}, which names none of the devices of the tensors.",
                "Each tensor has a .device: take the target from there.",
            )
        home = place.index
    result = own.to(dtype, copy=home != own.home or bool(kwargs.get("copy")))
    return own if result is own else _placed(result, name, own.devices, home, [own])
