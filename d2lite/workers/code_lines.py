"""Where lines of code stand: in which loops, and in which branches of an `if`. From the source, nothing is run."""

import ast
import linecache
from collections.abc import Iterator

__all__ = ["after_a_loop_with", "instead_of"]


def after_a_loop_with(file: str, inner: int, outer: int) -> bool:
    """Return whether the line `inner` is in a loop, and the line `outer` comes after that loop."""
    loops = (node for node in _nodes(file) if isinstance(node, ast.For | ast.AsyncFor | ast.While))
    return any(_in([loop], inner) and outer > (loop.end_lineno or 0) for loop in loops)


def instead_of(file: str, one: int, other: int) -> bool:
    """Return whether only one of two lines runs: they are in two branches, or a branch with one of them leaves.

    A branch leaves if it ends with `return`, `continue`, `break` or `raise`, and the other line comes after it.
    """
    for node in _nodes(file):
        if isinstance(node, ast.If):
            first, last = sorted((one, other))
            if _in(node.body, first) and _in(node.orelse, last):
                return True
            leaves = isinstance(node.body[-1], ast.Return | ast.Continue | ast.Break | ast.Raise)
            if leaves and _in(node.body, first) and last > (node.end_lineno or 0):
                return True
    return False


def _nodes(file: str) -> Iterator[ast.AST]:
    """Yield the nodes of a file or of a cell; nothing if its source is not at hand, or no Python."""
    try:
        yield from ast.walk(ast.parse("".join(linecache.getlines(file))))
    except (SyntaxError, ValueError):
        return


def _in(nodes: list[ast.stmt], line: int) -> bool:
    return bool(nodes) and nodes[0].lineno <= line <= (nodes[-1].end_lineno or 0)
