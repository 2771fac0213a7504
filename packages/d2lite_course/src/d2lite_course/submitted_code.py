"""The code of an exercise in a submitted notebook: its function, and only the definitions that the function needs.

Nothing is run here, and the notebook may be anything. The grader calls this inside the sandbox: a text that crashes
Python's parser must not end the grader.
"""

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

from d2lite_course.definitions import names_defined, names_needed

__all__ = ["ExerciseCode", "cells_of", "code_of"]

MAGIC = re.compile(r"(?m)^([ \t]*)(?:[%!?].*|[\w.]+\?{1,2}[ \t]*)$")
LOOK_AT = {  # what an ordinary answer does not use
    *("gc", "ctypes", "inspect", "subprocess", "socket", "signal", "multiprocessing", "importlib", "setattr"),
    *("_getframe", "__globals__", "__builtins__", "__code__", "__closure__", "_exit", "fork", "kill", "system"),
    *("environ", "exec", "eval", "settrace", "urllib", "requests", "http"),
}
CodeCell = tuple[str, str]  # its id, its code


@dataclass
class ExerciseCode:
    """The code of an exercise: `source` is "" if there is none, and `notes` say what a teacher should know."""

    source: str = ""
    function: str = ""
    notes: list[str] = field(default_factory=list)


@dataclass
class _Definition:
    cell: int
    node: ast.stmt


def cells_of(text: str) -> list[CodeCell]:
    """Return the code cells of a notebook as (id, code).

    Raises:
        ValueError: If the text is no notebook.
    """
    try:
        notebook = json.loads(text)
        cells = notebook["cells"] if isinstance(notebook, dict) else None
    except (ValueError, RecursionError, KeyError) as error:
        raise ValueError(f"it is no notebook ({type(error).__name__})") from None
    if not isinstance(cells, list):
        raise ValueError("it is no notebook (it has no list of cells)")
    found = []
    for cell in cells:
        if isinstance(cell, dict) and cell.get("cell_type") == "code":
            source = cell.get("source", "")
            lines = source if isinstance(source, list) else [source]
            found.append((str(cell.get("id", "")), "".join(str(line) for line in lines)))
    return found


def code_of(cells: list[CodeCell], exercise: str, function: str, cell_id: str) -> ExerciseCode:
    """Return the code of an exercise.

    Args:
        cells: The code cells of a notebook.
        exercise: Its name, such as "2.1".
        function: The name of its function in the chapter. If the notebook has no such function, it is the one that the
            notebook's own check cell names.
        cell_id: The id of the cell with its stub in the chapter.
    """
    found = ExerciseCode(function=function)
    trees, broken = _parsed(cells)
    defined = _definitions(trees)
    checks = [(i, name) for i, tree in trees.items() for name in _functions_checked(tree, exercise)]
    if not checks:
        found.notes.append(f'the cell check("{exercise}", ...) is not there any more, or was changed.')
    if function not in defined and checks and checks[-1][1] in defined:
        found.function = checks[-1][1]
        found.notes.append(f"the function is called {found.function} and not {function}.")
    if found.function not in defined:
        for i, error in broken.items():
            if cells[i][0] == cell_id or re.search(rf"\b{re.escape(function)}\b", cells[i][1]):
                found.notes.append(f"its cell has a syntax error, in line {error.lineno}: {error.msg}.")
                return found
        if checks:
            found.notes.append(f"there is no function {function}.")
        else:  # nothing of it is there
            found.notes = [
                f'it was not handed in: neither check("{exercise}", ...) nor a function {function} is there.'
            ]
        return found
    until = checks[-1][0] if checks else len(cells)
    nodes = _needed(found.function, defined, until)
    stars = [d for d in defined.get("*", []) if d.node not in nodes]
    chosen = sorted([*stars, *nodes.values()], key=lambda d: (d.cell, d.node.lineno))
    found.source = "\n\n".join(_source_of(cells[d.cell][1], d.node) for d in chosen)
    found.notes += _notes_on(found.source, trees)
    return found


def _source_of(cell: str, node: ast.stmt) -> str:
    """Return the text of a statement, with its comments and decorators."""
    lines = _without_magics(cell).split("\n")
    decorators = [decorator.lineno for decorator in getattr(node, "decorator_list", [])]
    before = lines[min(decorators) - 1 : node.lineno - 1] if decorators else []
    text = ast.get_source_segment("\n".join(lines), node)
    return "\n".join([*before, text or ast.unparse(node)])


