""".devcontainer/devcontainer.json fits the Makefile, the environment and Binder."""

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CONTAINER = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())


def test_the_python_is_that_of_binder():
    version = re.fullmatch(r"mcr\.microsoft\.com/devcontainers/python:(3\.\d+)", CONTAINER["image"])[1]
    assert (ROOT / "binder" / "runtime.txt").read_text() == f"python-{version}\n"


def test_it_is_made_by_a_target_of_the_makefile_and_uses_its_environment():
    make, target = CONTAINER["postCreateCommand"].split()
    makefile = (ROOT / "Makefile").read_text()
    assert make == "make" and re.search(rf"(?m)^{target}:", makefile)
    python = CONTAINER["customizations"]["vscode"]["settings"]["python.defaultInterpreterPath"]
    assert python == "${containerWorkspaceFolder}/.venv/bin/python"
    assert CONTAINER["containerEnv"]["MALLOC_ARENA_MAX"] == "1"


def test_what_it_opens_is_there_and_it_has_two_cores():
    for name in CONTAINER["customizations"]["codespaces"]["openFiles"]:
        assert (ROOT / name).is_file()
    assert CONTAINER["hostRequirements"]["cpus"] >= 2
