"""The rooms of the code: which modules there are, what they import, and docs/rooms.md, the page that shows it.

A *room* is a folder of code for one subject: a subpackage of d2lite, the laboratory of a chapter, or one of the
packages beside d2lite. `make pages` writes the page; tests/test_rooms.py holds the arrows.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

__all__ = ["FRONT", "MODULES", "PACKAGES", "PAGE", "ROOMS", "ROOT", "arrows", "imported", "main", "page", "room_of"]

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "rooms.md"
PACKAGES = ("notebook_ranks", "ddp_rehearsal", "d2lite_course")
_FOLDERS = {"d2lite": ROOT / "d2lite", "d2lite.labs": ROOT / "book" / "labs"}
_FOLDERS |= {name: ROOT / "packages" / name / "src" / name for name in PACKAGES}
FRONT = ("d2lite", "d2lite.__main__")  # they stand above all rooms of d2lite
INTRO = """# The rooms of the code

A *room* is a folder of code for one subject: a subpackage of `d2lite`, the laboratory of a chapter
([`book/labs`](../book/labs), under the name `d2lite.labs`), or one of the three packages beside d2lite.
`tests/test_rooms.py` holds the arrows: a room imports only from the rooms named in its row.

`make pages` writes this page from the code.
"""
OUTRO = """An arrow leads from a room to a room that it imports from. Where a chain of other arrows leads there, the
arrow is left out; the table names all rooms that a room imports from.
"""
FILES = """## What each file holds

The first sentence of each file. Cases, solutions and hints of the exercises are the files `chapter_N.py` in
[`book/exercises`](../book/exercises), and the wrong codes of the museum are `bug_museum.py` there.
"""


def _modules() -> dict[str, Path]:
    """Return {"d2lite.costs.alpha_beta": its file, "d2lite.costs": costs/__init__.py, ...}."""
    found = {}
    for package, folder in _FOLDERS.items():
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            if "at_start" not in parts:  # a file that Python looks for by its name
                found[".".join([package, *parts]).removesuffix(".__init__")] = path
    return found


MODULES = _modules()
_PACKAGED = [name for name, path in MODULES.items() if path.name == "__init__.py" and name != "d2lite"]
ROOMS = sorted(name for name in _PACKAGED if name in PACKAGES or name.startswith("d2lite."))
TOP = "d2lite"  # the modules beside the rooms of d2lite


def room_of(module: str) -> str:
    """Return the room of a module, for example "d2lite.costs" for "d2lite.costs.alpha_beta", else "d2lite"."""
    return max((room for room in ROOMS if f"{module}.".startswith(f"{room}.")), key=len, default=TOP)


def imported(source: str, module: str = "") -> set[str]:
    """Return the modules of MODULES that some code imports, in whatever form, those inside functions as well.

    `from d2lite import train` imports the front door, "d2lite". `module` is the name of the code: for `from .zero`.
    """
    return {_module_of(name) for name in _names(ast.parse(source), module)} & MODULES.keys()


def _names(tree: ast.Module, module: str) -> Iterator[str]:
    """Yield the names a.b.c that some code imports."""
    is_package = module in MODULES and MODULES[module].name == "__init__.py"
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = module.split(".")[: len(module.split(".")) - node.level + is_package] if node.level else []
            place = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{place}.{alias.name}" for alias in node.names)


def _module_of(name: str) -> str:
    """Return the module that gives an imported name: d2lite.training.ddp.ddp_step is of d2lite.training.ddp."""
    return name if name in MODULES else name.rpartition(".")[0]


def arrows() -> dict[str, set[str]]:
    """Return {room: the rooms that its modules import from}, the modules beside the rooms of d2lite as "d2lite"."""
    found: dict[str, set[str]] = {room: set() for room in (TOP, *ROOMS)}
    for name, path in MODULES.items():
        if name not in FRONT:
            found[room_of(name)] |= {room_of(other) for other in imported(path.read_text("utf-8"), name)}
    return {room: others - {room} for room, others in found.items()}


def _reached(room: str, imports: dict[str, set[str]]) -> set[str]:
    """Return all rooms below a room."""
    return imports[room].union(*(_reached(other, imports) for other in imports[room]))


def _first_line(path: Path) -> str:
    """Return the first line of a module's docstring."""
    return (ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").split("\n")[0]


def _link(path: Path) -> str:
    return f"../{path.relative_to(ROOT).as_posix()}"


def page() -> str:
    """Return the page. The picture has an arrow to a room only if no chain of other arrows leads there."""
    imports = arrows()
    upward = sorted(imports, key=lambda room: (len(_reached(room, imports)), room))
    lines = [INTRO, "```mermaid", "flowchart TD", f'    {TOP}["modules beside the rooms of d2lite"]']
    for room in reversed(upward):  # few crossings
        through = set().union(*(_reached(other, imports) for other in imports[room]))
        lines += [f"    {room} --> {other}" for other in sorted(imports[room] - through)]
    lines += ["```", "", OUTRO, "| room | what it holds | imports from |", "| --- | --- | --- |"]
    for room in upward:
        path = MODULES[room]
        about = "the modules beside the rooms" if room == TOP else _first_line(path)
        lines.append(
            f"| [`{room}`]({_link(path.parent)}) | {about} | {', '.join(sorted(imports[room])) or 'no room'} |"
        )
    lines += ["", FILES]
    for room in upward:
        lines += [f"### {room}", "", "| file | what it holds |", "| --- | --- |"]
        own = {name: path for name, path in MODULES.items() if room_of(name) == room and name != room}
        lines += [f"| [`{path.name}`]({_link(path)}) | {_first_line(path)} |" for path in own.values()]
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE.relative_to(ROOT))


if __name__ == "__main__":
    main()