def _without_magics(cell: str) -> str:
    return MAGIC.sub(r"\1pass", cell.replace("\r\n", "\n").replace("\r", "\n"))


def _parsed(cells: list[CodeCell]) -> tuple[dict[int, ast.Module], dict[int, SyntaxError]]:
    """Return {number: tree} of the cells, and {number: error} of those that have a syntax error."""
    trees, broken = {}, {}
    for i, (_, text) in enumerate(cells):
        if text.lstrip().startswith("%%"):
            continue
        try:
            trees[i] = ast.parse(_without_magics(text))
        except SyntaxError as error:
            broken[i] = error
        except (ValueError, RecursionError, MemoryError) as error:
            broken[i] = SyntaxError(type(error).__name__)
    return trees, broken


def _definitions(trees: dict[int, ast.Module]) -> dict[str, list[_Definition]]:
    found: dict[str, list[_Definition]] = {}
    for i, tree in trees.items():
        for node in tree.body:
            for name in names_defined(node) if _is_definition(node) else ():
                found.setdefault(name, []).append(_Definition(i, node))
    return found


def _is_definition(node: ast.stmt) -> bool:
    """Return whether a statement may stand without the notebook: no assignment of what a call computes."""
    return not isinstance(node, (ast.Assign, ast.AnnAssign)) or (node.value is not None and _is_simple(node.value))


def _is_simple(node: ast.expr) -> bool:
    """Return whether an expression is of constants, names, arithmetic and displays, or a function without a name."""
    kinds = (ast.Constant, ast.Name, ast.List, ast.Tuple, ast.Dict, ast.Set, ast.UnaryOp, ast.BinOp, ast.Attribute)
    inside = (ast.operator, ast.unaryop, ast.expr_context)
    if isinstance(node, ast.Lambda):
        return True
    return all(isinstance(n, (*kinds, *inside)) for n in ast.walk(node))


def _functions_checked(tree: ast.Module, exercise: str) -> Iterator[str]:
    """Yield the names of the functions that a cell checks for an exercise."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) == "check":
            given = node.args
            if len(given) == 2 and isinstance(given[0], ast.Constant) and given[0].value == exercise:
                yield given[1].id if isinstance(given[1], ast.Name) else ""


def _needed(function: str, defined: dict[str, list[_Definition]], until: int) -> dict[ast.stmt, _Definition]:
    """Return the definitions that a function needs, its own included: of each name the last one before a cell."""

    def chosen(name: str) -> _Definition:
        before = [d for d in defined[name] if d.cell <= until]
        return (before or defined[name])[-1]

    names = names_needed([function], lambda name: _globals_of(chosen(name).node) & defined.keys())
    return {chosen(name).node: chosen(name) for name in names}


def _globals_of(node: ast.stmt) -> set[str]:
    """Return the names that a statement, and what it defines, looks up outside of itself."""
    read = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    try:
        code = compile(ast.Module([node], []), "<cell>", "exec")
    except (SyntaxError, ValueError, RecursionError):
        return read
    return read & set(_names_in(code))


def _names_in(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)


def _notes_on(source: str, trees: dict[int, ast.Module]) -> list[str]:
    """Return what a teacher should know: names that are not made here, and what ordinary answers do not use."""
    notes, tree = [], ast.parse(source)
    needed: set[str] = set().union(*(_globals_of(node) for node in tree.body))
    made = {name for node in tree.body for name in names_defined(node)}
    elsewhere = {n.id for t in trees.values() for n in _stored_at_top(t)} - made
    for name in sorted(needed & elsewhere):
        notes.append(f"it needs {name}, which a statement of the notebook makes: that is not run here.")
    imported = {
        name for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom)) for name in names_defined(node)
    }
    odd = set()
    for node in ast.walk(tree):
        names = [getattr(node, "id", ""), getattr(node, "attr", "")]
        names += [
            part
            for alias in getattr(node, "names", [])
            if isinstance(alias, ast.alias)
            for part in alias.name.split(".")
        ]
        odd |= LOOK_AT.intersection(names)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "/proc" in node.value:
            odd.add("/proc")
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, (ast.Store, ast.Del)):
            base: Any = node.value
            while isinstance(base, ast.Attribute):
                base = base.value
            if isinstance(base, ast.Name) and base.id in imported:
                odd.add(f"{ast.unparse(node)} = ...")
    if odd:
        notes.append(f"look at this answer yourself: it uses {', '.join(sorted(odd))}.")
    return notes


def _stored_at_top(tree: ast.Module) -> Iterator[ast.Name]:
    for node in tree.body:
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield from (n for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
