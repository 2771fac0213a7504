"""The pieces of `make wheels`; the whole is run by .ci/run."""

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
