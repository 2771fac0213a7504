"""Write docs/rooms.md: a picture of the rooms, drawn from the imports of the package, and one line about each.

`python -m tools.rooms` writes the page; tests/test_rooms.py compares it with the code.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

__all__ = ["FRONT", "MODULES", "PAGE", "ROOMS", "imported", "imports_of_rooms", "main", "modules_in", "page", "room_of"]

ROOT = Path(__file__).resolve().parents[1]
PACKAGE, PAGE = ROOT / "d2lite", ROOT / "docs" / "rooms.md"
ROOMS = sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))
# "costs.step" -> its file, "costs" -> costs/__init__.py, "__init__" -> the package's own
MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}
TOP = "top"  # the modules beside the rooms
FRONT = ("__init__", "__main__", "d2l")  # they stand above all rooms
INTRO = """# The rooms of the package

A *room* is a subpackage of `d2lite` for one subject. `tests/test_rooms.py` checks the order: a room imports only from
the rooms below it (in the table: above it). `__init__.py`, `__main__.py` and
`d2l.py` of the package are left out, since they stand above all rooms.

`python -m tools.rooms` writes this page from the code, and a test compares the two.
"""
FILES = """## What each file holds

The first sentence of each file. Cases, solutions and hints of the exercises are not in the package: they are the files
`chapter_N.py` in [`book/exercises`](../book/exercises), and the wrong codes of the museum are `bug_museum.py` there.
The published figures of chapter 8 are in [`book/papers.py`](../book/papers.py).
"""
OUTRO = """An arrow leads from a room to a room that it imports from. Where a chain of other arrows leads there, the
arrow is left out; the table names all rooms that a room imports from.
"""


def room_of(module: str) -> str:
    """Return the room of a module, for example "costs" for "costs.step", and "top" for a module beside the rooms."""
    first = module.split(".")[0]
    return first if first in ROOMS else TOP


def imported(source: str) -> Iterator[str]:
    """Yield the names d2lite.x.y that some code imports, in whatever form, those inside functions as well."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "d2lite")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "d2lite":
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def modules_in(names: Iterator[str]) -> set[str]:
    """Return the modules of the package among imported names: d2lite.training.ddp.ddp_step is of training.ddp."""
    found = set()
    for name in names:
        module = name.removeprefix("d2lite.")
        found.add(module if module in MODULES else module.rpartition(".")[0])
    return found & MODULES.keys()


def imports_of_rooms() -> dict[str, set[str]]:
    """Return {room: the rooms that its modules import from}, the modules at the top included as "top"."""
    found: dict[str, set[str]] = {room: set() for room in (TOP, *ROOMS)}
    for name, path in MODULES.items():
        if name not in FRONT:
            found[room_of(name)] |= {room_of(other) for other in modules_in(imported(path.read_text("utf-8")))}
    return {room: others - {room} for room, others in found.items()}


def _reached(room: str, imports: dict[str, set[str]]) -> set[str]:
    """Return all rooms below a room."""
    return imports[room].union(*(_reached(other, imports) for other in imports[room]))


def _first_line(path: Path) -> str:
    """Return the first line of a module's docstring."""
    return (ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").split("\n")[0]


def page() -> str:
    """Return the page. The picture has an arrow to a room only if no chain of other arrows leads there."""
    imports = imports_of_rooms()
    lines = [INTRO, "```mermaid", "flowchart TD", f'    {TOP}["modules beside the rooms"]']
    for room in sorted(ROOMS, key=lambda room: (-len(_reached(room, imports)), room)):  # few crossings
        through = set().union(*(_reached(other, imports) for other in imports[room]))
        lines += [f"    {room} --> {other}" for other in sorted(imports[room] - through)]
    lines += ["```", "", OUTRO]
    lines += ["| room | what it holds | imports from |", "| --- | --- | --- |"]
    for room in sorted(ROOMS, key=lambda room: (len(_reached(room, imports)), room)):
        about = _first_line(MODULES[room])
        below = ", ".join(sorted(imports[room] - {TOP})) or "no room"
        lines.append(f"| [`{room}`](../d2lite/{room}) | {about} | {below} |")
    lines += ["", "The modules beside the rooms import from no room:", ""]
    lines += ["| module | what it holds |", "| --- | --- |"]
    for name, path in MODULES.items():
        if room_of(name) == TOP and name not in FRONT:
            lines.append(f"| [`{name}.py`](../d2lite/{name}.py) | {_first_line(path)} |")
    lines += ["", FILES]
    for room in sorted(ROOMS, key=lambda room: (len(_reached(room, imports)), room)):
        lines += [f"### {room}", "", "| file | what it holds |", "| --- | --- |"]
        for name, path in MODULES.items():
            if room_of(name) == room and name != room:
                lines.append(
                    f"| [`{path.name}`](../d2lite/{path.relative_to(PACKAGE).as_posix()}) | {_first_line(path)} |"
                )
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE.relative_to(ROOT))


if __name__ == "__main__":
    main()
