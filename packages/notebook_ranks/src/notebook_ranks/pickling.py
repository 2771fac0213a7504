"""Jobs and answers as bytes: what a pool sends to its ranks, a function with its arguments, and what comes back."""

import functools
import inspect
import io
import sys
import types
import warnings
from collections import ChainMap
from collections.abc import Callable
from typing import Any

import cloudpickle

from notebook_ranks.failures import WorkersError, short_message
from notebook_ranks.shared.checks import function_kind, require_plain_function
from notebook_ranks.shared.format import text_of

__all__ = ["load_answer", "pickled_job", "require_generator_function"]

LARGE_BYTES = 100_000_000  # of a job: a larger one is warned about


def require_generator_function(fn: Any) -> None:
    """Raise TypeError unless `fn` is a generator function."""
    name, kind = getattr(fn, "__name__", type(fn).__name__), function_kind(fn) if callable(fn) else ""
    if not callable(fn) or kind.startswith("an async"):
        require_plain_function("fn", fn, "a generator function", "Call asyncio.run inside a function.")
    if not kind and not inspect.isgeneratorfunction(inspect.unwrap(fn)):
        raise TypeError(f"fn: expected a generator function, got {name}, which does not yield. Use run.")


def pickled_job(fn: Callable[..., Any], args: tuple[Any, ...], world_size: int) -> bytes:
    """Return a job for the ranks, in bytes; warn if it is larger than 100 MB.

    Raises TypeError if it cannot be pickled, whatever error its objects raise.
    """
    try:
        with io.BytesIO() as file:
            _Pickler(file).dump((fn, args))
            job = file.getvalue()
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


def _code_with_its_file(code: types.CodeType) -> tuple[Any, ...]:
    """Reduce code as cloudpickle does, and keep the name of its file, which cloudpickle 3.1.3 leaves out.

    Without the name a message has no line of the learner's code.
    """
    return _code_of_file, (code.co_filename, *cloudpickle.Pickler.dispatch_table[types.CodeType](code))


def _code_of_file(file: str, make: Callable[..., types.CodeType], parts: tuple[Any, ...]) -> types.CodeType:
    return make(*parts).replace(co_filename=file)


class _Pickler(cloudpickle.Pickler):
    """Keeps the file of code, and pickles what `functools.cache` makes of a function that cannot be imported."""

    dispatch_table = ChainMap({types.CodeType: _code_with_its_file}, cloudpickle.Pickler.dispatch_table)

    def reducer_override(self, obj: object) -> Any:
        if isinstance(obj, functools._lru_cache_wrapper) and not _is_importable(obj):
            # the function comes afterwards: it may call itself, through its cache
            return _new_cache, (obj.cache_parameters(),), obj.__wrapped__, None, None, _set_function
        return super().reducer_override(obj)


def _is_importable(fn: Any) -> bool:
    module = sys.modules.get(fn.__module__) if fn.__module__ != "__main__" else None
    return getattr(module, fn.__qualname__, None) is fn


def _new_cache(parameters: dict[str, Any]) -> Any:
    """Return a cache whose function is still to come."""
    return functools.lru_cache(**parameters)(_Function())


def _set_function(cache: Any, fn: Callable[..., Any]) -> None:
    cache.__wrapped__.fn = fn
    functools.update_wrapper(cache, fn)


class _Function:
    """A function that is set later."""

    fn: Callable[..., Any]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.fn(*args, **kwargs)
