"""The arguments of a plot: names, limits, a size and numbers are checked, with errors that say what is expected."""

import reprlib
from collections.abc import Mapping
from typing import Any

from notebook_ranks.shared.checks import finite_number

__all__ = ["as_number", "is_list", "limits_of", "names_of", "pixels_of", "text_or_none"]


def text_or_none(name: str, value: Any) -> str | None:
    """Return `value`, a title, if it is a text or None. Raises TypeError for anything else."""
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{name}: expected a text, got {reprlib.repr(value)} ({type(value).__name__}).")
    return value


def names_of(legend: Any) -> list[str]:
    """Return the names of a legend: a text, a list of texts, or None. Raises TypeError for anything else."""
    if legend is None or isinstance(legend, str):
        return [legend] if legend else []
    if not is_list(legend) or not all(isinstance(name, str) for name in legend):
        raise TypeError(f"legend: expected a text, or a list of texts with one per curve, got {reprlib.repr(legend)}.")
    return list(legend)


def limits_of(name: str, limits: Any, scale: str) -> list[float] | None:
    """Return the limits (low, high) of an axis, two finite numbers, above 0 on a log axis; None without any."""
    if limits is None or (is_list(limits) and len(limits) == 0):
        return None
    if not is_list(limits) or len(limits) != 2:
        raise ValueError(f"{name}: expected two numbers (low, high), got {reprlib.repr(limits)}.")
    checked = [finite_number(name, limit) for limit in limits]
    if scale == "log" and min(checked) <= 0:
        raise ValueError(f"{name}: expected limits above 0 on a log axis, which has no 0, got {reprlib.repr(limits)}.")
    return checked


def pixels_of(figsize: Any) -> tuple[int, int]:
    """Return (width, height) in pixels, 100 per inch, of a size from 1 to 100 inches."""
    if not is_list(figsize) or len(figsize) != 2:
        raise ValueError(f"figsize: expected (width, height) in inches, got {reprlib.repr(figsize)}.")
    width, height = (finite_number("figsize", inches) for inches in figsize)
    if not (1 <= width <= 100 and 1 <= height <= 100):
        raise ValueError(f"figsize: expected width and height from 1 to 100 inches, got {reprlib.repr(figsize)}.")
    return round(100 * width), round(100 * height)


def is_list(value: Any) -> bool:
    """Return whether a value is several values in order: a list or an array, and no text, set or dict."""
    other = isinstance(value, (str, bytes, set, frozenset, Mapping)) or getattr(value, "ndim", 1) == 0
    return hasattr(value, "__len__") and not other


def as_number(value: Any) -> Any:
    """Return a value as a float, or a copy of a tensor that is not on the CPU; TypeError for what is no number."""
    if hasattr(value, "detach"):
        value = value.detach()
        if value.device.type == "meta":
            raise TypeError(f"add: expected a number, got a tensor on the device meta ({value!r}), which has no value.")
        if value.device.type != "cpu":
            return value.clone()
    try:
        if not isinstance(value, (str, bytes)):
            return float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):  # RuntimeError: a tensor that is not one real number
        pass
    raise TypeError(f"add: expected a number, or one per curve, got {reprlib.repr(value)}.")
