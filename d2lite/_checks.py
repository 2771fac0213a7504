"""Checks of what a learner types, each with an error that says what to do."""

import math
from numbers import Real
from typing import Any

__all__ = ["positive_int", "positive_number", "whole_number"]


def whole_number(
    name: str, value: Any, least: int = 0, most: int | None = None, hint: str = "", expected: str = ""
) -> int:
    """Return `value` as a plain int if it is a whole number from `least` to `most`.

    The message contains `expected` in place of "a whole number from ... to ..." if it is given, and ends with `hint`.
    Raises TypeError for anything but an integer (True and 2.0 included), ValueError for an integer out of range.
    """
    expected = expected or f"a whole number from {least} " + ("on" if most is None else f"to {most}")
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(_message(name, expected, f"{value!r} ({type(value).__name__})", hint))
    number = int(value.__index__())  # NumPy's integers become plain ones
    if number < least or (most is not None and number > most):
        raise ValueError(_message(name, expected, number, hint))
    return number


def positive_int(name: str, value: Any, most: int | None = None, hint: str = "") -> int:
    """Return `value` as a plain int if it is a whole number from 1 to `most`; errors are those of `whole_number`."""
    return whole_number(name, value, 1, most, hint, "a positive whole number" if most is None else "")


def positive_number(name: str, value: Any, hint: str = "") -> float:
    """Return `value` as a float if it is finite and above zero.

    Raises TypeError for anything but a real number (True included), ValueError for 0, negative numbers, NaN and
    infinities.
    """
    expected = "a finite number above 0"
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(_message(name, expected, f"{value!r} ({type(value).__name__})", hint))
    number = float(value)
    if not (math.isfinite(number) and number > 0):
        raise ValueError(_message(name, expected, value, hint))
    return number


def _message(name: str, expected: str, got: object, hint: str) -> str:
    return f"{name}: expected {expected}, got {got}." + (f" {hint}" if hint else "")
