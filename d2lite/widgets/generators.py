"""Results that have trained nothing: coroutines and generators are refused."""

import inspect
from typing import Any

__all__ = ["check_result"]


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
