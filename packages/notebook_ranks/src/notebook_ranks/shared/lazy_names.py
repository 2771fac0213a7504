"""A package whose names are imported when they are first used, as scientific Python's SPEC 1 proposes."""

import ast
import importlib
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["lazy_names"]


def lazy_names(
    package: str, explain: Callable[[str, str], Exception] | None = None
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__all__`, `__getattr__` and `__dir__` of a package, for its `__init__.py`.

    The names are those that the file imports under `if TYPE_CHECKING:`. So they are written once, and type checkers see
    them, too. A function whose file has its own name is imported from there at once, above that block: otherwise the
    package would offer the file under this name, once it is loaded. `from package import room` offers a module.

    Where a name needs a package that is missing, the error is explain(name, missing package).
    """
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.origin is not None
    body = ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body
    later = _imports(package, [inner for node in body if isinstance(node, ast.If) for inner in node.body])
    at_once = {name for name, module in _imports(package, body).items() if module == f"{package}.{name}"}

    def get(name: str) -> Any:
        if name not in later:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            module = importlib.import_module(later[name])
            if later[name] == package or not hasattr(module, name):
                return importlib.import_module(f"{later[name]}.{name}")
            return getattr(module, name)
        except ModuleNotFoundError as error:
            if explain is None or error.name is None or error.name.split(".")[0] == package.split(".")[0]:
                raise
            raise explain(name, error.name) from error

    names = sorted(later.keys() | at_once)
    return names, get, lambda: sorted({*vars(importlib.import_module(package)), *names})


def _imports(package: str, nodes: list[ast.stmt]) -> dict[str, str]:
    """Return {name: module} of the statements `from module import name`; a module such as .zero gets its whole name."""
    return {
        alias.asname or alias.name: f"{package}.{node.module}" if node.level else str(node.module)
        for node in nodes
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
