"""What a pool and its ranks exchange: a function with its arguments, and the answers."""

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import cloudpickle

from d2lite._text import text_of
from d2lite.workers.errors import WorkersError, short_message

__all__ = ["check_function", "load_answer", "pickled_job"]

LARGE_BYTES = 100_000_000  # of a job: a larger one is warned about


def check_function(fn: Any, generator: bool) -> None:
    """Raise TypeError unless `fn` is a generator function, if `generator`, or else a function that returns a result."""
    if not callable(fn):
        raise TypeError(f"fn: expected a function, got {type(fn).__name__}. Pass the function itself, uncalled.")
    name = getattr(fn, "__name__", type(fn).__name__)
    inner = fn if inspect.isroutine(fn) or hasattr(fn, "func") else getattr(fn, "__call__", fn)  # noqa: B004
    if inspect.iscoroutinefunction(inner) or inspect.isasyncgenfunction(inner):
        raise TypeError(f"fn: expected a function, got the async function {name}. Call asyncio.run inside a function.")
    yields = inspect.isgeneratorfunction(inner)
    if yields and not generator:
        raise TypeError(f"fn: expected a function that returns a result, got the generator {name}. Use stream.")
    if generator and not (yields or inspect.isgeneratorfunction(inspect.unwrap(fn))):
        raise TypeError(f"fn: expected a generator function, got {name}, which does not yield. Use run.")


def pickled_job(fn: Callable[..., Any], args: tuple[Any, ...], world_size: int) -> bytes:
    """Return a job for the ranks, in bytes; warn if it is larger than 100 MB.

    Raises TypeError if it cannot be pickled, whatever error its objects raise.
    """
    try:
        job: bytes = cloudpickle.dumps((fn, args))
    except Exception as error:
        raise TypeError(
            "fn: expected a function and arguments that can be pickled, got "
            f"{type(error).__name__}: {text_of(error)[:500]}. Make locks, open files and the like inside the function."
        ) from error
    if len(job) > LARGE_BYTES:
        warnings.warn(
            f"fn and what it uses are {len(job) / 1e6:.0f} MB, and each of {world_size} ranks gets a copy: let the "
            "function load its data itself.",
            stacklevel=4,  # the call of `run`, or the loop over `stream`
        )
    return job


def load_answer(rank: int, pickled: bytes) -> Any:
    """Return what a rank has returned or yielded; raise WorkersError if it cannot be made again outside the rank."""
    try:
        return cloudpickle.loads(pickled)
    except Exception as error:
        why = f"{type(error).__name__}: {text_of(error)}"
        message = short_message(
            f"rank {rank} returned something that exists in a rank only ({why}). "
            "Return numbers, tensors or a state_dict()."
        )
        raise WorkersError(message, rank, {rank: {"state": "done"}}) from error
