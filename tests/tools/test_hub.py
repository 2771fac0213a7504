"""The hub without a hub: folders of learners, bad input, Ctrl-C; the hub itself is tested in tests/browser."""

import os
import signal
import socket
import subprocess
import sys
import urllib.error
from pathlib import Path

import psutil
import pytest
from notebook import until

from tools.cluster.hosts import free_port
from tools.hub.__main__ import main
from tools.hub.install import install, installed
from tools.hub.running_hub import make_folders, running_hub

ROOT = Path(__file__).resolve().parents[2]


def test_each_learner_has_a_copy_that_is_kept(tmp_path):
    make_folders(["ada"], tmp_path)
    index = tmp_path / "learners" / "ada" / "book" / "index.ipynb"
    assert index.read_bytes() == (ROOT / "book" / "index.ipynb").read_bytes()
    index.write_text("changed by a learner")
    make_folders(["ada", "ben"], tmp_path)
    assert index.read_text() == "changed by a learner"
    assert sorted(path.name for path in (tmp_path / "learners").iterdir()) == ["ada", "ben"]


def test_a_course_is_copied_and_half_a_copy_is_made_anew(tmp_path):
    (tmp_path / "course" / "book").mkdir(parents=True)
    (tmp_path / "course" / "book" / "index.ipynb").write_text("{}")
    (tmp_path / "learners" / ".ada").mkdir(parents=True)
    make_folders(["ada"], tmp_path, tmp_path / "course")
    assert (tmp_path / "learners" / "ada" / "book" / "index.ipynb").read_text() == "{}"
    assert not (tmp_path / "learners" / ".ada").exists()


@pytest.mark.parametrize("name", ["../eve", "Ada", "", "a/b", ".ada"])
def test_names_that_are_no_folders_are_refused(name, tmp_path):
    with pytest.raises(ValueError, match="learners: expected names of lower case letters"):
        make_folders([name], tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_folder_without_an_index_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["--book", str(tmp_path)])
    assert "expected a folder with book/index.ipynb in it" in capsys.readouterr().err


def test_without_node_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(RuntimeError, match="expected node, .* sudo apt install nodejs npm"):
        install()


@pytest.mark.skipif(not installed(), reason="JupyterHub is not in .bench: make hub installs it")
def test_a_port_that_is_taken_is_refused(tmp_path, capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["--port", str(port), "--folder", str(tmp_path)]) == 1
    assert f"expected a free port, got {port}" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(not installed(), reason="JupyterHub is not in .bench: make hub installs it")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_all_of_it(number, tmp_path):
    command = [sys.executable, "-m", "tools.hub", "--folder", str(tmp_path), "--port", str(free_port())]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True) as process:
        lines = [process.stdout.readline() for _ in range(4)]
        assert lines[1].startswith("The hub is at http://127.0.0.1:") and "Ctrl-C" in lines[3]
        family = psutil.Process(process.pid).children(recursive=True)
        assert {"node", "python"} <= {member.name().rstrip("0123456789.") for member in family}
        process.send_signal(number)
        assert process.stdout.read().split() == ["Stopping", "servers", "and", "kernels", "...", "Stopped."]
    assert process.returncode == 0
    _, left = psutil.wait_procs(family, timeout=20)
    assert not left


@pytest.mark.slow
@pytest.mark.skipif(not installed(), reason="JupyterHub is not in .bench: make hub installs it")
def test_servers_are_limited_in_number_and_ended_when_idle(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    with running_hub(["ada", "ben"], tmp_path, most_servers=1, token="0" * 32, idle_server_s=20) as hub:
        hub.call("users/ada/server", "POST")
        with pytest.raises(urllib.error.HTTPError, match="429"):
            hub.call("users/ben/server", "POST")
        until(lambda: hub.call("users/ada")["server"])
        until(lambda: not hub.call("users/ada")["server"])  # the culler
