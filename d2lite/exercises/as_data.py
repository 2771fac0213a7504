"""Values as data: arguments, results and errors in a form that JSON can hold, so that nothing is ever unpickled.

An answer may return anything. What has no form of its own becomes `Other`, which equals nothing but its like.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np
import torch

from d2lite.exercises.compare import SHOWN_CHARS, shown
from d2lite.exercises.observed import Raised, Unfit, Unusable
from d2lite.exercises.pretend_devices import without_device

__all__ = ["Other", "Sealed", "arguments_as_data", "as_data", "from_data"]

MOST_ITEMS = 200_000  # of a value, all lists and tensors together
MOST_DEPTH = 20
MOST_TEXT = 20_000
DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128),
        *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    )
}


@dataclass(frozen=True)
class Other:
    """What stands for a value that has no form as data."""

    kind: str
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Sealed:
    """What stands for an object of the exercise's own class: its hash, and the text that it shows."""

    digest: str
    text: str

    def __str__(self) -> str:
        return self.text


def as_data(value: Any) -> Any:
    """Return a result as data that `from_data` reads: objects are sealed, what is too large or deep is an `Other`."""
    try:
        return _data(value, _Budget(MOST_ITEMS), with_fields=False)
    except Exception:  # anything may go wrong in a learner's object
        return {"other": type(value).__name__[:SHOWN_CHARS], "text": shown(value)}


def arguments_as_data(args: Sequence[Any]) -> list[Any]:
    """Return the arguments of a case as data, objects with their fields; a TypeError says that one has no such form."""
    return [_data(arg, _Budget(MOST_ITEMS), with_fields=True) for arg in args]


def from_data(data: Any, classes: Mapping[str, type] | None = None) -> Any:
    """Return the value of some data, or raise ValueError; objects are made of `classes` alone."""
    try:
        return _value(data, classes or {}, MOST_DEPTH + 5)
    except (LookupError, TypeError, AttributeError, RuntimeError, OverflowError, RecursionError) as error:
        raise ValueError(f"data: expected a value as `as_data` makes it, got {type(error).__name__}: {error}") from None


class _Budget:
    """Counts the items that a value may still have."""

    def __init__(self, items: int) -> None:
        self.items = items

    def take(self, items: int) -> None:
        self.items -= items
        if self.items < 0:
            raise ValueError("too many items")


