"""tools/setup_env.py, the Makefile and the pins: no network, and a pip that is played by a shell script."""

import ast
import http.server
import importlib.util
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections import namedtuple
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tools" / "setup_env.py"
spec = importlib.util.spec_from_file_location("setup_env", SCRIPT)
tool = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tool)

needs_sh = pytest.mark.skipif(os.name == "nt", reason="the pip of this test is a shell script")
Usage = namedtuple("Usage", "total used free")

# It stands for .venv's Python and for the one that makes .venv: notes each call, creates what the real one would.
FAKE_PYTHON = """#!/bin/sh
home={home}
echo "$*" >> $home/calls
case "$*" in
*"-m venv --clear"*) rm -rf "$4"; mkdir -p "$4/bin"; cp "$0" "$4/bin/python" ;;
*"-m pip install --no-input"*)
    case "$*" in *--index-url*) kind=cpu ;; *) kind=cuda ;; esac
    if [ -e $home/fail-$kind ]; then cat $home/fail-$kind; exit 1; fi
    echo "Collecting torch==2.15.0"
    echo "  Downloading torch-2.15.0-cp311-linux_x86_64.whl (539.1 MB)"
    if [ $kind = cpu ]; then version=2.15.0+cpu; else version=2.15.0; fi
    site={env}/lib/python3/site-packages
    ls $site/torch-*.dist-info >/dev/null 2>&1 || mkdir -p $site/torch-$version.dist-info
    touch $site/torch-$version.dist-info/RECORD 2>/dev/null || true ;;
*version_info*) echo "{major} {minor}" ;;
*"import torch"*) if [ -e $home/fail-import ]; then cat $home/fail-import; exit 1; fi ;;
esac
"""


