"""The build of real Horovod: what it lacks and where it fails is one line, and a finished build is kept."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import build_horovod  # noqa: E402

pytestmark = pytest.mark.slow


def test_what_the_build_lacks_is_said_in_one_line(monkeypatch, tmp_path):
    with pytest.raises(build_horovod.SetupError, match="no C.. compiler or no make.*apt install build-essential"):
        build_horovod.check_compiler(which=lambda name: None)
    monkeypatch.setattr(build_horovod.sysconfig, "get_paths", lambda: {"include": str(tmp_path)})
    with pytest.raises(build_horovod.SetupError, match="Python.h is missing.*python3-dev"):
        build_horovod.check_compiler(which=lambda name: f"/usr/bin/{name}")


def test_another_source_than_expected_is_not_patched_blindly(tmp_path):
    for name, old, _ in build_horovod.PATCHES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"before\n{old}\nafter\n")
    build_horovod.patch(tmp_path, 20)
    assert "set(CMAKE_CXX_STANDARD 20)" in (tmp_path / "horovod/torch/CMakeLists.txt").read_text()
    assert "set(Pytorch_CUDA FALSE)" in (tmp_path / "cmake/Modules/FindPytorch.cmake").read_text()
    with pytest.raises(build_horovod.SetupError, match="CMakeLists.txt lacks"):
        build_horovod.patch(tmp_path, 20)


def test_a_failing_step_ends_in_one_line_and_leaves_its_output(tmp_path, capsys):
    def step(code):
        with open(tmp_path / "build.log", "w") as log:
            build_horovod.step([sys.executable, "-c", code], "compiling", log)

    with pytest.raises(build_horovod.SetupError, match="^compiling failed, see above and .*build.log$"):
        step("print('error: no such header'); raise SystemExit(2)")
    assert "no such header" in capsys.readouterr().out and "no such header" in (tmp_path / "build.log").read_text()
    with pytest.raises(build_horovod.SetupError, match="pip cannot reach its package index"):
        step("print('NewConnectionError: refused'); raise SystemExit(1)")
    step("print('fine')")


@pytest.fixture
def half_built(monkeypatch, tmp_path):
    """A root whose build creates its environment and then fails at the first step; the commands that were begun."""
    begun = []

    def venv(command, check):
        (tmp_path / ".horovod").mkdir(exist_ok=True)
        (tmp_path / ".horovod" / ".d2lite-stamp").unlink(missing_ok=True)  # as venv --clear does

    def step(command, *rest):
        begun.append(command)
        raise build_horovod.SetupError("stands for any failure")

    monkeypatch.setattr(build_horovod, "check_compiler", lambda: None)
    monkeypatch.setattr(build_horovod, "step", step)
    monkeypatch.setattr(build_horovod.subprocess, "run", venv)
    return tmp_path, begun


def test_a_finished_build_is_kept_and_an_unfinished_or_outdated_one_is_made_again(half_built, monkeypatch):
    root, begun = half_built
    for times in (1, 2):
        with pytest.raises(build_horovod.SetupError):
            build_horovod.build(root, say=lambda line: None)
        assert len(begun) == times
    stamp = root / ".horovod" / ".d2lite-stamp"
    stamp.write_text(build_horovod.fingerprint(root, build_horovod.version("torch")))
    build_horovod.build(root)
    assert len(begun) == 2
    monkeypatch.setattr(build_horovod, "version", lambda name: "2.99.0")
    with pytest.raises(build_horovod.SetupError):
        build_horovod.build(root, say=lambda line: None)
    assert len(begun) == 3 and not stamp.exists()


def test_main_tells_a_failure_in_one_line(monkeypatch, capsys):
    def fail():
        raise build_horovod.SetupError("no compiler: get one")

    monkeypatch.setattr(build_horovod, "build", fail)
    assert build_horovod.main() == 1
    assert capsys.readouterr().err == "d2lite horovod: no compiler: get one\n"