def _data(value: Any, budget: _Budget, with_fields: bool, depth: int = 0) -> Any:
    if depth > MOST_DEPTH:
        raise ValueError("too deep")
    budget.take(1)

    def inner(item: Any) -> Any:
        return _data(item, budget, with_fields, depth + 1)

    kind = type(value)
    if value is None or kind is bool:
        return value
    if isinstance(value, int):
        return int(value) if abs(value) < 10**300 else _other(value, with_fields, "a number of more than 300 digits")
    if isinstance(value, str):
        budget.take(len(value) // 100)
        return value[:MOST_TEXT]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"float": repr(float(value))}
    if isinstance(value, complex):
        return {"complex": [repr(value.real), repr(value.imag)]}
    if isinstance(value, bytes):
        budget.take(len(value))
        return {"bytes": value.hex()}
    if isinstance(value, torch.Tensor):
        return _tensor(value, budget)
    if isinstance(value, (np.ndarray, np.generic)):
        return _array(value, budget, inner, with_fields)
    if isinstance(value, torch.device):
        return {"device": str(value)}
    if isinstance(value, Mapping):
        return {"dict": [[inner(key), inner(item)] for key, item in value.items()]}
    if isinstance(value, tuple):
        return {"tuple": [inner(item) for item in value]}
    if isinstance(value, Sequence):
        budget.take(len(value))
        return [inner(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return {"set": sorted((inner(item) for item in value), key=json.dumps)}
    return _object(value, inner, with_fields)


def _object(value: Any, inner: Any, with_fields: bool) -> Any:
    if isinstance(value, Raised):
        return {"raised": value.kind, "message": value.message[:MOST_TEXT], "in_observe": value.in_observe}
    if isinstance(value, Unfit):
        return {"unfit": str(value.wrong)[:MOST_TEXT], "think": str(value.think)[:MOST_TEXT]}
    if isinstance(value, Unusable):
        return {"unusable": inner(value.value), "why": value.why[:MOST_TEXT]}
    if isinstance(value, Sealed):
        return {"sealed": value.digest, "text": value.text}
    if is_dataclass(value) and not isinstance(value, type):
        named = {field.name: inner(getattr(value, field.name)) for field in fields(value)}
        if with_fields:
            return {"object": type(value).__name__, "fields": named}
        text = json.dumps([type(value).__name__, named], sort_keys=True)
        return {"sealed": hashlib.sha256(text.encode()).hexdigest(), "text": shown(value)}
    return _other(value, with_fields)


def _other(value: Any, with_fields: bool, text: str = "") -> Any:
    """Return what stands for a value without a form as data; an argument must have one, so it raises TypeError."""
    if with_fields:
        expected = "numbers, texts, tensors, lists and the like"
        raise TypeError(f"the arguments of a case: expected {expected}, got {text or shown(value)}")
    return {"other": type(value).__name__[:SHOWN_CHARS], "text": text or shown(value)}


def _tensor(value: torch.Tensor, budget: _Budget) -> Any:
    plain = without_device(value.detach()).cpu()
    name = str(plain.dtype).removeprefix("torch.")
    budget.take(plain.numel())
    flat = torch.view_as_real(plain).reshape(-1) if plain.is_complex() else plain.reshape(-1)
    items = flat.tolist()
    if not all(isinstance(item, int) or math.isfinite(item) for item in items):
        items = [item if isinstance(item, int) or math.isfinite(item) else repr(item) for item in items]
    return {"tensor": items, "shape": list(plain.shape), "dtype": name}


def _array(value: Any, budget: _Budget, inner: Any, with_fields: bool) -> Any:
    if isinstance(value, np.generic):
        return inner(value.item())
    budget.take(value.size)
    if value.dtype.kind not in "biufU":
        return _other(value, with_fields)
    return {"array": [inner(item) for item in value.reshape(-1).tolist()], "shape": list(value.shape)}


def _value(data: Any, classes: Mapping[str, type], depth: int) -> Any:
    if depth < 0:
        raise ValueError("data: expected less depth")
    if data is None or isinstance(data, (bool, int, float, str)):
        return data

    def inner(item: Any) -> Any:
        return _value(item, classes, depth - 1)

    if isinstance(data, list):
        return [inner(item) for item in data]
    kind = next(iter(data), "")
    first = data[kind]
    if kind == "float":
        return float(first)
    if kind == "complex":
        return complex(float(first[0]), float(first[1]))
    if kind == "bytes":
        return bytes.fromhex(first)
    if kind == "tensor":
        return _as_tensor(first, data["shape"], data["dtype"])
    if kind == "array":
        return np.array([inner(item) for item in first]).reshape(data["shape"])
    if kind == "device":
        return torch.device(first)
    if kind == "dict":
        return {_hashable(inner(key)): inner(item) for key, item in first}
    if kind == "tuple":
        return tuple(inner(item) for item in first)
    if kind == "set":
        return {_hashable(inner(item)) for item in first}
    if kind == "raised":
        return Raised(str(first), str(data["message"]), bool(data["in_observe"]))
    if kind == "unfit":
        return Unfit(str(first), str(data["think"]))
    if kind == "unusable":
        return Unusable(inner(first), str(data["why"]))
    if kind == "sealed":
        return Sealed(str(first), str(data["text"]))
    if kind == "other":
        return Other(str(first), str(data["text"]))
    if kind == "object":
        return classes[first](**{str(name): inner(item) for name, item in data["fields"].items()})
    raise ValueError(f"data: expected a known kind, got {kind!r}")


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


def _as_tensor(items: Any, shape: Any, name: str) -> torch.Tensor:
    dtype = DTYPES[name]
    numbers = [float(item) if isinstance(item, str) else item for item in items]
    if dtype.is_complex:
        real = torch.tensor(numbers, dtype=torch.float64).reshape(*shape, 2)
        return torch.view_as_complex(real).to(dtype)
    return torch.tensor(numbers, dtype=dtype).reshape(shape)
