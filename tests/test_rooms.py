"""The shape of the code: imports go down only, rooms say what they offer, and `import d2lite` stays light."""

import ast
import importlib
import re
import subprocess
import sys
from graphlib import TopologicalSorter

import pytest

import d2lite
from tools.rooms import FRONT, MODULES, PACKAGES, ROOMS, ROOT, arrows, imported, page, room_of

# each room and the rooms that it imports from; "d2lite" is the modules beside the rooms
TOP = {"d2lite", "notebook_ranks"}
SHOWN = TOP | {"d2lite.figures", "d2lite.widgets"}
RUNS = TOP | {"d2lite.data", "d2lite.training"}
ARROWS = {
    "notebook_ranks": set(),
    "ddp_rehearsal": {"notebook_ranks"},
    "d2lite": {"notebook_ranks"},
    "d2lite.costs": {"notebook_ranks"},
    "d2lite.data": TOP,
    "d2lite.collectives": TOP,
    "d2lite.training": TOP | {"d2lite.collectives", "d2lite.data"},
    "d2lite.profiling": RUNS | {"d2lite.collectives"},
    "d2lite.figures": TOP | {"d2lite.profiling", "d2lite.training"},
    "d2lite.widgets": TOP | {"d2lite.figures", "d2lite.profiling", "d2lite.training"},
    "d2lite.exercises": TOP | {"d2lite.costs", "d2lite.figures"},
    "d2lite_course": TOP | {"d2lite.costs", "d2lite.exercises"},
    "d2lite.labs.chapter_01": SHOWN | {"d2lite.profiling"},
    "d2lite.labs.chapter_03": RUNS - {"notebook_ranks"},
    "d2lite.labs.chapter_04": SHOWN | {"d2lite.collectives", "d2lite.costs", "d2lite.training"},
    "d2lite.labs.chapter_07": TOP | {"d2lite.widgets"},
    "d2lite.labs.chapter_08": SHOWN | {"d2lite.costs", "d2lite.labs.chapter_01", "d2lite.labs.chapter_04"},
    "d2lite.labs.chapter_09": RUNS | SHOWN,
    "d2lite.labs.chapter_10": SHOWN,
    "d2lite.labs.chapter_11": RUNS | SHOWN | {"d2lite.collectives", "d2lite.exercises", "ddp_rehearsal"},
    "d2lite.labs.chapter_12": SHOWN | {"d2lite.labs.chapter_07"},
    "d2lite.labs.chapter_13": SHOWN,
    "d2lite.labs.chapter_14": TOP | {"d2lite.figures", "d2lite.labs.chapter_13", "d2lite.profiling"},
    "d2lite.labs.chapter_15": SHOWN | {"d2lite.labs.chapter_13", "d2lite.labs.chapter_14", "d2lite.profiling"},
    "d2lite.labs.chapter_16": SHOWN
    | {"d2lite.costs", "d2lite.labs.chapter_08", "d2lite.labs.chapter_13", "d2lite.profiling"},
    "d2lite.labs.chapter_17": TOP | {"d2lite.labs.chapter_13", "d2lite.labs.chapter_14"},
}
# what the front door opens although it stands above d2lite: names that were always called from there
FORWARDS = {"d2lite.labs.chapter_03", "d2lite.labs.chapter_11"}
EACH = pytest.mark.parametrize("name", MODULES)


def all_of(path):
    """The names in the `__all__` of a file."""
    for node in ast.parse(path.read_text()).body:
        target = node.target if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [None])[0]
        if getattr(target, "id", None) == "__all__":
            return ast.literal_eval(node.value)


def imports_of(name):
    return imported(MODULES[name].read_text(), name)


def test_rooms_import_what_the_table_says_and_no_more():
    assert arrows() == {room: below - {room} for room, below in ARROWS.items()}
    list(TopologicalSorter(arrows()).static_order())  # raises CycleError


def test_the_front_door_opens_rooms_of_the_package_and_named_forwards():
    opened = {room_of(other) for other in imports_of("d2lite")}
    assert {room for room in opened if "labs." in room or room in PACKAGES} == FORWARDS | {"notebook_ranks"}


