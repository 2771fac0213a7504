"""The code of an exercise in a submitted notebook: the statements that what `check` was given depends on, in order.

Nothing is run here, and the notebook may be anything. The grader calls this inside the sandbox: a text that crashes
Python's parser must not end the grader.
"""

import ast
import functools
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, NamedTuple

from d2lite_course.definitions import names_defined, names_needed

__all__ = ["CodeCell", "ExerciseCode", "ReadNotebook", "cells_of", "code_of"]

MOST_SAVED = 10_000  # characters of the saved output of a cell
FOREIGN = {  # magics whose cell is no code that defines something
    *("bash", "cmd", "file", "html", "javascript", "js", "latex", "markdown", "perl", "ruby", "script", "sh", "svg"),
    *("sx", "system", "timeit", "writefile"),
}
MODULES = {  # of these and of what follows an ordinary answer uses nothing
    *("gc", "ctypes", "inspect", "subprocess", "socket", "signal", "multiprocessing", "importlib", "urllib"),
    *("requests", "http"),
}
LOOK_AT = {
    *("setattr", "_getframe", "__globals__", "__builtins__", "__code__", "__closure__", "_exit", "fork", "kill"),
    *("system", "environ", "exec", "eval", "settrace", "f_back", "f_locals", "tb_frame"),
}
Definition = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
FLAGS = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


class CodeCell(NamedTuple):
    """A code cell of a notebook; `saved` is the text of its saved output."""

    id: str
    text: str
    saved: str = ""


class CellCode(NamedTuple):
    """The statements of one cell that are run; an error ends them, and the next cell goes on, as in a notebook."""

    name: str
    text: str
    nodes: list[ast.stmt]


@dataclass
class ExerciseCode:
    """The code of an exercise, if there is any.

    Attributes:
        cells: What is run.
        source: The same as text, without the call of `check`; of a cell with a syntax error its text.
        function: The function that counts if `check` is given nothing.
        notes: What a teacher should know.
        files: {name: text} of the files that `%%writefile` writes.
        saved: What the saved output of the check says: "right", "not right", or "".
        flags: For `compile`.
    """

    cells: list[CellCode] = field(default_factory=list)
    source: str = ""
    function: str = ""
    notes: list[str] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    saved: str = ""
    has_check: bool = False
    flags: int = FLAGS


class _Statement:
    """A statement at the top of a cell: the names that it makes, those whose objects it may change, those it reads."""

    def __init__(self, cell: int, node: ast.stmt) -> None:
        self.cell, self.node = cell, node
        self.makes = _names_made(node)
        self.reads = _globals_of(node)
        self.is_definition = isinstance(node, (*Definition, ast.Import, ast.ImportFrom))
        self.changes_inside = _names_changed(ast.walk(node)) & self.reads
        self.changes = set() if self.is_definition else self.changes_inside
        runs = getattr(node, "decorator_list", [node]) if self.is_definition else [node]
        self.calls = {n.id for part in runs for n in ast.walk(part) if isinstance(n, ast.Name)}
        self.checks = set() if self.is_definition else _texts_given(node)


class ReadNotebook:
    """The statements of a notebook; `files` are those that `%%writefile` writes, `broken` its syntax errors."""

    def __init__(self, cells: list[CodeCell]) -> None:
        self.cells = cells
        self.files: dict[str, str] = {}
        self.texts: dict[int, str] = {}
        self.broken: dict[int, SyntaxError] = {}
        self.statements: list[_Statement] = []
        for i, cell in enumerate(cells):
            try:
                self.texts[i], tree = _tree_of(cell.text, self.files)
                self.statements += [_Statement(i, node) for node in tree.body]
            except SyntaxError as error:
                self.broken[i] = error
            except (ValueError, RecursionError, MemoryError) as error:
                self.broken[i] = SyntaxError(type(error).__name__)

    @functools.cached_property
    def touching(self) -> dict[str, list[int]]:
        """Return {name: numbers of the statements that make it, or may change its object}."""
        data = {name for s in self.statements if not s.is_definition for name in s.makes}
        data -= {name for s in self.statements for name in _imported_or_defined(s.node)}
        defined = {name: s for s in self.statements if isinstance(s.node, Definition) for name in s.makes}
        found: dict[str, list[int]] = {}
        for i, s in enumerate(self.statements):
            touched = s.makes | (s.changes & (data | _stored_in(s.node)))
            for called in names_needed(s.calls & defined.keys(), lambda name: defined[name].reads & defined.keys()):
                touched |= defined[called].changes_inside & (data | _declared_global(defined[called].node))
            for name in touched:
                found.setdefault(name, []).append(i)
        return found


