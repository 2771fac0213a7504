"""Tensors that are each on one of several devices, also where one CPU holds them all: who computes what is logged.

A `Placed` tensor names its device: "cpu:2" is device 2. It moves with `.to(device)` and `copy_`, and an operation on
tensors of two devices is refused, as GPUs refuse it. So an exercise can see on which device something was computed.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch

from d2lite.exercises.exercise import Unfit

__all__ = ["COPIES", "Machine", "Placed", "plain"]

MOVES = ("to", "cpu", "cuda", "type_as")
COPIES = ("copy_", "__setitem__")  # from one device to another
Watch = Callable[[str, int, torch.Tensor, list["Placed"]], None]


class Machine:
    """Several devices. `watch(name, i, result, inputs)` is called after each operation that gives a tensor on device i.

    If `strict`, an operation on tensors of two devices raises Unfit; else its result is on the device of the first.
    """

    def __init__(self, watch: Watch, strict: bool = True) -> None:
        self.watch, self.strict = watch, strict

    def put(self, tensor: torch.Tensor, i: int) -> "Placed":
        """Return a tensor on device i that shares the memory of `tensor`."""
        placed = tensor.detach().as_subclass(Placed)
        placed.machine, placed.home = self, i
        return placed


class Placed(torch.Tensor):
    """A tensor on device `home` of a Machine; `Machine.put` makes it."""

    machine: Machine
    home: int

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Do what `func` does, on the device of its arguments."""
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        inputs = list(_placed_in((args, kwargs)))
        own = inputs[0]
        if func == torch.Tensor.device.__get__:
            return torch.device("cpu", own.home)
        if name in MOVES:
            own = args[0] if isinstance(args[0], Placed) else own
            return _moved(func, name, own, args, kwargs)
        if name in COPIES and isinstance(args[0], Placed):
            own = args[0]
        elif own.machine.strict and len({tensor.home for tensor in inputs}) > 1:
            homes = " and ".join(f"device {i}" for i in sorted({tensor.home for tensor in inputs}))
            raise Unfit(
                f"an operation ({name.strip('_')}) has tensors of {homes}, which GPUs refuse.",
                "A device computes with what is in its own memory. What must be done to a tensor before that?",
            )
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **kwargs)
        if name == "__setitem__":  # it returns None
            _tagged(args[0], name, own.machine, own.home, inputs)
            return None
        return _tagged(result, name, own.machine, own.home, inputs)


def plain(value: Any) -> Any:
    """Return a tensor, or a list of them, without its device."""
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    with torch._C.DisableTorchFunctionSubclass():
        return value.as_subclass(torch.Tensor) if isinstance(value, Placed) else value


def _placed_in(value: Any, depth: int = 0) -> Iterator[Placed]:
    if isinstance(value, Placed):
        yield value
    elif isinstance(value, (list, tuple, dict)) and depth < 5:
        for item in value.values() if isinstance(value, dict) else value:
            yield from _placed_in(item, depth + 1)


def _tagged(result: Any, name: str, machine: Machine, home: int, inputs: list[Placed]) -> Any:
    if isinstance(result, (list, tuple)) and any(isinstance(item, torch.Tensor) for item in result):
        return type(result)([_tagged(item, name, machine, home, inputs) for item in result])
    if not isinstance(result, torch.Tensor):
        return result
    if not isinstance(result, Placed):
        with torch._C.DisableTorchFunctionSubclass():
            result = result.as_subclass(Placed)
        result.machine, result.home = machine, home
    with torch._C.DisableTorchFunctionSubclass():
        machine.watch(name, home, result, inputs)
    return result


def _moved(func: Any, name: str, own: Placed, args: Any, kwargs: Any) -> Any:
    """Do what `.to(...)` does: a copy on another device, or the same tensor if nothing changes."""
    target = kwargs.get("device", args[1] if len(args) > 1 else kwargs.get("other"))
    dtype = next((x for x in (*args[1:], *kwargs.values()) if isinstance(x, torch.dtype)), None)
    if name in ("cpu", "cuda"):
        raise _unknown(f"{name}()")
    home = own.home
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
    return _tagged(result, name, own.machine, home, [own])


def _unknown(target: str) -> Unfit:
    return Unfit(
        f"a tensor is sent to {target}, which names none of the devices of the tensors.",
        "Each tensor has a .device: take the target from there.",
    )
