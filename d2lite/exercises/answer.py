"""A learner's answer before it runs: whether it is an untouched stub, and whether its parameters fit."""

import dis
import functools
import inspect
from collections.abc import Callable
from typing import Any

from d2lite._text import text_of

__all__ = ["is_stub", "wrong_parameters"]

# bytecode, in Python 3.10 to 3.14, of a function that only returns None, or only raises NotImplementedError
DOES_NOTHING = {
    "RESUME", "NOP", "NOT_TAKEN", "CACHE", "COPY_FREE_VARS", "MAKE_CELL", "LOAD_CONST", "RETURN_CONST", "RETURN_VALUE",
}  # fmt: skip
RAISES = {"LOAD_GLOBAL", "LOAD_COMMON_CONSTANT", "PUSH_NULL", "PRECALL", "CALL", "CALL_FUNCTION", "RAISE_VARARGS"}


def is_stub(answer: Callable[..., Any]) -> bool:
    """Return whether a function does nothing but return None or raise NotImplementedError, as a stub does."""
    function = _function(answer)
    code = getattr(function, "__code__", None)
    if code is None or code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        return False
    steps = list(dis.get_instructions(code))
    names = {step.opname for step in steps}
    if "RAISE_VARARGS" in names:
        return names <= DOES_NOTHING | RAISES and set(code.co_names) == {"NotImplementedError"}
    last = [step.argval for step in steps if step.opname in ("LOAD_CONST", "RETURN_CONST")]
    return names <= DOES_NOTHING and last[-1:] == [None]


def _function(answer: Any) -> Any:
    """Return the function inside of a method, a partial, a decorated function or an object with __call__."""
    for _ in range(20):
        if isinstance(answer, functools.partial):
            answer = answer.func
        elif inspect.ismethod(answer):
            answer = answer.__func__
        elif inspect.isfunction(answer):
            if not hasattr(answer, "__wrapped__"):
                return answer
            answer = answer.__wrapped__
        elif inspect.isclass(answer) or inspect.isbuiltin(answer):
            return answer
        else:
            answer = getattr(type(answer), "__call__", None)  # noqa: B004
    return answer


def wrong_parameters(solution: Callable[..., Any], answer: Callable[..., Any], num_args: int | None = None) -> str:
    """Return in words why `answer` cannot be called as `solution` is, with `num_args` arguments; "" if it can.

    Without `num_args` these are as many as the solution requires.
    """
    try:
        wanted = [p for p in inspect.signature(solution).parameters.values() if p.kind in POSITIONAL]
        given = inspect.signature(answer)
        if num_args is None:
            num_args = sum(p.default is p.empty for p in wanted)
    except Exception:  # functions of C code have none, and objects may lie about theirs
        return ""
    try:
        given.bind(*range(num_args))
        return ""
    except TypeError:
        takes, names = _count(list(given.parameters)), [p.name for p in wanted[:num_args]]
        return f"it takes {takes}, and it is called with {_count(names)}."


POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _count(names: list[str]) -> str:
    listed = ", ".join(text_of(name) for name in names[:10])
    return f"{len(names)} argument{'' if len(names) == 1 else 's'}" + (f" ({listed})" if names else "")