class Tree:
    """A checkout in a temporary folder whose Python and pip are played by FAKE_PYTHON."""

    def __init__(self, root):
        self.root, self.env, self.home = root / "tree", root / "tree" / ".venv", root
        self.root.mkdir()
        for name in ("requirements.txt", "pyproject.toml"):
            shutil.copy(ROOT / name, self.root)
        python = root / "python"
        version = sys.version_info
        python.write_text(FAKE_PYTHON.format(home=root, env=self.env, major=version[0], minor=version[1]))
        python.chmod(0o755)
        self.python = str(python)

    def set_up(self, **environ):
        """Run set_up; return what it said and the calls it made."""
        (self.home / "calls").write_text("")
        said = []
        tool.set_up(self.root, environ, said.append)
        return said, (self.home / "calls").read_text().splitlines()

    def fail(self, what, output):
        (self.home / f"fail-{what}").write_text(output)

    def stamp(self):
        return (self.env / ".d2lite-stamp").read_text().split()


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A Linux machine with much disk, no GPU, and an unreachable CPU index, unless a test says otherwise."""
    tree = Tree(tmp_path)
    monkeypatch.setattr(sys, "executable", tree.python)
    monkeypatch.setattr(tool.platform, "system", lambda: "Linux")
    machine(monkeypatch)
    return tree


def machine(monkeypatch, gpu=False, index=False, free=1e12):
    monkeypatch.setattr(tool.choose_torch, "__defaults__", (lambda: gpu, lambda url: index))
    monkeypatch.setattr(tool.check_disk, "__defaults__", (lambda path: Usage(1e12, 0, free),))


# the script on old Pythons


def test_it_parses_on_python_3_6_and_needs_the_standard_library_only():
    module = ast.parse(SCRIPT.read_text(), feature_version=(3, 6))
    names = [n.name for node in ast.walk(module) if isinstance(node, ast.Import) for n in node.names]
    names += [node.module for node in ast.walk(module) if isinstance(node, ast.ImportFrom)]
    assert {name.split(".")[0] for name in names} <= sys.stdlib_module_names


@pytest.mark.parametrize("version", [(3, 6, 15), (3, 10, 18)])
def test_an_old_python_is_told_what_to_install(version):
    with pytest.raises(tool.SetupError, match=rf"Python 3\.{version[1]} is too old.*3\.11.*make lab PYTHON="):
        tool.check_python(version)
    tool.check_python((3, 11, 0))


def test_a_missing_venv_module_is_told_with_the_package_to_install():
    for missing in ("venv", "ensurepip"):
        with pytest.raises(tool.SetupError, match="sudo apt install python3.11-venv"):
            tool.check_venv_module((3, 11, 2), find=lambda name, missing=missing: None if name == missing else name)
    tool.check_venv_module((3, 11, 2), find=lambda name: name)


# what can go wrong


@needs_sh
def test_a_disk_that_is_too_small_is_told_before_anything_is_made(tree, monkeypatch):
    machine(monkeypatch, free=3.2e9)
    with pytest.raises(tool.SetupError, match=r"has 3\.2 GB free and the set-up needs 9\.5 GB: free some space"):
        tree.set_up()
    assert not tree.env.exists()
    machine(monkeypatch, free=3.2e9, index=True)
    tree.set_up()  # the CPU builds fit


def test_a_folder_without_write_permission_is_told(tree, monkeypatch):
    monkeypatch.setattr(tool.os, "access", lambda path, mode: path != str(tree.root))
    with pytest.raises(tool.SetupError, match="no permission to write in .*tree: make it yours"):
        tree.set_up()
    assert not tree.env.exists()


@pytest.mark.parametrize(
    ("output", "line"),
    [
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", "disk is full"),
        ("OSError: [WinError 112] There is not enough space on the disk", "disk is full"),
        (
            "WARNING: Retrying (Retry(total=4, connect=None)) after connection broken by 'NewConnectionError('<pip."
            "_vendor.urllib3.connection.HTTPSConnection>: Failed to establish a new connection: [Errno -3] Temporary "
            "failure in name resolution')': /simple/torch/\nERROR: No matching distribution found for torch==2.15.0",
            "check the network",
        ),
        ("'NameResolutionError(\"HTTPSConnection(host='pypi.org')\")': /simple/torch/", "check the network"),
        ("'ProxyError('Cannot connect to proxy.', OSError('Tunnel connection failed'))'", "HTTPS_PROXY"),
        ("'ConnectTimeoutError(<pip._vendor.urllib3>, 'Connection timed out')'", "check the network"),
        ("pip._vendor.urllib3.exceptions.ReadTimeoutError: HTTPSConnectionPool: Read timed out.", "check the network"),
        ("ERROR: Could not install packages due to an OSError: [Errno 13] Permission denied: 'x'", "no permission"),
        ("OSError: [Errno 30] Read-only file system: '/x'", "no permission"),
        ("PermissionError: [WinError 5] Access is denied: 'torch.dll'", "close running notebooks"),
        ("ERROR: No matching distribution found for torch==2.15.0", "64-bit Python 3.12"),
    ],
)
@needs_sh
def test_each_known_failure_of_pip_is_one_line(tree, output, line, capsys):
    tree.fail("cuda", "Collecting torch\n" + output)
    with pytest.raises(tool.SetupError, match=line) as caught:
        tree.set_up()
    assert "\n" not in str(caught.value)
    assert capsys.readouterr().out == ""
    assert not (tree.env / ".d2lite-stamp").exists()


@needs_sh
def test_an_unknown_failure_of_pip_shows_the_end_of_its_output(tree, capsys):
    tree.fail("cuda", "\n".join(f"line {i}" for i in range(40)))
    with pytest.raises(tool.SetupError, match="pip failed, see above"):
        tree.set_up()
    assert capsys.readouterr().out.split("\n") == [f"line {i}" for i in range(25, 40)] + [""]


@needs_sh
def test_packages_that_do_not_load_are_no_success(tree):
    tree.fail("import", "RuntimeError: operator torchvision::nms does not exist")
    with pytest.raises(tool.SetupError, match="loading the packages failed.*delete .venv"):
        tree.set_up()
    (tree.home / "fail-import").unlink()
    _, calls = tree.set_up()
    assert any("pip install" in call for call in calls)


@pytest.mark.parametrize("error", [tool.SetupError("this is the line"), OSError(28, "No space left on device")])
def test_a_failure_is_one_line_on_stderr_and_a_status(monkeypatch, capsys, error):
    def failing():
        raise error

    monkeypatch.setattr(tool, "set_up", failing)
    assert tool.main() == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert re.fullmatch(r"d2lite set-up: (this is the line|the disk is full.*)\n", shown.err)


def test_ctrl_c_is_one_line_too(monkeypatch, capsys):
    def stopped():
        raise KeyboardInterrupt

    monkeypatch.setattr(tool, "set_up", stopped)
    assert tool.main() == 1
    assert capsys.readouterr().err == "d2lite set-up: stopped; run it again and it goes on from here\n"


def test_the_script_itself_fails_with_one_line(tmp_path):
    (tmp_path / "tools").mkdir()
    for name in ("requirements.txt", "pyproject.toml", "tools/setup_env.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    command = [sys.executable, str(tmp_path / "tools" / "setup_env.py")]
    ended = subprocess.run(command, env={**os.environ, "TORCH": "gpu"}, capture_output=True, text=True)
    assert ended.returncode == 1
    assert ended.stdout == ""
    line = "TORCH=gpu is not known: say TORCH=cpu or TORCH=cuda, or leave it out"
    assert ended.stderr == f"d2lite set-up: {line}\n"


# which torch


@pytest.mark.parametrize(
    ("wanted", "installed", "system", "gpu", "index", "build", "why"),
    [
        ("", "", "Linux", False, True, "cpu", "index answers"),
        ("", "", "Linux", False, False, "cuda", "did not answer within 3 s"),
        ("", "", "Linux", True, True, "cuda", "NVIDIA GPU"),
        ("cpu", "", "Linux", True, False, "cpu", "TORCH=cpu"),
        ("cuda", "", "Linux", False, True, "cuda", "TORCH=cuda"),
        ("", "2.15.0", "Linux", False, True, "keep", "2.15.0 is in .venv"),
        ("", "", "Darwin", False, True, "cpu", "usual"),
        ("", "", "Windows", True, True, "cpu", "usual"),
        ("cpu", "", "Windows", True, False, "cpu", "TORCH=cpu"),
    ],
)
def test_the_choice_of_torch(wanted, installed, system, gpu, index, build, why):
    chosen, reason = tool.choose_torch(wanted, installed, system, lambda: gpu, lambda url: index)
    assert chosen == build
    assert why in reason


@pytest.mark.parametrize(("wanted", "system"), [("gpu", "Linux"), ("1", "Darwin"), ("cuda", "Darwin")])
def test_a_choice_that_cannot_be_is_told(wanted, system):
    with pytest.raises(tool.SetupError, match=f"TORCH={wanted} "):
        tool.choose_torch(wanted, "", system, lambda: False, lambda url: False)


def test_the_probe_ends_in_time_whatever_the_server_does():
    class Quick(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200 if self.path == "/whl/" else 404)
            self.end_headers()
            self.wfile.write(b"torch-2.15.0+cpu")

        def log_message(self, *args):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Quick) as server, socket.create_server(("127.0.0.1", 0)) as silent:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        assert tool.answers(f"http://127.0.0.1:{server.server_port}/whl/")
        assert not tool.answers(f"http://127.0.0.1:{server.server_port}/gone/")
        server.shutdown()
        thread.join()
        started = time.monotonic()
        assert not tool.answers(f"http://127.0.0.1:{silent.getsockname()[1]}/", timeout_s=0.2)
        assert time.monotonic() - started < 0.7
    assert not tool.answers(f"http://127.0.0.1:{server.server_port}/")  # closed by now


def test_the_probe_ends_in_time_when_the_server_drips():
    def drip(server, until):
        with server.accept()[0] as connection:
            while time.monotonic() < until:
                connection.sendall(b"H")
                time.sleep(0.05)

    with socket.create_server(("127.0.0.1", 0)) as server:
        started = time.monotonic()
        thread = threading.Thread(target=drip, args=(server, started + 0.9))
        thread.start()
        assert not tool.answers(f"http://127.0.0.1:{server.getsockname()[1]}/", timeout_s=0.2)
        assert time.monotonic() - started < 0.7
        thread.join()


# the whole way


@needs_sh
def test_the_first_set_up_installs_and_the_second_does_nothing(tree):
    said, calls = tree.set_up()
    assert said[0] == "torch: the cuda builds, no NVIDIA GPU, but PyTorch's CPU index did not answer within 3 s"
    assert sum("torch: " in line for line in said) == 1
    assert "  Downloading torch-2.15.0-cp311-linux_x86_64.whl (539.1 MB)" in said
    assert calls[0].startswith("-m venv --clear ")
    assert [call.split("--disable-pip-version-check ")[1] for call in calls if "pip install" in call] == [
        "-r requirements.txt"
    ]
    assert len(tree.stamp()) == 2
    assert not (tree.env / "tmp").exists()

    started = time.monotonic()
    assert tree.set_up() == ([], [])
    assert tree.set_up(TORCH="cuda") == ([], [])
    assert time.monotonic() - started < 0.5


@needs_sh
def test_the_cpu_builds_come_from_their_index_as_one_pair(tree, monkeypatch):
    machine(monkeypatch, index=True)
    said, calls = tree.set_up()
    assert said[0].startswith("torch: the cpu builds, there is no NVIDIA GPU")
    first, second = [call.split("--disable-pip-version-check ")[1] for call in calls if "pip install" in call]
    assert first.startswith(f"--index-url {tool.CPU_INDEX} torch==")
    assert "torchvision==" in first
    assert second == "-r requirements.txt"
    assert tree.stamp()[1] == "cpu"
    assert tree.set_up() == ([], [])


@needs_sh
def test_a_cpu_index_without_the_pair_falls_back_unless_it_was_asked_for(tree, monkeypatch):
    machine(monkeypatch, index=True)
    tree.fail("cpu", "ERROR: No matching distribution found for torchvision==0.29.2")
    with pytest.raises(tool.SetupError, match="there is no build"):
        tree.set_up(TORCH="cpu")
    said, _ = tree.set_up()
    assert any(line.startswith("torch: the cuda builds after all; from PyTorch's CPU index:") for line in said)
    assert tree.stamp()[1] == "cuda"


@needs_sh
def test_changed_requirements_keep_the_torch_that_fits(tree, monkeypatch):
    machine(monkeypatch, index=True)
    tree.set_up()
    machine(monkeypatch, index=False)
    with (tree.root / "requirements.txt").open("a") as file:
        file.write("one-more\n")
    said, calls = tree.set_up()
    assert said[0] == "torch: kept, torch 2.15.0+cpu is in .venv already"
    assert not any("venv" in call.split()[1] for call in calls)
    assert sum("pip install" in call for call in calls) == 1
    assert tree.stamp()[1] == "cpu"


@needs_sh
def test_torch_by_hand_exchanges_the_builds_in_a_fresh_environment(tree):
    tree.set_up()
    said, calls = tree.set_up(TORCH="cpu")
    assert said[0] == "torch: the cpu builds, TORCH=cpu says so"
    assert any(call.startswith("-m venv --clear") for call in calls)
    assert tree.stamp()[1] == "cpu"
    assert tree.set_up() == ([], [])


@needs_sh
def test_an_interrupted_set_up_goes_on_next_time(tree):
    def stop(line):
        if "Downloading" in line:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tool.set_up(tree.root, {}, stop)
    _, calls = tree.set_up()
    assert any("pip install" in call for call in calls)
    assert len(tree.stamp()) == 2


@needs_sh
def test_a_set_up_that_failed_half_way_is_not_taken_for_the_one_before(tree):
    tree.set_up()
    before = (tree.root / "requirements.txt").read_text()
    (tree.root / "requirements.txt").write_text(before + "one-more\n")
    tree.fail("cuda", "ERROR: anything")
    with pytest.raises(tool.SetupError):
        tree.set_up()
    (tree.home / "fail-cuda").unlink()
    (tree.root / "requirements.txt").write_text(before)
    _, calls = tree.set_up()
    assert any("pip install" in call for call in calls)


@needs_sh
@pytest.mark.parametrize("damage", ["half-written package", "no python", "another python"])
def test_an_environment_that_cannot_be_used_is_made_again(tree, damage):
    tree.set_up()
    (tree.env / ".d2lite-stamp").unlink()
    python = tree.env / "bin" / "python"
    if damage == "half-written package":
        next(tree.env.glob("lib/*/*/torch-*/RECORD")).unlink()
    elif damage == "no python":
        python.unlink()
    else:
        python.write_text("#!/bin/sh\necho 3 8\n")
    _, calls = tree.set_up()
    assert any(call.startswith("-m venv --clear") for call in calls)
    assert len(tree.stamp()) == 2


# the files beside it


def requirements():
    lines = [line.split("#")[0].strip() for line in (ROOT / "requirements.txt").read_text().splitlines()]
    return [Requirement(line) for line in lines if line and not line.startswith("-")]


def test_requirements_hold_one_pair_and_an_upper_bound_for_the_rest():
    exact = [requirement for requirement in requirements() if requirement.name.startswith("torch")]
    assert sorted(requirement.name for requirement in exact) == ["torch", "torchvision"]
    assert all(
        [s.operator for s in requirement.specifier] == ["=="] and not requirement.marker for requirement in exact
    )
    for requirement in requirements():
        if not requirement.name.startswith("torch"):
            assert {s.operator for s in requirement.specifier} == {">=", "<"}, requirement


def test_what_the_package_declares_is_what_is_installed():
    text = (ROOT / "pyproject.toml").read_text()
    declared = re.findall(r'"([a-z-]+)>=[\d.]+"', text.split("[tool.")[0].split("[project]")[1])
    assert set(declared) == {requirement.name for requirement in requirements()}
    least = dict(re.findall(r'"([a-z-]+)>=([\d.]+)"', text.split("\nbook = ")[1].split("\n")[0]))
    (pinned,) = [str(r.specifier).removeprefix("==") for r in requirements() if r.name == "torch"]
    assert Version(pinned) >= Version(least["torch"])  # what the last chapters need
    assert '"-e ."' not in text
    assert "-e ." in (ROOT / "requirements.txt").read_text().splitlines()


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_lab_sets_up_and_opens_the_book_on_loopback_only():
    shown = subprocess.run(
        ["make", "-n", "lab", "ARGS=--no-browser"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert re.search(r"tools/setup_env\.py\n.*lab book .*/index\.ipynb .*--ip=127\.0\.0\.1.* --no-browser", shown)
    assert "token" not in shown.lower()  # Jupyter makes its own


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_ci_run_is_a_sound_script():
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    subprocess.run(["bash", "-n", str(script)], check=True)
    calls = [line for line in script.read_text().splitlines() if line.startswith("make ")]
    assert calls == ["make lint", "make test", "make test-slow", "make wheels", "make packages"]
