"""Tensors inside tuples, lists, dicts and dataclasses: what a module takes and returns."""

import copy
import dataclasses
import reprlib
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["map_tensors", "tensors_in"]


def map_tensors(fn: Callable[..., Any], value: Any, *others: Any) -> Any:
    """Return `value` with every tensor in it replaced by fn(tensor, tensors at the same place in `others`).

    Tensors are found in tuples (named ones too), lists, dicts and dataclasses. Without `others` everything else stays
    as it is. With `others`, None, texts, True and False stay if all have the same there. Raises ValueError for anything
    else, and for `others` of a different structure.

    Example:
        >>> map_tensors(torch.add, {"a": torch.tensor(1)}, {"a": torch.tensor(2)})
        {'a': tensor(3)}
    """
    values = (value, *others)
    if all(isinstance(v, torch.Tensor) for v in values):
        return fn(*values)
    _check_same("structure", [type(v).__name__ for v in values])
    if isinstance(value, (tuple, list)):
        _check_same("length", [len(v) for v in values])
        items = [map_tensors(fn, *parts) for parts in zip(*values, strict=True)]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value) if field.init]
        fields = {name: map_tensors(fn, *(getattr(v, name) for v in values)) for name in names}
        return dataclasses.replace(value, **fields)
    if isinstance(value, dict):
        _check_same("keys", [list(v) for v in values])
        found = copy.copy(value)  # of the same type, a defaultdict too
        found.update({key: map_tensors(fn, *(v[key] for v in values)) for key in value})
        return found
    if others and not (value is None or isinstance(value, (bool, str))):
        raise ValueError(
            f"module: expected tensors, tuples, lists, dicts and dataclasses as output, got {reprlib.repr(value)} "
            f"({type(value).__name__}). Each replica has its own; return a tensor [b, ...]."
        )
    _check_same("value", list(values))
    return value


def _check_same(what: str, found: list[Any]) -> None:
    if any(item != found[0] for item in found[1:]):  # the first need not equal itself: NaN and arrays do not
        raise ValueError(f"module: expected the same {what} from each replica, got {reprlib.repr(found)}.")


def tensors_in(*values: Any) -> list[torch.Tensor]:
    """Return the tensors in `values`, in the order in which `map_tensors` finds them."""
    found: list[torch.Tensor] = []

    def note(tensor: torch.Tensor) -> torch.Tensor:
        found.append(tensor)
        return tensor

    map_tensors(note, values)
    return found
