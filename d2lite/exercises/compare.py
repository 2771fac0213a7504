"""Whether two results are equal, and how they are shown; an answer may return anything."""

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from numbers import Integral, Number, Real
from typing import Any

import numpy as np
import torch

__all__ = ["describe_value", "is_near", "ratio_of", "same", "shown", "shown_apart"]

SHOWN_CHARS = 160  # of an expected or a given value in a message
SHOWN_ITEMS = 20  # of a list or a tensor
RELATIVE, ABSOLUTE = 1e-5, 1e-7  # 32-bit numbers that were added in another order


def same(expected: Any, got: Any) -> bool:
    """Return whether two results are equal: numbers up to rounding, tuples as lists, tensors element by element.

    Whole numbers must be the same. An array of NumPy counts as the list of its values, not as a tensor. Two results
    whose comparison raises an error are not equal.
    """
    try:
        return _same(_as_numbers(expected), _as_numbers(got))
    except Exception:
        return False


def _as_numbers(value: Any) -> Any:
    """Return a number in place of a tensor that holds one, and numbers and lists in place of what NumPy makes."""
    if isinstance(value, torch.Tensor):
        return value.item() if not value.dim() else value
    return value.tolist() if type(value).__module__ == "numpy" and hasattr(value, "tolist") else value


def _same(expected: Any, got: Any) -> bool:
    if isinstance(expected, torch.Tensor) and isinstance(got, torch.Tensor):
        if expected.shape != got.shape:
            return False
        kind = torch.complex128 if expected.is_complex() or got.is_complex() else torch.float64
        a, b = (t.detach().to("cpu", kind) for t in (expected, got))
        return torch.allclose(a, b, RELATIVE, ABSOLUTE, equal_nan=True)
    if isinstance(expected, (bool, str, bytes)) or expected is None or isinstance(got, (bool, str, bytes)):
        return type(expected) is type(got) and bool(expected == got)
    if isinstance(expected, Number) and isinstance(got, Number):
        return _same_number(expected, got)
    if isinstance(expected, Mapping) and isinstance(got, Mapping):
        return expected.keys() == got.keys() and all(same(expected[key], got[key]) for key in expected)
    if is_dataclass(expected) and type(expected) is type(got):
        return all(same(getattr(expected, f.name), getattr(got, f.name)) for f in fields(expected))
    if isinstance(expected, Sequence) and isinstance(got, Sequence):
        return len(expected) == len(got) and all(same(a, b) for a, b in zip(expected, got, strict=True))
    return type(expected) is type(got) and bool(expected == got)


def _same_number(expected: Any, got: Any) -> bool:
    if isinstance(expected, Integral) and isinstance(got, Integral):
        return int(expected) == int(got)
    if not (isinstance(expected, Real) and isinstance(got, Real)):
        return bool(expected == got)
    a, b = float(expected), float(got)
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    return math.isclose(a, b, rel_tol=1e-9 if isinstance(expected, Integral) else RELATIVE, abs_tol=1e-9)


def is_near(expected: Any, got: Any, near: Callable[[Any, Any], bool]) -> bool:
    """Return whether both are numbers, and near(expected, got) holds."""
    try:
        a, b = _as_numbers(expected), _as_numbers(got)
        if any(isinstance(x, bool) or not isinstance(x, Real) for x in (a, b)):
            return False
        return bool(near(a, b))
    except Exception:
        return False


def ratio_of(expected: Any, got: Any) -> float | None:
    """Return got / expected if both are finite numbers and neither is 0, else None."""
    try:
        a, b = _as_numbers(expected), _as_numbers(got)
        if any(isinstance(x, bool) or not isinstance(x, Real) or not math.isfinite(x) or x == 0 for x in (a, b)):
            return None
        return float(b) / float(a)
    except Exception:
        return None


