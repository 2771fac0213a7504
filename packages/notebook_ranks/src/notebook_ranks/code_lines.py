"""Where lines of code stand: in which loops, and in which branches of an `if`. From the source, nothing is run."""

import ast
import linecache
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = ["Branch", "after_a_loop_with", "branches_around", "instead_of"]


@dataclass(frozen=True)
class Branch:
    """An `if`, a loop or an `except`, with its `line` and its first `words`.

    `decides` are the lines that run one way only; `instead` are the functions called the other way.
    """

    line: int
    words: str
    decides: range
    instead: frozenset[str] = frozenset()


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


def branches_around(file: str, line: int) -> list[Branch]:
    """Return what decides whether a line runs: each `if` that it is in or that may leave before it, loop and `except`.

    An `if` that ends with `continue` or `break` decides the rest of its loop, one with `return` that of its function.
    An `except` decides the rest of its `try`, and what its end leaves.
    """
    nodes, found = list(_nodes(file)), list[Branch]()
    for node in nodes:
        if isinstance(node, ast.If):
            words = f"if {ast.unparse(node.test)}"
            for block, other in ((node.body, node.orelse), (node.orelse, node.body)):
                if _in(block, line):
                    lines = range(block[0].lineno, _last_line(block[-1]) + 1)
                    found.append(Branch(node.lineno, words, lines, _called(other)))
            rest = range(_last_line(node) + 1, _last_line(_left_by(node.body[-1], nodes)) + 1)
            if line in rest:
                found.append(Branch(node.lineno, words, rest, _called(node.body)))
        elif isinstance(node, ast.For | ast.AsyncFor | ast.While) and _in(node.body, line):
            lines = range(node.body[0].lineno, _last_line(node.body[-1]) + 1)
            found.append(Branch(node.lineno, _loop_words(node), lines))
        elif isinstance(node, ast.Try) and _in(node.body, line):
            for handler in node.handlers:
                if not isinstance(handler.body[-1], ast.Raise):
                    end = max(_last_line(node.body[-1]), _last_line(_left_by(handler.body[-1], nodes)))
                    words = "except" if handler.type is None else f"except {ast.unparse(handler.type)}"
                    found.append(Branch(handler.lineno, words, range(line, end + 1), _called(handler.body)))
    return found


def _loop_words(loop: ast.For | ast.AsyncFor | ast.While) -> str:
    if isinstance(loop, ast.While):
        return f"while {ast.unparse(loop.test)}"
    return f"for {ast.unparse(loop.target)} in {ast.unparse(loop.iter)}"


def _left_by(last: ast.stmt, nodes: Sequence[ast.AST]) -> ast.stmt | None:
    """Return the innermost loop or function that a statement leaves; None if it leaves nothing."""
    kinds: tuple[type[ast.stmt], ...] = ()
    if isinstance(last, ast.Continue | ast.Break):
        kinds = (ast.For, ast.AsyncFor, ast.While)
    elif isinstance(last, ast.Return):
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    around = [node for node in nodes if isinstance(node, kinds) and node.lineno < last.lineno <= _last_line(node)]
    return max(around, key=lambda node: node.lineno, default=None)


def _called(block: Sequence[ast.stmt]) -> frozenset[str]:
    calls = [node.func for stmt in block for node in ast.walk(stmt) if isinstance(node, ast.Call)]
    return frozenset(
        f.attr if isinstance(f, ast.Attribute) else f.id for f in calls if isinstance(f, ast.Attribute | ast.Name)
    )


def _last_line(node: ast.stmt | None) -> int:
    return (node and node.end_lineno) or 0


def _nodes(file: str) -> Iterator[ast.AST]:
    """Yield the nodes of a file or of a cell; nothing if its source is not at hand, or no Python."""
    try:
        yield from ast.walk(ast.parse("".join(linecache.getlines(file))))
    except (SyntaxError, ValueError):
        return


def _in(nodes: list[ast.stmt], line: int) -> bool:
    return bool(nodes) and nodes[0].lineno <= line <= (nodes[-1].end_lineno or 0)
