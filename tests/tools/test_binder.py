"""binder/ as repo2docker reads it, and what repo2docker misses: malformed requirements, a misspelt runtime.txt."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tools import build_binder
from tools.setup_env import SetupError

ROOT = Path(__file__).resolve().parents[2]
BINDER = ROOT / "binder"
# of repo2docker 2026.4.0, buildpacks/conda/environment.py-3.12.yml, comments left out
REPO2DOCKER_3_12 = """
- python=3.12.*
- nodejs=20
- pip
- ipywidgets==8.*
- jupyter-offlinenotebook==0.3.*
- jupyter-resource-usage==1.*
- jupyter_server==2.*
- jupyterhub-singleuser==5.*
- jupyterlab==4.*
- notebook==7.*
"""


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


def test_the_python_and_the_packages_are_those_that_repo2docker_takes():
    assert build_binder.python_version() == python_version()
    yaml = re.findall(r"(?m)^- (\S+==\S+)", REPO2DOCKER_3_12)
    wanted = {line.replace("jupyterhub-singleuser", "jupyterhub") for line in yaml}  # conda's name of pip's package
    assert set(build_binder.BASE) == wanted


def test_the_copy_has_what_is_tracked_and_nothing_that_git_ignores(tmp_path):
    build_binder.copy_repository(tmp_path)
    for name in ("binder/start", "requirements.txt", "book/index.ipynb", "d2lite/__init__.py"):
        assert (tmp_path / name).read_bytes() == (ROOT / name).read_bytes()
    assert os.access(tmp_path / "binder" / "postBuild", os.X_OK)
    assert not (tmp_path / ".venv").exists() and not list(tmp_path.rglob("__pycache__"))


def test_other_builds_of_torch_replace_both_pins_and_the_index_of_a_copy(tmp_path):
    build_binder.copy_repository(tmp_path)
    build_binder.replace_pins(tmp_path, ["torch==2.13.0"])
    for path in (tmp_path / "requirements.txt", tmp_path / "binder" / "requirements.txt"):
        requirements, options = parse(path)
        assert [r for r in map(str, requirements) if r.startswith("torch")] == ["torch==2.13.0"]
        assert not [option for option in options if "index" in option]
    assert "-r ../requirements.txt" in options


def test_the_image_gets_no_variables_of_ours(monkeypatch, tmp_path):
    for name in ("PYTHONPATH", "D2LITE_QUICK", "MALLOC_ARENA_MAX", "VIRTUAL_ENV", "JUPYTER_CONFIG_DIR"):
        monkeypatch.setenv(name, "ours")
    monkeypatch.setenv("PIP_CERT", "kept")
    variables = build_binder.Room(tmp_path).variables()
    assert "ours" not in variables.values() and variables["PIP_CERT"] == "kept"
    assert variables["HOME"] == str(tmp_path / "home") and variables["PATH"].startswith(str(tmp_path / "srv"))


def test_a_command_that_fails_is_named_and_its_output_shown(tmp_path, capsys):
    room = build_binder.Room(tmp_path)
    room.home.mkdir()
    room.own()
    assert room.run(["true"]) > 0
    with pytest.raises(SetupError, match="sh failed with exit status 3"):
        room.run(["sh", "-c", "echo what it said; exit 3"])
    assert "what it said" in capsys.readouterr().out


def test_an_index_of_pytorch_that_does_not_answer_is_said_before_anything_is_built(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(build_binder, "answers", lambda url: False)
    assert build_binder.main(["--folder", str(tmp_path / "new")]) == 1
    assert "does not answer" in capsys.readouterr().err and not (tmp_path / "new").exists()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="users and networks are changed by root")
def test_as_root_a_command_runs_as_the_user_and_without_a_network(tmp_path):
    room = build_binder.Room(tmp_path)
    if not room.isolated or subprocess.run(["unshare", "-n", "true"]).returncode:
        pytest.skip("no network namespaces here")
    tmp_path.parent.chmod(0o755)
    tmp_path.parent.parent.chmod(0o755)
    room.home.mkdir()
    room.own()
    says = "id -u; ip -o link show up | wc -l; touch here"
    with room.popen(["sh", "-c", says], network=False, stdout=subprocess.PIPE, text=True) as process:
        assert process.communicate()[0].split() == [str(build_binder.USER), "1"]  # the loopback alone
    assert (room.home / "here").stat().st_uid == build_binder.USER
