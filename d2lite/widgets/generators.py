"""Functions whose call runs none of their lines: async functions and generators, refused as training functions."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

__all__ = ["refuse_generators", "refuse_unrun"]

_UNRUN = (
    (inspect.iscoroutinefunction, "an async function"),
    (inspect.isasyncgenfunction, "an async generator function"),
    (inspect.isgeneratorfunction, "a generator function"),
)
_UNRUN_WORDS = (
    "{name}: expected a training function that runs when it is called, got {kind}: a call only makes an object, and "
    "runs none of its lines. Write it without async and yield."
)


def refuse_generators(function: Callable[..., Any]) -> None:
    """Raise TypeError if a call of `function` would run nothing: an `async def`, or a function that yields."""
    while isinstance(function, functools.partial):
        function = function.func
    for fn in (function, type(function).__call__):  # the second for an object of a class with __call__
        for is_kind, kind in _UNRUN:
            if is_kind(fn):
                raise TypeError(_UNRUN_WORDS.format(name=getattr(function, "__name__", "function"), kind=kind))


def refuse_unrun(result: Any) -> None:
    """Raise TypeError for a coroutine or generator, which a decorated function may return though it is none itself."""
    if inspect.iscoroutine(result) or inspect.isgenerator(result):
        result.close()
    elif not inspect.isasyncgen(result):
        return
    raise TypeError(_UNRUN_WORDS.format(name="function", kind=f"one that returns a {type(result).__name__}"))