def describe_value(value: Any) -> str:
    """Return in words what a value is: "a number", "a list", "a tensor", ... or its type."""
    if value is None:
        return "nothing"
    for kinds, name in (
        (torch.Tensor, "a tensor"),
        (np.ndarray, "an array"),
        (bool, "True or False"),
        (str, "a text"),
        (Number, "a number"),
        (Mapping, "a dictionary"),
        (Sequence, "a list"),
    ):
        if isinstance(value, kinds):
            return name
    return f"of the type {type(value).__name__}"[:SHOWN_CHARS]


def shown(value: Any) -> str:
    """Return a value as one short line."""
    return _line(value, 7)


def shown_apart(expected: Any, got: Any) -> tuple[str, str]:
    """Return two values as short lines, with as many digits as it takes to see a difference, and with their kinds.

    Of two dictionaries with the same keys the first entry that differs is shown, and of long lists or tensors the first
    number that differs; its place stands behind it.
    """
    place = ""
    with contextlib.suppress(Exception):  # of what an answer returns
        expected, got, place = _first_apart(expected, got, "")
    texts = _shown_apart(expected, got)
    return (f"{texts[0]} at {place}", texts[1]) if place else texts


def _first_apart(expected: Any, got: Any, place: str) -> tuple[Any, Any, str]:
    """Return (expected, got, place) of the first entry that differs, as far down as it takes to show it."""
    keys: Any = ()
    value, other = _as_numbers(expected), _as_numbers(got)
    if isinstance(expected, Mapping) and isinstance(got, Mapping) and expected.keys() == got.keys():
        keys = expected
    elif _is_long(expected) or _is_long(got):
        if isinstance(expected, torch.Tensor) and isinstance(got, torch.Tensor):
            keys = range(len(expected)) if expected.shape == got.shape and expected.dim() else ()
        elif isinstance(value, list | tuple) and isinstance(other, list | tuple) and len(value) == len(other):
            keys = range(len(value))
    for key in keys:
        if not same(value[key], other[key]):
            return _first_apart(value[key], other[key], f"{place}[{key!r}]")
    return expected, got, place


def _is_long(value: Any) -> bool:
    is_tensor = isinstance(value, torch.Tensor)
    return value.numel() > SHOWN_ITEMS if is_tensor else shown(value).rstrip(")]}").endswith("...")


def _shown_apart(expected: Any, got: Any) -> tuple[str, str]:
    texts = shown(expected), shown(got)
    if texts[0] == texts[1]:
        texts = _line(expected, 17), _line(got, 17)
    if describe_value(_as_numbers(expected)) != describe_value(_as_numbers(got)):  # [1.0] may be a list or a tensor
        texts = f"{texts[0]} ({describe_value(expected)})", f"{texts[1]} ({describe_value(got)})"
    return texts


def _line(value: Any, digits: int) -> str:
    try:
        line = " ".join(_written(value, digits, depth=4).split())
    except Exception:
        line = "something that cannot be shown"
    return line if len(line) <= SHOWN_CHARS else line[: SHOWN_CHARS - 4] + " ..."


def _written(value: Any, digits: int, depth: int) -> str:
    if isinstance(value, torch.Tensor):
        if value.numel() > SHOWN_ITEMS:
            return f"a tensor {list(value.shape)}"
        value = value.tolist()
    value = _as_numbers(value)
    kind = type(value)
    if kind is float:
        return f"{value:.{digits}g}"
    if kind is str:
        return repr(value[: 2 * SHOWN_CHARS])
    if kind is dict and depth:
        items = list(value.items())[: SHOWN_ITEMS + 1]
        return "{" + _listed([f"{_written(k, digits, 0)}: {_written(v, digits, depth - 1)}" for k, v in items]) + "}"
    if kind in (list, tuple) and depth:
        inside = _listed([_written(item, digits, depth - 1) for item in value[: SHOWN_ITEMS + 1]])
        return f"[{inside}]" if kind is list else f"({inside}{',' if len(value) == 1 else ''})"
    return str(value)


def _listed(texts: list[str]) -> str:
    return ", ".join(texts[:SHOWN_ITEMS] + (["..."] if len(texts) > SHOWN_ITEMS else []))
