"""The package's shape: imports go down only, modules stay small, `import d2lite` stays light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import d2lite

PACKAGE = Path(d2lite.__file__).parent
FLOORS = [
    {"checks", "watch", "svg", "diagnosis", "faults", "trace", "live", "scratch", "schedules", "memory", "turns"},
    {"ring", "roots", "exchange", "costs", "stragglers", "critical_path"},
    {"devices", "models", "silhouettes", "download", "splits", "rank", "two_level", "presets"},
    {"rank_agent", "rank_watch", "rank_process", "fit"},
    {"meters", "runs", "sharding", "algorithms", "data", "workers", "workloads", "step_times"},
    {"replicas", "evaluation", "collectives", "predict"},
    {
        "data_parallel",
        "concise",
        "distributed",
        "figures",
        "split_figures",
        "fault_lab",
        "rank_collectives",
        "published",
        "scaling",
    },
    {"timelines", "recorded_steps", "this_machine", "records", "animator", "stepper_figures", "scaling_figures"},
    {"background", "controls", "view", "split_explorer", "stepper", "scaling_explorer"},
    {"panel"},
    {"__init__", "__main__"},
]
MODULES = sorted(PACKAGE.glob("*.py"))


def floor(name):
    return next((i for i, names in enumerate(FLOORS) if name in names), None)


def imported(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", MODULES, ids=lambda p: p.stem)
def test_imports_go_down_only(path):
    mine = floor(path.stem)
    assert mine is not None, f"{path.stem} stands on no floor"
    below = {name.split(".")[1] for name in imported(ast.parse(path.read_text())) if name.startswith("d2lite.")}
    for name in below & {p.stem for p in MODULES}:
        assert floor(name) < mine, f"{path.stem} imports {name}"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: p.stem)
def test_modules_are_small_and_say_what_they_offer(path):
    tree = ast.parse(path.read_text())
    assert len(path.read_text().splitlines()) <= 250
    assert ast.get_docstring(tree)
    if path.stem != "__main__":
        assert any(
            isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == "__all__" for node in tree.body
        )
    for node in ast.walk(tree):  # what is public is explained
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node in tree.body:
            assert node.name.startswith("_") or ast.get_docstring(node), f"{path.stem}.{node.name}"


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
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        d2lite.nothing  # noqa: B018
