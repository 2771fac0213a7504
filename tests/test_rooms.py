"""The package's shape: imports go down only, rooms say what they offer, and `import d2lite` stays light."""

import ast
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import d2lite

PACKAGE, ROOT = Path(d2lite.__file__).parent, Path(__file__).parents[1]
# each room and the rooms that it may import from; "top" is the modules beside the rooms
BELOW = {"top": (), "data": ("top",), "workers": ("top",), "costs": ("top",)}
BELOW["collectives"] = ("top", "costs")
BELOW["training"] = (*BELOW["collectives"], "collectives", "data", "workers")
BELOW["profiling"] = (*BELOW["training"], "training")
BELOW["bugs"] = (*BELOW["profiling"], "profiling")
BELOW["figures"] = (*BELOW["bugs"], "bugs")
BELOW["widgets"] = (*BELOW["figures"], "figures")
BELOW["exercises"] = BELOW["figures"]  # beside figures and widgets
ROOMS = [room for room in BELOW if room != "top"]
MODULES = {".".join(p.relative_to(PACKAGE).with_suffix("").parts): p for p in sorted(PACKAGE.rglob("*.py"))}
FRONT = ("__init__", "__main__", "d2l")  # what users call: they import from every room
EACH = pytest.mark.parametrize("name", MODULES)


def room_of(module):
    return module.split(".")[0] if module.split(".")[0] in ROOMS else "top"


def imported(source):
    """The names d2lite.x.y that some code imports, in whatever form, those inside functions as well."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "d2lite")
        elif isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == "d2lite":
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def modules_in(names):
    """The modules of the package among imported names: d2lite.costs.step.Step is of costs.step."""
    parts = [name.split(".")[1:] for name in names]
    return {module for p in parts for module in (".".join(p), ".".join(p[:-1])) if module in MODULES}


@EACH
def test_imports_between_rooms_go_down_only(name):
    if name not in FRONT:
        for other in modules_in(imported(MODULES[name].read_text())):
            assert room_of(other) in (room_of(name), *BELOW[room_of(name)]), f"{name} imports {other}"


def test_imports_inside_a_room_go_down_only():
    graph = {name: modules_in(imported(path.read_text())) for name, path in MODULES.items()}
    for name in FRONT:
        del graph[name]
    list(TopologicalSorter(graph).static_order())  # raises CycleError


@EACH
def test_modules_say_what_they_offer(name):
    source = MODULES[name].read_text()
    tree = ast.parse(source)
    assert ast.get_docstring(tree)
    if name != "__main__":
        assert any(
            isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == "__all__" for node in tree.body
        )
    for node in ast.walk(tree):  # what is public is explained
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node in tree.body:
            assert node.name.startswith("_") or ast.get_docstring(node), f"{name}.{node.name}"


def cells(path):
    """The code of a notebook, with `pass` for IPython's magics."""
    import nbformat

    code = "\n".join(c.source for c in nbformat.read(path, as_version=4).cells if c.cell_type == "code")
    return re.sub(r"(?m)^(\s*)[%!].*$", r"\1pass", code)


USERS = [p for folder in ("benchmarks", "book", "tools") for p in sorted((ROOT / folder).rglob("*.py"))]
USERS += [*sorted((ROOT / "book").rglob("[0-9]*.ipynb")), ROOT / "book/index.ipynb"]


@pytest.mark.parametrize("path", USERS, ids=lambda p: str(p.relative_to(ROOT)))
def test_book_benchmarks_and_tools_import_from_the_package_and_its_rooms_alone(path):
    public = {f"d2lite.{name}" for name in d2lite.__all__} | {"d2lite", *(f"d2lite.{room}" for room in ROOMS)}
    for room in ROOMS:
        public |= {f"d2lite.{room}.{name}" for name in getattr(d2lite, room).__all__}
    names = set(imported(cells(path) if path.suffix == ".ipynb" else path.read_text()))
    assert names <= public


def test_import_loads_nothing_that_shows():
    code = (
        "import sys, d2lite; "
        "print([m for m in ('torchvision', 'plotly', 'ipywidgets', 'IPython', 'matplotlib') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_every_public_name_is_there():
    for name in d2lite.__all__:
        assert getattr(d2lite, name) is not None
    for room in ROOMS:
        for name in getattr(d2lite, room).__all__:
            assert getattr(getattr(d2lite, room), name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        d2lite.nothing  # noqa: B018
