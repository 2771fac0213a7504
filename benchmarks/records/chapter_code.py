"""The functions of a chapter's own cells, for benchmarks: no second implementation."""

import ast
import json
from collections.abc import Mapping
from typing import Any

from benchmarks.report import RESULTS

__all__ = ["chapter_code"]

BOOK = RESULTS.parents[1] / "book"


def chapter_code(file: str, given: Mapping[str, Any], values: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return what a chapter's cells import and define, {name: value}, without running the rest of them.

    Args:
        file: the notebook's name in `book/`.
        given: names that the definitions use, with the values that they shall have.
        values: variables whose assignments are carried out as well, and those of their attributes.
    """
    names = dict(given)
    for cell in json.loads((BOOK / file).read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            tree = ast.parse("".join(cell["source"]))
            tree.body = [node for node in tree.body if _is_wanted(node, values)]
            exec(compile(tree, cell["id"], "exec"), names)
    return names


def _is_wanted(node: ast.stmt, values: tuple[str, ...]) -> bool:
    if isinstance(node, ast.Assign):
        owners = [target.value if isinstance(target, ast.Attribute) else target for target in node.targets]
        return all(isinstance(owner, ast.Name) and owner.id in values for owner in owners)
    return isinstance(node, ast.Import | ast.ImportFrom | ast.ClassDef | ast.FunctionDef)
