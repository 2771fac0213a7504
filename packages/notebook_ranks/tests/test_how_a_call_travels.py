"""The picture and the names in docs/how-a-call-travels.md are those of the code."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/how-a-call-travels.md").read_text()
ROOM = ROOT / "packages/notebook_ranks/src/notebook_ranks"
PICTURE = re.search(r"```mermaid\n(.*?)```", PAGE, flags=re.S)[1]
PARTICIPANTS = dict(re.findall(r"participant (\w+) as (\w+\.py)", PICTURE))
ARROWS = re.findall(r"^ *(\w+)(->>|-\))(\w+): (.+)$", PICTURE, flags=re.M)
NAMES = re.findall(r"\[`([\w.]+)`\]\(\.\./([\w/.]+)\)", PAGE)


def tree_of(participant):
    return ast.parse((ROOM / PARTICIPANTS[participant]).read_text())


def defined(tree):
    """The functions, classes and constants of a module, and Class.method of its classes."""
    found = set()
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)}
    return found


def used(tree):
    """The names and attributes that a module uses."""
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return names | {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


def imported(tree):
    """{module: what is imported from it} of this room."""
    prefix = "notebook_ranks."
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module.startswith(prefix)]
    return {node.module.removeprefix(prefix): {alias.name for alias in node.names} for node in nodes}


def texts(tree):
    return {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def test_the_picture_and_the_words_name_enough():
    assert len(PARTICIPANTS) == 7 and len(ARROWS) >= 20 and len(NAMES) >= 20
    assert {name for arrow in ARROWS for name in (arrow[0], arrow[2])} == set(PARTICIPANTS)


@pytest.mark.parametrize(("name", "path"), sorted(set(NAMES)), ids=str)
def test_each_name_stands_in_its_file(name, path):
    assert name.removeprefix(f"{Path(path).stem}.") in defined(ast.parse((ROOT / path).read_text()))


@pytest.mark.parametrize(("caller", "called", "name"), [(a, b, name) for a, kind, b, name in ARROWS if kind == "->>"])
def test_each_call_goes_as_drawn(caller, called, name):
    tree, names = tree_of(caller), defined(tree_of(called))
    assert imported(tree)[called] & names and name in used(tree)
    assert name in names or any(other.endswith(f".{name}") for other in names)


@pytest.mark.parametrize(("sender", "receiver", "label"), [(a, b, name) for a, kind, b, name in ARROWS if kind == "-)"])
def test_each_message_is_sent_and_received_as_drawn(sender, receiver, label):
    kind = label.strip('"')
    if kind == label:  # the start of a program, a signal or the control pipe
        assert kind in used(tree_of(sender)) | imported_names(sender)
    else:
        assert kind in texts(tree_of(sender))
        assert kind in texts(tree_of(receiver)) or kind == "job"  # a rank takes what is no question as a job
    if label.isupper() and label != "SIGTERM":
        assert PARTICIPANTS[receiver] in texts(tree_of(sender))
    if label == "SIGTERM":
        assert "terminate" in used(tree_of(sender)) and "SIGTERM" in used(tree_of(receiver))


def imported_names(participant):
    """What a module imports under names of its own, and what it does by methods of other libraries."""
    aliases = {
        a.asname for node in ast.walk(tree_of(participant)) if isinstance(node, ast.ImportFrom) for a in node.names
    }
    return aliases | ({"SIGTERM"} if "terminate" in used(tree_of(participant)) else set())
