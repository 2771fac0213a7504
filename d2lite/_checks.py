"""Checks of what a learner types, each with an error that says what to do."""

import math
from numbers import Real

__all__ = ["positive_int", "positive_number"]


def positive_int(name, value, most=None, hint=""):
    """Return `value` if it is a whole number from 1 to `most`.

    Raises TypeError for anything but an int (True and 2.0 included) and ValueError for an int out of range.
    """
    wanted = "a positive whole number" if most is None else f"a whole number from 1 to {most}"
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(_message(name, wanted, f"{value!r} ({type(value).__name__})", hint))
    value = value.__index__()  # numpy's integers become plain ones
    if value < 1 or (most is not None and value > most):
        raise ValueError(_message(name, wanted, value, hint))
    return value


def positive_number(name, value, hint=""):
    """Return `value` as a float if it is finite and above zero.

    Raises TypeError for what is not a real number and ValueError for 0, negatives, NaN and infinities.
    """
    wanted = "a finite number above 0"
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(_message(name, wanted, f"{value!r} ({type(value).__name__})", hint))
    if not (math.isfinite(value) and value > 0):
        raise ValueError(_message(name, wanted, value, hint))
    return float(value)


def _message(name, wanted, got, hint):
    return f"{name}: expected {wanted}, got {got}." + (f" {hint}" if hint else "")
