"""Checks of what a learner types, each with an error that says what to do."""

import functools
import inspect
import math
from collections.abc import Callable, Collection, Iterable
from numbers import Real
from typing import Any, TypeVar

__all__ = [
    "all_of",
    "finite_number",
    "function_kind",
    "instance_of",
    "module_name",
    "non_negative_number",
    "one_of",
    "positive_int",
    "positive_number",
    "require_plain_function",
    "true_or_false",
    "whole_number",
]

_T = TypeVar("_T")
LARGEST = 2**63 - 1  # the largest integer of torch and NumPy


def whole_number(
    name: str, value: object, least: int = 0, most: int | None = None, hint: str = "", expected: str = ""
) -> int:
    """Return `value` as a plain int if it is a whole number from `least` to `most`, by default to 2**63 - 1.

    The message contains `expected` in place of "a whole number from ... to ..." if it is given, and ends with `hint`.
    Raises TypeError for anything but an integer (True and 2.0 included), ValueError for an integer out of range.
    """
    expected = expected or f"a whole number from {least} " + ("on" if most is None else f"to {most}")
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(_message(name, expected, _shown(value), hint))
    try:
        number = int(value.__index__())  # NumPy's integers become plain ones
    except TypeError as error:  # an array has __index__, too
        raise TypeError(_message(name, expected, _shown(value), hint)) from error
    if number < least or number > (LARGEST if most is None else most):
        if number > LARGEST and most is None:
            expected += ", less than 2**63"
        # Python refuses to write out more than 4300 digits
        got = number if number.bit_length() < 64 else f"one with {number.bit_length()} bits"
        raise ValueError(_message(name, expected, got, hint))
    return number


def positive_int(name: str, value: object, most: int | None = None, hint: str = "") -> int:
    """Return `value` as a plain int if it is a whole number from 1 to `most`; errors are those of `whole_number`."""
    return whole_number(name, value, 1, most, hint, "a positive whole number" if most is None else "")


def positive_number(name: str, value: object, hint: str = "") -> float:
    """Return `value` as a float if it is finite and above zero.

    Raises TypeError for anything but a real number (True included), ValueError for 0, negative numbers, NaN and
    infinities.
    """
    return _number(name, value, "a finite number above 0", lambda number: number > 0, hint)


def non_negative_number(name: str, value: object, hint: str = "") -> float:
    """Return `value` as a float if it is finite and not below zero; errors otherwise as in `positive_number`."""
    return _number(name, value, "a finite number from 0 on", lambda number: number >= 0, hint)


def finite_number(name: str, value: object, hint: str = "") -> float:
    """Return `value` as a float if it is finite.

    Raises TypeError for anything but a real number (True included), ValueError for NaN and infinities.
    """
    return _number(name, value, "a finite number", lambda number: True, hint)


def _number(name: str, value: object, expected: str, holds: Callable[[float], bool], hint: str) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(_message(name, expected, _shown(value), hint))
    try:
        number = float(value)
    except OverflowError:  # an integer that no float can hold
        number = math.inf
    if not (math.isfinite(number) and holds(number)):
        raise ValueError(_message(name, expected, number if math.isinf(number) else value, hint))
    return number


def true_or_false(name: str, value: object) -> bool:
    """Return `value` if it is True or False. Raises TypeError for all else: the text "no" would count as True."""
    if not isinstance(value, bool):
        raise TypeError(_message(name, "True or False", _shown(value), ""))
    return value


def one_of(name: str, value: object, choices: Collection[str], separator: str = ", ") -> str:
    """Return `value` if it is one of these texts. Raises TypeError for anything but a text, ValueError for another."""
    if isinstance(value, str) and value in choices:
        return value
    expected = f"one of {separator.join(choices)}"
    if isinstance(value, str):
        raise ValueError(_message(name, expected, repr(value), ""))
    raise TypeError(_message(name, expected, _shown(value), ""))


def instance_of(name: str, value: object, *kinds: type[Any], hint: str = "") -> Any:
    """Return `value` if it is an instance of one of these `kinds`. Raises TypeError for all else."""
    if not isinstance(value, kinds):
        expected = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(_message(name, expected, _shown(value), hint))
    return value


def all_of(name: str, values: object, check: Callable[[str, Any], _T], least: int = 0) -> list[_T]:
    """Return the list of check("name[i]", value) for each of `values`.

    Raises TypeError for a text or what cannot be iterated, ValueError for fewer values than `least`, and what `check`
    raises.
    """
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise TypeError(_message(name, "a list", _shown(values), ""))
    checked = [check(f"{name}[{i}]", value) for i, value in enumerate(values)]
    if len(checked) < least:
        raise ValueError(_message(name, f"{least} or more", len(checked), ""))
    return checked


def module_name(name: str, value: Any) -> str:
    """Return `value` if it can name a module; TypeError unless it is a text, ValueError for a text such as "a b"."""
    instance_of(name, value, str)
    if not all(part.isidentifier() for part in value.split(".")):
        raise ValueError(_message(name, 'the name of a module, such as "torch.nn"', repr(value), ""))
    return str(value)


def require_plain_function(name: str, fn: object, expected: str = "a function", hint: str = "") -> None:
    """Raise TypeError unless `fn` is a function whose lines run when it is called.

    A call of an `async def`, or of a function that yields, only makes an object. `expected` says what is expected, and
    the message ends with `hint`.
    """
    if not callable(fn):
        raise TypeError(_message(name, expected, type(fn).__name__, "Pass the function itself, uncalled."))
    if kind := function_kind(fn):
        got = f"{kind}: a call only makes an object, and runs none of its lines"
        raise TypeError(_message(name, f"{expected} that runs when it is called", got, hint))


def function_kind(fn: object) -> str:
    """Return "an async function", "an async generator function", "a generator function", or "" for a plain one."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    for called in (fn, type(fn).__call__):  # the second for an object of a class with __call__
        for is_kind, kind in _RUN_NOTHING:
            if is_kind(called):
                return kind
    return ""


_RUN_NOTHING = (
    (inspect.iscoroutinefunction, "an async function"),
    (inspect.isasyncgenfunction, "an async generator function"),
    (inspect.isgeneratorfunction, "a generator function"),
)


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except Exception:  # it is the wrong type, whatever it looks like
        text = "a value"
    return f"{text if len(text) <= 80 else text[:77] + '...'} ({type(value).__name__})"


def _message(name: str, expected: str, got: object, hint: str) -> str:
    return f"{name}: expected {expected}, got {got}." + (f" {hint}" if hint else "")
