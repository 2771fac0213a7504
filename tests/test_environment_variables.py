"""docs/environment-variables.md names each variable that the code reads, and no other."""

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "environment-variables.md").read_text(encoding="utf-8")
NAME = "([A-Z][A-Z0-9_]+)"
READS = (r"environ(?:\.get\(|\[|\.setdefault\()\s*{}", r"getenv\({}", r"{}(?: not)? in os\.environ")
IN_PYTHON = re.compile("|".join(read.format(f"[\"']{NAME}[\"']") for read in READS))
IN_SHELL = re.compile(rf"\$\{{?{NAME}")
IN_MAKE = re.compile(rf"(?m)^(?:export )?{NAME} \?=|\$\({NAME}\)")
NOT_OURS = {"CURDIR", "HOME", "MAKE", "SECONDS"}  # variables of make and of bash, and the user's home folder
# what shells and Makefiles set themselves before they use it
SET = re.compile(rf"(?m)^\s*(?:export )?{NAME}\s*:?=")


def sources():
    """Yield (path, text) of all files that could read a variable; of notebooks the code."""
    for folder in ("d2lite", "packages", "book", "benchmarks", "tools", "tests", "binder"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix == ".ipynb" and ".ipynb_checkpoints" not in path.parts:
                cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
                yield path, "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
            elif path.suffix in (".py", ".sbatch") or path.parent.name == "binder" and not path.suffix:
                yield path, path.read_text(encoding="utf-8")
    for path in (ROOT / "Makefile", ROOT / ".ci" / "run"):
        yield path, path.read_text(encoding="utf-8")


def read_by(path, text):
    """The variables that a file reads; of tests only those that are the project's own."""
    if path.suffix in (".py", ".ipynb"):
        found = {name for groups in IN_PYTHON.findall(text) for name in groups if name}
        return {name for name in found if "tests" not in path.parts or name.startswith("D2LITE_")}
    if path.name == "Makefile":
        own = set(SET.findall(text))
        return {name for groups in IN_MAKE.findall(text) for name in groups if name} - own
    # ${NAME:-value} asks the environment first, though the line sets the variable as well
    asked = set(re.findall(rf"\$\{{{NAME}:-", text))
    return asked | (set(IN_SHELL.findall(text)) - set(SET.findall(text)))


def on_the_page():
    rows = re.findall(r"(?m)^\| (`[^|]*`) \|", PAGE)
    return [name for row in rows for name in re.findall(r"`(\w+)`", row)]


def test_the_page_names_each_variable_that_the_code_reads():
    found = {name: path for path, text in sources() for name in read_by(path, text)}
    assert len(found) > 15
    known = NOT_OURS.union(on_the_page())
    assert {name: str(path.relative_to(ROOT)) for name, path in found.items() if name not in known} == {}


def test_each_variable_of_the_page_is_in_the_code():
    named = on_the_page()
    assert len(named) == len(set(named))
    code = "\n".join(text for path, text in sources() if path != Path(__file__))
    assert [name for name in named if not re.search(rf"\b{name}\b", code)] == []
