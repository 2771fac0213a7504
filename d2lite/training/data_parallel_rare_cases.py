"""Replicas of a module for one forward pass: each is a module of its own, with tensors of its own device."""

import operator
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MethodType
from typing import Any

import torch
from torch import nn

__all__ = ["Replica", "keep_attributes", "make_replica"]

_TABLES = ("_parameters", "_buffers", "_modules")  # where nn.Module keeps what is registered
_LONGEST = 1000  # entries: a longer list or dict is data, such as a vocabulary, and is not searched for modules


@dataclass
class Replica:
    """A replica of a module."""

    module: nn.Module
    params: Sequence[tuple[torch.Tensor, torch.Tensor]]  # pairs (original, its copy) of those that require a gradient
    new: dict[int, Any]  # id of an original module, parameter or buffer -> what the replica has in its place


def make_replica(module: nn.Module, device: torch.device, copies: bool, isolated: bool) -> Replica:
    """Return a replica of `module` on `device`, as the module is at this moment.

    The replica shares the values of the attributes: numbers, hooks, a replaced `forward`. There are three exceptions,
    also in lists, tuples and dicts of up to 1000 entries: parameters and buffers become those of the replica; modules
    become their replicas; methods of modules become methods of the replicas. Parameters and buffers have memory of
    their own with `copies`, else they have that of the module. With `isolated`, they are leaves of a graph of their
    own, else they are connected with the module's by autograd.
    """
    originals = [*module.parameters(), *module.buffers()]
    new: dict[int, Any] = {id(t): _leaf(t, device, copies) if isolated else _copy(t, device, copies) for t in originals}
    modules = list(module.modules())
    new |= {id(m): object.__new__(type(m)) for m in modules}
    for original in modules:
        own = {name: _translate(value, new) for name, value in vars(original).items() if name not in _TABLES}
        for table in _TABLES:
            own[table] = {name: new.get(id(value), value) for name, value in vars(original)[table].items()}
        vars(new[id(original)]).update(own)
    return Replica(new[id(module)], [(t, new[id(t)]) for t in originals if t.requires_grad], new)


def _copy(tensor: torch.Tensor, device: torch.device, copies: bool) -> torch.Tensor:
    return tensor.to(device, copy=True) if copies else tensor


def _leaf(tensor: torch.Tensor, device: torch.device, copies: bool) -> torch.Tensor:
    copy = _copy(tensor.detach(), device, copies)
    if isinstance(tensor, nn.Parameter):
        copy = nn.Parameter(copy, requires_grad=False)
    if tensor.requires_grad:
        copy.requires_grad_().register_post_accumulate_grad_hook(_refuse)
    return copy


def _refuse(leaf: torch.Tensor) -> None:
    """Raise RuntimeError: a backward pass has reached this leaf of a replica, and did not begin at an output."""
    raise RuntimeError(
        "DataParallel: expected losses of what the module returns, got one of a tensor that left a replica in another "
        "way (an attribute, a hook, a list, `backward()` in `forward`, an output of an unknown type). The gradients of "
        "the other replicas would be missing. Return the tensor from `forward`."
    )


def _translate(value: Any, new: Mapping[int, Any]) -> Any:
    """Return what a replica has in place of `value`: `value` itself, unless it is or holds something of a module."""
    kind = type(value)
    if kind in (list, tuple) and len(value) <= _LONGEST:
        items = [_translate(item, new) for item in value]
        return value if all(map(operator.is_, items, value)) else kind(items)
    if kind in (dict, OrderedDict) and len(value) <= _LONGEST:
        items = [_translate(item, new) for item in value.values()]
        return value if all(map(operator.is_, items, value.values())) else kind(zip(value, items, strict=True))
    if kind is MethodType and id(value.__self__) in new:
        return MethodType(value.__func__, new[id(value.__self__)])
    return new.get(id(value), value)


def keep_attributes(module: nn.Module, replica: Replica) -> None:
    """Give the modules the attributes and buffers that the forward pass has set on their replica.

    Raises:
        RuntimeError: if the forward pass has made parameters or layers, or has given a parameter other memory. They
            would be lost.
    """
    replaced = set(map(id, replica.new.values()))
    for original in module.modules():
        copy = replica.new[id(original)]
        for table in ("_parameters", "_modules"):
            for name, value in vars(copy)[table].items():
                if value is not None and id(value) not in replaced:
                    raise RuntimeError(
                        f"DataParallel: expected layers and parameters from before the forward pass, got {name!r}, "
                        f"made by the forward pass of {type(original).__name__}. Make it in __init__."
                    )
        for now, before in ((vars(copy), vars(original)), (copy._buffers, original._buffers)):
            for name, value in now.items():
                if name not in _TABLES and value is not before.get(name, now) and not _holds(value, replaced):
                    before[name] = value
    for tensor, copy in replica.params:
        if copy is not tensor and copy.device == tensor.device and copy.data_ptr() != tensor.data_ptr():
            raise RuntimeError(
                "DataParallel: expected a forward pass that leaves `.data` of parameters where it is, got another "
                "memory. Write into it: param.data.copy_(...), or change it between two steps."
            )


def _holds(value: Any, replaced: set[int]) -> bool:
    """Return whether `value` is, or holds, a module or tensor of the replica."""
    if isinstance(value, MethodType):
        return id(value.__self__) in replaced
    if type(value) in (list, tuple, dict, OrderedDict) and len(value) <= _LONGEST:
        return any(_holds(item, replaced) for item in (value.values() if isinstance(value, dict) else value))
    return id(value) in replaced
