"""The part of a chapter's exercises that students get as code: the functions that call an answer and read its result.

`observers_of` takes it out of `chapter_5.py`: the `observe`, `near` and `part` of each exercise, and the functions,
classes, constants and imports that they need. Solutions and mistakes stay behind; an exercise whose `observe` calls its
solution cannot be handed out.
"""

import ast
from collections.abc import Iterable
from pathlib import Path

from d2lite_course.definitions import names_defined, names_needed

__all__ = ["observers_of"]

HEAD = '''"""How the answers to the exercises of chapter {chapter} are called, and what is read from them.

Written by python -m d2lite course. What is expected, and the hints, are in chapter_{chapter}.json.
"""

'''


def observers_of(path: Path, chapter: int) -> tuple[str, dict[str, str]]:
    """Return the text of `observe_N.py`, and {name: why} for the exercises that cannot be handed out.

    Args:
        path: A file `chapter_N.py`.
        chapter: Its number.

    Raises:
        ValueError: If an exercise is not written as `NAME = Exercise(name="...", ...)`.
    """
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    defined = {name: node for node in tree.body for name in names_defined(node)}
    tables: dict[str, list[str]] = {"OBSERVE_OF": [], "NEAR_OF": [], "PART_OF": []}
    needed: set[str] = set()
    refused: dict[str, str] = {}
    for call in _exercises_in(tree):
        given = {keyword.arg: keyword.value for keyword in call.keywords}
        name_node = given.get("name")
        if not isinstance(name_node, ast.Constant):
            raise ValueError(f'{path}, line {call.lineno}: expected name="{chapter}.1" or the like in Exercise(...).')
        name, parts = str(name_node.value), _parts_of_mistakes(given.get("mistakes"))
        public = [node for node in (given.get("observe"), given.get("near"), *parts.values()) if node is not None]
        names = _names_needed(public, defined)
        secret = _names_read([given["solution"], *_answers(given.get("mistakes"))]) & _functions(defined)
        if shared := sorted(names & secret):
            refused[name] = f"what observes an answer calls {', '.join(shared)}, which is an answer itself"
            continue
        needed |= names
        for table, node in (("OBSERVE_OF", given.get("observe")), ("NEAR_OF", given.get("near"))):
            if node is not None:
                tables[table].append(f'    "{name}": {ast.unparse(node)},')
        if parts:
            shown = ", ".join(f"{i}: {ast.unparse(node)}" for i, node in parts.items())
            tables["PART_OF"].append(f'    "{name}": {{{shown}}},')
    nodes = [node for node in tree.body if needed.intersection(names_defined(node))]
    imports = [_import_of(node, needed) for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom))]
    kept = ["\n".join(imports)] if imports else []
    kept += [_segment(text, node) for node in nodes if not isinstance(node, (ast.Import, ast.ImportFrom))]
    kept += [
        "\n".join([f"{table} = {{", *lines, "}"]) if lines else f"{table} = {{}}" for table, lines in tables.items()
    ]
    return HEAD.format(chapter=chapter) + "\n\n".join(kept) + "\n", refused


def _functions(defined: dict[str, ast.stmt]) -> set[str]:
    return {name for name, node in defined.items() if isinstance(node, ast.FunctionDef)}


def _exercises_in(tree: ast.Module) -> Iterable[ast.Call]:
    for node in tree.body:
        value = getattr(node, "value", None)
        if isinstance(value, ast.Call) and getattr(value.func, "id", "") == "Exercise":
            yield value


def _mistakes(node: ast.expr | None) -> list[ast.Call | None]:
    """Return the calls of Mistake in a tuple, with None for what is no call, such as NEVER_ENDS."""
    items = node.elts if isinstance(node, (ast.Tuple, ast.List)) else []
    return [item if isinstance(item, ast.Call) else None for item in items]


def _answers(node: ast.expr | None) -> list[ast.expr]:
    return [call.args[0] for call in _mistakes(node) if call is not None and call.args]


def _parts_of_mistakes(node: ast.expr | None) -> dict[int, ast.expr]:
    found = {}
    for i, call in enumerate(_mistakes(node)):
        for keyword in call.keywords if call is not None else ():
            if keyword.arg == "part":
                found[i] = keyword.value
    return found


def _names_read(nodes: Iterable[ast.AST]) -> set[str]:
    return {n.id for node in nodes for n in ast.walk(node) if isinstance(n, ast.Name)}


def _names_needed(nodes: Iterable[ast.AST], defined: dict[str, ast.stmt]) -> set[str]:
    """Return the names of the file that some code needs, directly or not."""

    def read_by(name: str) -> set[str]:
        node = defined[name]
        return set() if isinstance(node, (ast.Import, ast.ImportFrom)) else _names_read([node]) & defined.keys()

    return names_needed(_names_read(nodes) & defined.keys(), read_by)


def _import_of(node: ast.Import | ast.ImportFrom, needed: set[str]) -> str:
    """Return an import of the needed names alone."""
    used = [alias for alias in node.names if (alias.asname or alias.name).split(".")[0] in needed]
    if isinstance(node, ast.Import):
        return ast.unparse(ast.Import(used))
    return ast.unparse(ast.ImportFrom(node.module, used, node.level))


def _segment(text: str, node: ast.stmt) -> str:
    first = min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", []))])
    return "\n".join(text.splitlines()[first - 1 : node.end_lineno])
