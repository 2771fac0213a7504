"""The package's shape: imports go down only, rooms say what they offer, and `import d2lite` stays light."""

import ast
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import d2lite
from tools.rooms import FRONT, MODULES, PAGE, ROOMS, imported, modules_in, page, room_of

ROOT = Path(__file__).parents[1]
# each room and the rooms that it may import from; "top" is the modules beside the rooms
BELOW = {"top": (), "data": ("top",), "workers": ("top",), "costs": ("top",), "pretend_gpus": ("top",)}
BELOW["collectives"] = ("top", "costs")
BELOW["training"] = (*BELOW["collectives"], "collectives", "data", "workers")
BELOW["profiling"] = (*BELOW["training"], "training")
BELOW["bugs"] = (*BELOW["profiling"], "profiling")
BELOW["figures"] = (*BELOW["bugs"], "bugs")
BELOW["widgets"] = (*BELOW["figures"], "figures")
BELOW["exercises"] = BELOW["widgets"]  # beside widgets
BELOW["rehearsal"] = (*BELOW["widgets"], "pretend_gpus")  # beside widgets
BELOW["course"] = (*BELOW["exercises"], "exercises")
EACH = pytest.mark.parametrize("name", MODULES)


def all_of(path):
    """The names in the `__all__` of a file."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == "__all__":
            return ast.literal_eval(node.value)


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
    tree = ast.parse(MODULES[name].read_text())
    assert ast.get_docstring(tree)
    assert name == "__main__" or all_of(MODULES[name]) is not None
    for node in tree.body:  # what is public is explained
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            assert node.name.startswith("_") or ast.get_docstring(node), f"{name}.{node.name}"


def test_the_picture_of_the_rooms_is_that_of_the_imports():
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m tools.rooms"


def cells(path):
    """The code of a notebook, with `pass` for IPython's magics."""
    import nbformat

    code = "\n".join(c.source for c in nbformat.read(path, as_version=4).cells if c.cell_type == "code")
    return re.sub(r"(?m)^(\s*)[%!].*$", r"\1pass", code)


def code(path):
    return cells(path) if path.suffix == ".ipynb" else path.read_text()


USERS = [p for folder in ("benchmarks", "book", "tools") for p in sorted((ROOT / folder).rglob("*.py"))]
USERS += [*sorted((ROOT / "book").rglob("[0-9]*.ipynb")), ROOT / "book/index.ipynb"]


@pytest.mark.parametrize("path", USERS, ids=lambda p: str(p.relative_to(ROOT)))
def test_book_benchmarks_and_tools_import_from_the_package_and_its_rooms_alone(path):
    public = {f"d2lite.{name}" for name in d2lite.__all__} | {"d2lite", *(f"d2lite.{room}" for room in ROOMS)}
    for room in ROOMS:
        public |= {f"d2lite.{room}.{name}" for name in getattr(d2lite, room).__all__}
    public |= {"d2lite.labs.d2l", *(f"d2lite.labs.d2l.{name}" for name in d2lite.labs.d2l.__all__)}
    assert set(imported(code(path))) <= public


def test_all_lists_what_others_import():
    """A name in the `__all__` of a file is imported by another file, or read there as an attribute of its module."""
    trees = [(path, ast.parse(code(path))) for path in {*MODULES.values(), *USERS, *(ROOT / "tests").rglob("*.py")}]
    names = {name for _, tree in trees for name in imported(tree)}
    attributes = {node.attr for _, tree in trees for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    unused = [
        f"{module}.{name}"
        for module, path in MODULES.items()
        if path.name not in ("__init__.py", "__main__.py", "d2l.py")
        for name in all_of(path)
        if f"d2lite.{module}.{name}" not in names and name not in attributes
    ]
    assert unused == []


def loaded_by(statement, *modules):
    """Those of `modules` that a fresh interpreter has loaded after a statement."""
    code = f"{statement}; import sys; print([m for m in {modules} if m in sys.modules])"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_import_loads_nothing_that_shows():
    shows = ("torchvision", "plotly", "ipywidgets", "IPython", "matplotlib")
    assert loaded_by("from d2lite import Workers, train", *shows) == "[]"


def test_the_page_can_load_plotly_before_pytorch_is_there():
    assert loaded_by("from d2lite.widgets import load_plotly; load_plotly()", "torch", "plotly") == "['plotly']"


def test_the_collector_is_on_after_an_import():
    assert loaded_by("import gc; from d2lite import num_cores; assert gc.isenabled()", "torch") == "['torch']"


def test_every_public_name_is_there():
    for name in d2lite.__all__:
        assert getattr(d2lite, name) is not None
    for room in ROOMS:
        for name in getattr(d2lite, room).__all__:
            assert getattr(getattr(d2lite, room), name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        d2lite.nothing  # noqa: B018
