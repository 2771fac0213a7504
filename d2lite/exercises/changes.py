"""The lines in which two functions differ, without docstrings, comments, checks, and returned losses."""

import ast
import difflib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["changed_lines"]

_MARKS = {"-": "right: ", "+": "wrong: ", " ": "       "}


def changed_lines(
    right: Callable[..., Any], wrong: Callable[..., Any], renamed: Mapping[str, str] | None = None
) -> list[str]:
    """Return the lines of two functions that differ, marked with "right: " and "wrong: ", and one line around each.

    What a function returns does not count if the other one returns nothing.

    Args:
        right: a function in a module or a notebook.
        wrong: the same with a bug.
        renamed: {name in wrong: name in right} of functions that are called, whose names are no difference.

    Example:
        >>> from d2lite import sgd_step
        >>> from d2lite.d2l import sgd
        >>> changed_lines(sgd_step, sgd_step)
        []
        >>> changed_lines(sgd_step, sgd)[-1]
        'wrong:         param.grad.zero_()'
    """
    one, other = _tree(right), _tree(wrong)
    if isinstance(one[-1], ast.Return) != isinstance(other[-1], ast.Return):
        one, other = ([node for node in body if not isinstance(node, ast.Return)] for body in (one, other))
    lines, others = _lines(one), _lines(other)
    for name, instead in (renamed or {}).items():
        others = [line.replace(name, instead) for line in others]
    if lines == others:
        return []
    pairs = difflib.unified_diff(lines, others, n=1, lineterm="")
    return [_MARKS[line[0]] + line[1:] for line in list(pairs)[2:] if line[0] in _MARKS]


def _tree(function: Callable[..., Any]) -> list[ast.stmt]:
    (tree,) = ast.parse(inspect.getsource(function)).body
    assert isinstance(tree, ast.FunctionDef)
    return tree.body[ast.get_docstring(tree) is not None :]


def _lines(body: list[ast.stmt]) -> list[str]:
    text = "\n".join(ast.unparse(node) for node in body)
    return [line.removeprefix("losses = ") for line in text.splitlines() if not line.startswith("check_")]
