"""Replicas of a module for one forward pass: modules of their own, with the tensors that they are given."""

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
_LONGEST = 1000  # entries: a longer list is data, such as a vocabulary, and is not searched for modules


@dataclass
class Replica:
    """A replica of a module."""

    module: nn.Module
    params: Sequence[tuple[torch.Tensor, torch.Tensor]]  # pairs (original, its copy) of those that require a gradient
    new: dict[int, Any]  # id of an original module, parameter or buffer -> what the replica has in its place


def make_replica(module: nn.Module, device: torch.device, copies: bool, isolated: bool) -> Replica:
    """Return a replica of `module` on `device`, as the module is at this moment.

    The replica shares the values of the attributes: numbers, hooks, a replaced `forward`. There are three exceptions,
    in lists and dicts too: parameters and buffers become those of the replica; modules become their replicas; methods
    of modules become methods of the replicas. Parameters and buffers have memory of their own with `copies`, else they
    are those of the module. With `isolated`, the parameters are leaves of a graph of their own, else they are connected
    with the module's by autograd.
    """
    params = list(module.parameters())
    new: dict[int, Any] = {id(p): _leaf(p, device, copies) if isolated else _copy(p, device, copies) for p in params}
    new |= {id(b): _copy(b.detach(), device, copies) for b in module.buffers()}
    modules = list(module.modules())
    new |= {id(m): m.__new__(type(m)) for m in modules}
    for original in modules:
        own = {name: _translate(value, new) for name, value in vars(original).items()}
        for table in _TABLES:
            if own[table] is vars(original)[table]:  # empty
                own[table] = own[table].copy()
        vars(new[id(original)]).update(own)
    return Replica(new[id(module)], [(p, new[id(p)]) for p in params if p.requires_grad], new)


def _copy(tensor: torch.Tensor, device: torch.device, copies: bool) -> torch.Tensor:
    return tensor.to(device, copy=True) if copies else tensor


def _leaf(tensor: torch.Tensor, device: torch.device, copies: bool) -> torch.Tensor:
    return _copy(tensor.detach(), device, copies).requires_grad_(tensor.requires_grad)


def _translate(value: Any, new: Mapping[int, Any]) -> Any:
    """Return what a replica has in place of `value`: `value` itself, unless it is or holds something of a module."""
    kind = type(value)
    if kind in (list, tuple) and 0 < len(value) <= _LONGEST:
        items = [_translate(item, new) for item in value]
        return value if all(map(operator.is_, items, value)) else kind(items)
    if kind in (dict, OrderedDict) and 0 < len(value) <= _LONGEST:
        items = [_translate(item, new) for item in value.values()]
        return value if all(map(operator.is_, items, value.values())) else kind(zip(value, items, strict=True))
    if kind is MethodType and id(value.__self__) in new:
        return MethodType(value.__func__, new[id(value.__self__)])
    return new.get(id(value), value)


def keep_attributes(module: nn.Module, replica: Replica) -> None:
    """Give the modules what the forward pass has set on their replica: numbers, texts, tensors without a graph."""
    replaced = set(map(id, replica.new.values()))
    for original in module.modules():
        copy = replica.new[id(original)]
        for now, before in ((vars(copy), vars(original)), (copy._buffers, original._buffers)):
            for name, value in now.items():
                if value is not before.get(name, now) and _is_plain(value) and id(value) not in replaced:
                    before[name] = value


def _is_plain(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return not value.requires_grad
    return value is None or isinstance(value, (bool, int, float, str))