def test_nothing_below_comes_in_by_the_front_door():
    below = [name for name in MODULES if name not in FRONT and not name.startswith("d2lite_course")]
    assert [name for name in below if "d2lite" in imports_of(name)] == []


def test_imports_inside_a_room_go_down_only():
    list(TopologicalSorter({name: imports_of(name) - {name} for name in MODULES if name not in FRONT}).static_order())


@EACH
def test_modules_say_what_they_offer(name):
    path = MODULES[name]
    tree = ast.parse(path.read_text())
    assert ast.get_docstring(tree)
    assert path.name == "__init__.py" or all_of(path) is not None
    for node in tree.body:  # what is public is explained
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            assert node.name.startswith("_") or ast.get_docstring(node), f"{name}.{node.name}"


def test_the_page_of_the_rooms_names_each_file():
    written = page()
    for path in MODULES.values():
        if path.name != "__init__.py" and path.stem != "__main__" and path.parent != ROOT / "d2lite":
            assert f"(../{path.relative_to(ROOT).as_posix()})" in written


def cells(path):
    """The code of a notebook, with `pass` for IPython's magics."""
    import nbformat

    code = "\n".join(c.source for c in nbformat.read(path, as_version=4).cells if c.cell_type == "code")
    return re.sub(r"(?m)^(\s*)[%!].*$", r"\1pass", code)


def code(path):
    return cells(path) if path.suffix == ".ipynb" else path.read_text()


USERS = [
    p
    for folder in ("benchmarks", "book", "tools")
    for p in sorted((ROOT / folder).rglob("*.py"))
    if "labs" not in p.parts
]
USERS += [*sorted((ROOT / "book").rglob("[0-9]*.ipynb")), ROOT / "book/index.ipynb"]


@pytest.mark.parametrize("path", USERS, ids=lambda p: str(p.relative_to(ROOT)))
def test_book_benchmarks_and_tools_import_from_packages_and_rooms_alone(path):
    """From d2lite, a room, a laboratory or a package, never from a file inside of it."""
    offered = {name for name in ("d2lite", *ROOMS) for name in (name, *(f"{name}.{n}" for n in public(name)))}
    open_files = r"\.(shared|pretend_gpus|chapter_03)\.\w+$|^d2lite\.workers$"
    offered |= {name for name in MODULES if re.search(open_files, name)}
    ours = [name for name in names_of(code(path)) if name.split(".")[0] in ("d2lite", *PACKAGES)]
    assert [name for name in ours if name not in offered and name.rpartition(".")[0] not in offered - {"d2lite"}] == []


def public(package):
    return importlib.import_module(package).__all__


def names_of(source):
    """The names a.b.c that some code imports."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.slow
def test_all_lists_what_others_import():
    """A name in the `__all__` of a file is imported by another file, or read there as an attribute of its module."""
    tests = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "packages").glob("*/tests/**/*.py"), ROOT / "conftest.py"]
    at_start = (ROOT / "packages").glob("*/src/**/at_start/*.py")
    trees = [ast.parse(code(path)) for path in {*MODULES.values(), *USERS, *tests, *at_start}]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    names = {alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names}
    names |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    unused = [
        f"{module}.{name}"
        for module, path in MODULES.items()
        if path.name not in ("__init__.py", "__main__.py", "d2l.py")
        for name in all_of(path)
        if name not in names
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


@pytest.mark.parametrize("package", ["d2lite", *ROOMS])
def test_every_public_name_is_there(package):
    module = importlib.import_module(package)
    for name in module.__all__:
        assert getattr(module, name) is not None
        assert name in dir(module)


def test_the_packages_and_their_projects_have_one_version():
    files = [ROOT / "pyproject.toml", *(ROOT / "packages").glob("*/pyproject.toml")]
    numbers = {re.search(r'(?m)^version = "(.*)"$', path.read_text())[1] for path in files}
    assert numbers | {importlib.import_module(name).__version__ for name in PACKAGES} == {d2lite.__version__}


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'd2lite' has no attribute 'nothing'"):
        d2lite.nothing  # noqa: B018


def test_a_function_named_as_its_file_stays_the_function():
    statement = "import d2lite.exercises.check; from d2lite.exercises import check; print(callable(check))"
    assert loaded_by(statement).startswith("True")