def cells_of(text: str) -> list[CodeCell]:
    """Return the code cells of a notebook.

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
            source = _joined(cell.get("source", "")).replace("\r\n", "\n").replace("\r", "\n")
            found.append(CodeCell(str(cell.get("id", "")), source, _saved_output(cell.get("outputs"))))
    return found


def _joined(text: Any) -> str:
    return "".join(map(str, text)) if isinstance(text, list) else str(text)


def _saved_output(outputs: Any) -> str:
    texts = []
    for output in outputs if isinstance(outputs, list) else []:
        if isinstance(output, dict):
            data = output.get("data")
            texts.append(_joined(data.get("text/plain", "") if isinstance(data, dict) else output.get("text", "")))
    return "\n".join(texts)[:MOST_SAVED]


def code_of(
    notebook: ReadNotebook, exercise: str, function: str, cell_id: str, with_all_cells: bool = False
) -> ExerciseCode:
    """Return the code of an exercise: what the object depends on that the notebook gives to `check`.

    Args:
        notebook: The notebook.
        exercise: Its name, such as "2.1".
        function: The name of its function in the chapter. It counts where there is no call of `check`.
        cell_id: The id of the cell with its stub in the chapter.
        with_all_cells: Whether all that stands before the call of `check` is run, and not only what is needed.
    """
    cells, texts, statements, broken = notebook.cells, notebook.texts, notebook.statements, notebook.broken
    found = ExerciseCode(function=function, files=notebook.files)
    futures = any(isinstance(s.node, ast.ImportFrom) and s.node.module == "__future__" for s in statements)
    found.flags |= 0x1000000 if futures else 0  # annotations stay texts, in the next cells too
    checks = [i for i, s in enumerate(statements) if exercise in s.checks]
    is_there = any(function in s.makes for s in statements)
    said = [cells[statements[i].cell].saved for i in checks[-1:]]
    if said and f"Exercise {exercise}: " in said[0]:
        found.saved = "right" if f"Exercise {exercise}: right in all" in said[0] else "not right"
    found.has_check = bool(checks)
    if not checks and not is_there:
        _say_what_is_missing(found, cells, broken, exercise, cell_id)
        return found
    if not checks:
        found.notes.append(f'the cell check("{exercise}", ...) is not there any more, or was changed.')
    until = checks[-1] if checks else len(statements)
    wanted = statements[until].reads | {function} if checks else {function}
    chosen = [*range(until)] if with_all_cells else _needed(wanted, notebook, until)
    later = [] if with_all_cells else [i for i in chosen if i > until]
    order = [*(i for i in chosen if i < until), *later]
    if not is_there and function in statements[until].reads:
        for i, error in broken.items():
            if re.search(rf"\b{re.escape(function)}\b", cells[i].text) or cells[i].id == cell_id:
                _blame(found, cells[i].text, error)
                return found
        found.notes.append(f"there is no function {function}.")
        return found
    shown = order if is_there and not (checks and function in statements[until].makes) else [*order, *checks[-1:]]
    found.source = "\n\n".join(_segment(texts[statements[i].cell], statements[i].node) for i in shown)
    for i in [*order, *checks[-1:]]:
        name = f"<cell {statements[i].cell + 1}>"
        if not found.cells or found.cells[-1].name != name:
            found.cells.append(CellCode(name, texts[statements[i].cell], []))
        found.cells[-1].nodes.append(statements[i].node)
    if not with_all_cells:
        found.notes += _what_to_look_at([statements[i].node for i in order])
    return found


def _say_what_is_missing(
    found: ExerciseCode, cells: list[CodeCell], broken: dict[int, SyntaxError], exercise: str, cell_id: str
) -> None:
    check = re.compile(rf"""["']{re.escape(exercise)}["']""")
    named = re.compile(rf"\b{re.escape(found.function)}\b")
    is_here = any(check.search(cell.text) for cell in cells)  # all chapters have cells with the same ids
    for i, error in broken.items():
        if named.search(cells[i].text) or check.search(cells[i].text) or (is_here and cells[i].id == cell_id):
            _blame(found, cells[i].text, error)
            return
    found.notes = [f'it was not handed in: neither check("{exercise}", ...) nor a function {found.function} is there.']


def _blame(found: ExerciseCode, text: str, error: SyntaxError) -> None:
    found.source, found.cells = text, []
    line = f", in line {error.lineno}" if error.lineno else ""
    found.notes.append(f"its cell has a syntax error{line}: {error.msg}.")


def _segment(text: str, node: ast.stmt) -> str:
    """Return the text of a statement, with its decorators; lines that stand beside it are left out."""
    if not isinstance(node, Definition):
        return ast.get_source_segment(text, node) or ast.unparse(node)
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    lines = text.split("\n")
    return "\n".join([*lines[first - 1 : node.lineno - 1], ast.get_source_segment(text, node) or ast.unparse(node)])


def _tree_of(text: str, files: dict[str, str]) -> tuple[str, ast.Module]:
    """Return the text of a cell as Python, and its tree: without magics and lines for a shell."""
    try:
        return text, ast.parse(text)
    except SyntaxError:
        first = text.lstrip("\n ").partition("\n")[0]
    from IPython.core.inputtransformer2 import TransformerManager

    if first.startswith("%%"):
        name, *rest = first[2:].split() or [""]
        body = text.lstrip("\n ").partition("\n")[2]
        if name in ("writefile", "file"):
            files["".join(rest[-1:])] = body
        return ("", ast.Module([], [])) if name in FOREIGN else _tree_of(body, files)
    text = TransformerManager().transform_cell(text)
    return text, _WithoutMagics().visit(ast.parse(text))


class _WithoutMagics(ast.NodeTransformer):
    """Puts the statement that `%time` runs in its place, and nothing in that of other magics and shell lines."""

    def visit_Expr(self, node: ast.Expr) -> Any:
        """Return what stands for a statement that is one call."""
        call = node.value
        if not (isinstance(call, ast.Call) and ast.unparse(call.func).startswith("get_ipython()")):
            return node
        given = [getattr(arg, "value", "") for arg in call.args]
        run = ast.parse(str(given[1])).body if given[:1] in (["time"], ["prun"]) and len(given) == 2 else []
        return [ast.copy_location(one, node) for one in run or [ast.Pass()]]


def _texts_given(node: ast.stmt) -> set[str]:
    """Return the texts that a statement gives to a function beside something else, as `check` gets the exercise."""
    found = set()
    for one in ast.walk(node):
        if isinstance(one, ast.Call):
            given = [*one.args, *(keyword.value for keyword in one.keywords)]
        else:
            given = one.elts if isinstance(one, ast.Tuple) else []
        if len(given) > 1:
            found |= {arg.value for arg in given if isinstance(arg, ast.Constant) and isinstance(arg.value, str)}
    return found


def _needed(wanted: set[str], notebook: ReadNotebook, until: int) -> list[int]:
    """Return the numbers of the statements that some names depend on; of those behind `until` only what is missing."""
    chosen: set[int] = set()
    seen: set[str] = set()
    todo = [*wanted, "*"]
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        touching = notebook.touching.get(name, [])
        before = [i for i in touching if i < until]
        for i in before or [i for i in touching if i > until]:
            if i not in chosen:
                chosen.add(i)
                todo += notebook.statements[i].reads
    return sorted(chosen)


def _imported_or_defined(node: ast.stmt) -> set[str]:
    parts = [n for n in ast.walk(node) if isinstance(n, (*Definition, ast.Import, ast.ImportFrom))]
    return {name for part in parts for name in names_defined(part)}


def _names_made(node: ast.stmt) -> set[str]:
    """Return the names that a statement at the top makes, in its blocks as well."""
    found: set[str] = set()
    todo: list[ast.AST] = [node]
    while todo:
        one = todo.pop()
        if isinstance(one, (*Definition, ast.Import, ast.ImportFrom)):
            found.update(names_defined(one))
            todo += getattr(one, "decorator_list", [])
        elif isinstance(one, ast.comprehension):
            todo += [one.iter, *one.ifs]
        elif not isinstance(one, ast.Lambda):
            if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Load):
                found.add(one.id)
            elif isinstance(one, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and one.name:
                found.add(one.name)
            todo += ast.iter_child_nodes(one)
    return found


def _names_changed(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the names whose objects some code may change: a part is stored, a method called, it is an argument."""
    found = set()
    for node in nodes:
        parts: list[ast.AST] = []
        if isinstance(node, (ast.Attribute, ast.Subscript)) and not isinstance(node.ctx, ast.Load):
            parts = [node]
        elif isinstance(node, ast.Call):
            parts = [node.func, *node.args, *(keyword.value for keyword in node.keywords)]
            parts = parts[1:] if isinstance(node.func, ast.Name) else parts
        elif isinstance(node, ast.Global):
            found.update(node.names)
        found |= {name for part in parts if (name := _base(part))}
    return found


def _base(node: ast.AST) -> str:
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Starred)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _stored_in(node: ast.stmt) -> set[str]:
    """Return the names of the objects of which a statement stores a part."""
    kinds = ast.Attribute, ast.Subscript
    return {_base(n) for n in ast.walk(node) if isinstance(n, kinds) and not isinstance(n.ctx, ast.Load)}


def _declared_global(node: ast.stmt) -> set[str]:
    return {name for n in ast.walk(node) if isinstance(n, ast.Global) for name in n.names}


def _globals_of(node: ast.stmt) -> set[str]:
    """Return the names that a statement, and what it defines, looks up outside of itself."""
    read = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} | _declared_global(node)
    try:
        code = compile(ast.Module([node], []), "<cell>", "exec", flags=FLAGS, dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError):
        return read
    return read & set(_names_in(code))


def _names_in(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)


def _what_to_look_at(nodes: list[ast.stmt]) -> list[str]:
    """Return in words what ordinary answers do not use."""
    imports = [n for node in nodes for n in ast.walk(node) if isinstance(n, (ast.Import, ast.ImportFrom))]
    imported = {name for node in imports for name in names_defined(node)}
    odd = set()
    for node in [n for one in nodes if not isinstance(one, (ast.Import, ast.ImportFrom)) for n in ast.walk(one)]:
        odd |= {getattr(node, "id", ""), getattr(node, "attr", "")} & (LOOK_AT | (MODULES & imported))
        if isinstance(node, ast.Import):
            odd |= {part for alias in node.names for part in alias.name.split(".")} & MODULES
        if isinstance(node, ast.ImportFrom):
            odd |= {*(node.module or "").split("."), *(alias.name for alias in node.names)} & (LOOK_AT | MODULES)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "/proc" in node.value:
            odd.add("/proc")
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load) and _base(node) in imported:
            odd.add(f"{ast.unparse(node)} = ...")
    return [f"look at this answer yourself: it uses {', '.join(sorted(odd))}."] if odd else []
