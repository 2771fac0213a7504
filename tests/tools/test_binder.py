"""binder/ as repo2docker reads it, and what repo2docker misses: malformed requirements, a misspelt runtime.txt."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
BINDER = ROOT / "binder"


def parse(path):
    """Return the requirements and the options of a requirements file; a malformed line raises."""
    lines = [line.split(" #")[0].strip() for line in path.read_text().splitlines() if not line.startswith("#")]
    options = [line for line in lines if line.startswith("-")]
    return [Requirement(line) for line in lines if line and line not in options], options


def python_version():
    match = re.fullmatch(r"python-(3\.\d+)\n", (BINDER / "runtime.txt").read_text())
    assert match, "runtime.txt: expected one line such as python-3.12"
    return match[1]


def test_only_files_that_repo2docker_knows_are_there():
    assert {path.name for path in BINDER.iterdir()} == {"requirements.txt", "runtime.txt", "postBuild", "start"}


def test_the_python_is_one_that_the_package_supports():
    assert tuple(map(int, python_version().split("."))) >= (3, 10)


def test_torch_is_the_cpu_build_of_the_pair_in_requirements():
    here = {"python_version": python_version(), "python_full_version": python_version() + ".1"}
    kit = [r for r in parse(ROOT / "requirements.txt")[0] if not r.marker or r.marker.evaluate(here)]
    pins = {r.name: str(r.specifier) for r in kit if r.name.startswith("torch")}
    requirements, options = parse(BINDER / "requirements.txt")
    assert "--extra-index-url https://download.pytorch.org/whl/cpu" in options
    assert {r.name: str(r.specifier) for r in requirements} == {name: pin + "+cpu" for name, pin in pins.items()}
    for requirement in requirements:  # pip must be able to satisfy both files with one version
        assert (
            pins[requirement.name].strip("=") + "+cpu"
            in Requirement(requirement.name + pins[requirement.name]).specifier
        )


def test_the_rest_and_the_package_come_from_the_one_list():
    _, options = parse(BINDER / "requirements.txt")
    assert "-r ../requirements.txt" in options
    assert (BINDER / "../requirements.txt").resolve() == ROOT / "requirements.txt"
    assert parse(ROOT / "requirements.txt")[1] == ["-e ."]


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(("name", "does"), [("postBuild", "overrides.json"), ("start", 'exec "$@"')])
def test_scripts_are_executable_sound_and_do_their_work(name, does):
    script = BINDER / name
    assert os.access(script, os.X_OK)
    subprocess.run(["bash", "-n", str(script)], check=True)
    assert script.read_text().startswith("#!/usr/bin/env bash\n")
    assert does in script.read_text()


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_jupyterlab_on_binder_has_the_project_s_settings(tmp_path):
    """postBuild with a stand-in for python that says where JupyterLab is."""
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho '{tmp_path}/share/jupyter/lab'\n")
    python.chmod(0o755)
    env = os.environ | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run(["bash", str(BINDER / "postBuild")], cwd=ROOT, env=env, check=True, timeout=30)
    kept = tmp_path / "share" / "jupyter" / "lab" / "settings" / "overrides.json"
    assert kept.read_text() == (ROOT / "tools" / "jupyterlab" / "overrides.json").read_text()


def test_repo2docker_accepts_it(tmp_path):
    repo2docker = shutil.which("jupyter-repo2docker")
    if repo2docker is None:
        pytest.skip("repo2docker is not installed: pip install jupyter-repo2docker")
    shutil.copytree(BINDER, tmp_path / "binder")
    for name in ("requirements.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    ended = subprocess.run([repo2docker, "--no-build", "--debug", str(tmp_path)], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert f"python={python_version()}" in ended.stdout + ended.stderr
