"""What DataParallel does for networks that few learners write, or refuses because it would be silently wrong.

A replica gets attributes of its own: lists of layers, methods of the module, hooks, a replaced `forward`. The module
keeps what the forward pass of the first replica has set. What cannot be replicated is refused.
"""

import operator
from collections import OrderedDict
from collections.abc import Mapping
from types import MethodType
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrize

__all__ = ["check_can_replicate", "check_module", "in_replica_of", "keep_attributes"]

_TABLES = ("_parameters", "_buffers", "_modules")  # where nn.Module keeps what is registered
_LONGEST = 1000  # entries: a longer list or dict is data, such as a vocabulary, and is not searched for modules
_MISSING = object()


def check_module(module: Any) -> None:
    """Raise TypeError unless `module` is an nn.Module in Python."""
    if not isinstance(module, nn.Module):
        raise TypeError(f"module: expected an nn.Module, got {type(module).__name__}.")
    if any(isinstance(m, torch.jit.ScriptModule) for m in module.modules()):
        raise TypeError("module: expected a module in Python, got one of TorchScript. Wrap it before scripting.")


def check_can_replicate(module: nn.Module) -> None:
    """Raise RuntimeError if the replicas of `module` would not compute what the module computes."""
    if parametrize._cache_enabled:  # its cache is kept by module, and replicas are new modules in every pass
        raise RuntimeError("DataParallel: expected no parametrize.cached() around it, got one. Leave it out.")
    if torch._C._are_functorch_transforms_active():  # they follow what happens in the caller's thread only
        raise RuntimeError(
            "DataParallel: expected no transformation of torch.func around it (grad, vmap, jacrev, ...), got one. "
            "Transform the wrapped network itself: net.module."
        )
    if any(map(is_lazy, [*module.parameters(), *module.buffers()])):
        raise RuntimeError(
            "module: expected initialised layers, got lazy ones. Call the module once, before it is wrapped."
        )


def in_replica_of(original: nn.Module, new: Mapping[int, Any]) -> dict[str, Any]:
    """Return the attributes that a replica of the module `original` has; `new` holds its parts by the original's id.

    Values are shared (numbers, hooks, a replaced `forward`). Parameters, buffers, modules and their methods, also in
    lists, tuples and dicts of up to 1000 entries, become the replica's.
    """
    own = {name: _translate(value, new) for name, value in vars(original).items() if name not in _TABLES}
    for table in _TABLES:
        own[table] = {name: new.get(id(value), value) for name, value in vars(original)[table].items()}
    return own


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


def keep_attributes(module: nn.Module, new: Mapping[int, Any]) -> None:
    """Give the modules the attributes and buffers that a forward pass has set on their replica, in `new` by their ids.

    Raises RuntimeError for what would be lost: new parameters and layers, and parameters in other memory.
    """
    of_replica = set(map(id, new.values()))
    for original in module.modules():
        copy = new[id(original)]
        for table in ("_parameters", "_modules"):
            for name, value in vars(copy)[table].items():
                if value is not None and id(value) not in of_replica:
                    raise RuntimeError(
                        f"DataParallel: expected layers and parameters from before the forward pass, got {name!r}, "
                        f"made by the forward pass of {type(original).__name__}. Make it in __init__."
                    )
        for now, before in ((vars(copy), vars(original)), (copy._buffers, original._buffers)):
            for name, value in now.items():
                if name not in _TABLES and value is not before.get(name, _MISSING) and not _holds(value, of_replica):
                    before[name] = value
    for param in module.parameters():  # the first replica has the memory of the module
        if new[id(param)].data_ptr() != param.data_ptr():
            raise RuntimeError(
                "DataParallel: expected parameters in their old memory after `forward`, got one with a new `.data`. "
                "Write into it: param.data.copy_(...)."
            )


def _holds(value: Any, of_replica: set[int]) -> bool:
    """Return whether `value` is, or holds, a module or tensor of the replica."""
    if isinstance(value, MethodType):
        return id(value.__self__) in of_replica
    if type(value) in (list, tuple, dict, OrderedDict) and len(value) <= _LONGEST:
        return any(_holds(item, of_replica) for item in (value.values() if isinstance(value, dict) else value))
    return id(value) in of_replica
