"""Functions and results that train nothing: async functions and generators are refused."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

__all__ = ["check_function", "check_result"]

_RUNS_NOTHING = (
    (inspect.iscoroutinefunction, "an async function"),
    (inspect.isasyncgenfunction, "an async generator function"),
    (inspect.isgeneratorfunction, "a generator function"),
)


def check_function(function: Callable[..., Any]) -> None:
    """Raise TypeError if a call of `function` runs none of its lines: an `async def`, or a function that yields."""
    while isinstance(function, functools.partial):
        function = function.func
    for fn in (function, type(function).__call__):  # the second for an object of a class with __call__
        for is_kind, kind in _RUNS_NOTHING:
            if is_kind(fn):
                raise TypeError(
                    f"{getattr(function, '__name__', 'function')}: expected a training function that runs when it is "
                    f"called, got {kind}: a call only makes an object, and runs none of its lines. Write it without "
                    "async and yield."
                )


def check_result(result: Any) -> None:
    """Raise TypeError if a training function has returned a coroutine or a generator, whose lines have yet to run."""
    if inspect.iscoroutine(result) or inspect.isgenerator(result):
        result.close()
    elif not inspect.isasyncgen(result):
        return
    kind = "an async generator" if inspect.isasyncgen(result) else f"a {type(result).__name__}"
    raise TypeError(
        f"function: expected a training function that is done when it returns, got one that returned {kind}, whose "
        "lines have not run. Call a function without async and yield, or return something else."
    )
