"""The names that statements of some code define, and which of them a part of the code needs."""

import ast
from collections.abc import Callable, Iterable

__all__ = ["names_defined", "names_needed"]


def names_defined(node: ast.stmt) -> list[str]:
    """Return the names that a statement at the top of a file or cell defines: functions, classes, imports, values."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return [node.name]
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return [(alias.asname or alias.name).split(".")[0] for alias in node.names]
    if isinstance(node, ast.Assign):
        return [n.id for target in node.targets for n in ast.walk(target) if isinstance(n, ast.Name)]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    return []


def names_needed(names: Iterable[str], read_by: Callable[[str], Iterable[str]]) -> set[str]:
    """Return `names`, the names that their definitions read, and so on; `read_by` returns those of one name."""
    found: set[str] = set()
    todo = [*names]
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo += read_by(name)
    return found
