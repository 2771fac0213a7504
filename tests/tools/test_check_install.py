"""The pieces of `make wheels`; the whole is run by .ci/run."""

import importlib.metadata
import subprocess
import sys
import zipfile

import pytest

from tools import check_install


def test_the_closure_follows_requirements_and_extras():
    found = check_install.closure(["nbval"])
    assert {"nbval", "pytest", "nbformat"} <= found and "torch" not in found and "plotly" not in found
    assert "no-such-package-anywhere" not in check_install.closure(["no-such-package-anywhere"])
    assert "jupyterlab" not in check_install.closure(["torch>=2.11", "numpy"])


def test_links_hold_the_package_and_its_metadata(tmp_path):
    check_install.link(["cloudpickle"], tmp_path)
    code = "import cloudpickle, importlib.metadata as m; print(cloudpickle.__file__, m.version('cloudpickle'))"
    environment = {"PYTHONPATH": str(tmp_path), "PATH": ""}
    ended = subprocess.run([sys.executable, "-S", "-c", code], env=environment, capture_output=True, text=True)
    assert ended.returncode == 0 and ended.stdout.startswith(str(tmp_path)), ended.stderr


def test_requirements_are_read_from_the_wheel(tmp_path):
    wheel = tmp_path / "x-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as files:
        files.writestr(
            "x-1.dist-info/METADATA", "Name: x\nRequires-Dist: torch>=2\nRequires-Dist: plotly; extra == 'b'\n"
        )
    assert check_install.requires(wheel) == ["torch>=2", "plotly; extra == 'b'"]


def test_a_command_that_fails_is_named_with_its_last_words():
    with pytest.raises(SystemExit, match="ended with 3:\n.*gone wrong"):
        check_install.run([sys.executable, "-c", "print('gone wrong'); raise SystemExit(3)"])
    with pytest.raises(subprocess.TimeoutExpired):
        check_install.run([sys.executable, "-c", "import time; time.sleep(60)"], limit_s=0.2)


def test_nothing_leads_back_to_the_repository(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "somewhere")
    environment = check_install.clean_environment()
    assert "PYTHONPATH" not in environment and environment["PYTHONSAFEPATH"] == "1"


def wheel_of(folder, name, version, requires=()):
    """Write a wheel with one empty module, and return its path."""
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    about = f"{name}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {line}\n" for line in requires)
    with zipfile.ZipFile(wheel, "w") as files:
        files.writestr(f"{name}/__init__.py", "")
        files.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}")
        files.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        files.writestr(f"{about}/RECORD", f"{name}/__init__.py,,\n{about}/METADATA,,\n{about}/RECORD,,\n")
    return wheel


@pytest.mark.slow
def test_a_newer_wheel_on_this_machine_does_not_replace_what_is_linked(tmp_path, monkeypatch):
    ours = tmp_path / "ours"
    with zipfile.ZipFile(wheel_of(tmp_path, "linkedthing", "1")) as files:
        files.extractall(ours)
    (tmp_path / "newer").mkdir()
    wheel_of(tmp_path / "newer", "linkedthing", "2")
    wheel = wheel_of(tmp_path, "asker", "1", ["linkedthing>=2"])
    (about,) = importlib.metadata.distributions(path=[str(ours)])
    installed = importlib.metadata.distribution
    monkeypatch.setattr(importlib.metadata, "distribution", lambda n: about if n == "linkedthing" else installed(n))
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "newer"))
    with pytest.raises(SystemExit, match="linkedthing>=2"):
        check_install.fresh(tmp_path / "environment", wheel)
    assert (ours / "linkedthing" / "__init__.py").exists() and (ours / "linkedthing-1.dist-info" / "METADATA").exists()
