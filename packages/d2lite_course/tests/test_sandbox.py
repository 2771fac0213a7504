"""The sandbox: what is seen in it, what can be written, and what is said where there is none."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace

import psutil
import pytest

from d2lite_course import grade, sandboxed_run
from d2lite_course import sandbox as sandbox_file
from d2lite_course.sandbox import USERS, Sandbox, no_sandbox, writable_folder
from d2lite_course.sandboxed_run import run_in_sandbox
from packages.d2lite_course.tests.notebooks import submission
from packages.d2lite_course.tests.sandboxes import BOX, WHY, needs_sandbox


def inside(tmp_path, code, box=BOX):
    """What Python prints in the sandbox, as JSON."""
    done = subprocess.run(
        box.command(str(tmp_path), ["-c", f"import json, os\n{code}"]),
        env=box.environment(str(tmp_path)),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
@needs_sandbox
def test_it_sees_python_and_the_package_and_can_write_one_folder(tmp_path):
    outside = [str(tmp_path), os.path.abspath("README.md"), os.path.expanduser("~/.bashrc"), "/etc/passwd"]
    shown = ["/", "/dev", "/usr", "/proc", sys.prefix, str(sandbox_file.PACKAGE)]
    code = f"""
seen = [path for path in {outside!r} if os.path.exists(path)]
written = [path for path in {shown!r} if os.access(path, os.W_OK)]
status = dict(line.split(":\\t") for line in open("/proc/self/status").read().splitlines() if line.startswith("Cap"))
open("{writable_folder()}/x", "w").write("y")
import d2lite_course.in_sandbox
print(json.dumps([seen, written, status["CapEff"], status["CapPrm"], sorted(os.environ), os.getcwd()]))"""
    code = f"import sys; sys.path[:0] = {sandbox_file.package_folders()!r}\n{code}"
    seen, written, effective, permitted, names, here = inside(tmp_path, code)
    assert seen == written == [] and int(effective, 16) == int(permitted, 16) == 0 and here == writable_folder()
    assert not {"PYTHONPATH", "SSH_AUTH_SOCK"}.intersection(names) and len(names) < 20


@needs_sandbox
@pytest.mark.skipif(getattr(os, "geteuid", lambda: 1)() != 0, reason="for root")
def test_root_becomes_another_user_each_time(tmp_path):
    code = "print(json.dumps([os.getuid(), os.getgid(), os.getgroups()]))"
    first, second = inside(tmp_path, code), inside(tmp_path, code)
    assert first[0] in USERS and second[0] in USERS and first[0] != second[0]
    assert first == [first[0], first[0], []]


@needs_sandbox
def test_its_folder_is_small(tmp_path):
    code = """
written = 0
try:
    with open("big", "wb") as file:
        for _ in range(100):
            written += file.write(bytes(2**20))
            file.flush()
except OSError:
    pass
print(written // 2**20)"""
    assert inside(tmp_path, code) in (63, 64)


@needs_sandbox
def test_a_folder_below_a_visible_one_is_hidden_if_it_has_answers_or_is_the_courses(tmp_path):
    shipped = str(sandbox_file.PACKAGE / "data" / "shipped")
    code = f"print(json.dumps(os.listdir({shipped!r})))"
    assert inside(tmp_path, code)
    assert inside(tmp_path, code, replace(BOX, hidden=(shipped, str(tmp_path)))) == []


@needs_sandbox
def test_it_ends_with_all_that_it_has_started(tmp_path):
    code = "import time, subprocess; subprocess.Popen(['sleep', '97531'], start_new_session=True); print(1, flush=True)"
    code += "; time.sleep(99)"
    process = subprocess.Popen(
        BOX.command(str(tmp_path), ["-c", code]), env=BOX.environment(str(tmp_path)), stdout=subprocess.PIPE
    )
    assert process.stdout.readline() == b"1\n"
    sandboxed_run._end_family(process)
    process.stdout.close()
    time.sleep(0.3)
    assert not any(
        "97531" in process.info["cmdline"] for process in psutil.process_iter(["cmdline"]) if process.info["cmdline"]
    )


@pytest.mark.skipif(not os.environ.get("CI"), reason="elsewhere the tests of the sandbox are skipped without one")
def test_there_is_a_sandbox_in_ci():
    assert BOX is not None, f"no sandbox: {WHY}"


def request(name="2.3", function="settings_for"):
    return {
        "name": name,
        "whole": False,
        "function": function,
        "cell": "exercise-3",
        "notebook": "02.ipynb",
        "observers": "",
        "cases": [[2, 3, 0.5]],
        "parameters": ["k", "batch_size", "lr"],
        "required": 3,
        "world_size": 1,
        "limit_s": 5.0,
    }


@pytest.mark.slow
@needs_sandbox
def test_processes_that_need_too_much_memory_together_are_ended(monkeypatch):
    monkeypatch.setattr(sandboxed_run, "MEMORY_BYTES_OF_ALL", 800 * 2**20)  # PyTorch alone takes 400 MB
    eater = "def settings_for(k, batch_size, lr):\n    x = bytearray(b'1' * 2**30)\n    while True: pass"
    found, _ = run_in_sandbox(
        BOX, {"a.ipynb": submission({"2.3": eater})}, [request(), request("2.9", "all_reduce_mean")]
    )
    assert found["2.3"].why == sandboxed_run.TOO_MUCH_MEMORY
    assert found["2.9"].got or found["2.9"].unfit  # the next one ran


@pytest.mark.slow
def test_without_a_sandbox_the_bounds_of_time_and_process_stay():
    loop = submission({"2.3": "def settings_for(k, batch_size, lr):\n    while True: pass"})
    found, unread = run_in_sandbox(no_sandbox(), {"a.ipynb": loop, "b.ipynb": "["}, [request()])
    assert found["2.3"].why == "it took longer than 5 s." and unread == [
        "b.ipynb: it is no notebook (JSONDecodeError)."
    ]
    right, _ = run_in_sandbox(no_sandbox(), {"a.ipynb": submission()}, [request()])
    assert right["2.3"].got == {(0, 0): {"tuple": [6, 1.0]}}


def test_where_no_sandbox_works_it_says_so_before_it_begins(tmp_path, monkeypatch):
    (tmp_path / "ann.ipynb").write_text("{}")
    (tmp_path / "exercises.json").write_text('{"chapters": {}, "exercises": {}}')
    monkeypatch.setitem(grade.__globals__, "find_sandbox", lambda: (None, "bwrap is not installed"))
    with pytest.raises(PermissionError, match="bwrap is not installed.*--unsafe-no-sandbox"):
        grade(tmp_path, tmp_path)
    said = []
    with pytest.raises(FileNotFoundError, match="expected a line of any text"):
        grade(tmp_path, tmp_path, sandbox=False, say=said.append)
    assert said[0].startswith("WITHOUT A SANDBOX")


def test_a_sandbox_that_does_not_work_is_not_used(monkeypatch):
    monkeypatch.setattr(sandbox_file, "_program", lambda name: "/nowhere")
    for name in ("bubblewrap", "unshare"):
        assert "/nowhere" in sandbox_file._tried(Sandbox(name, True))
    assert sandbox_file._tried(no_sandbox()) != ""  # it reaches this machine
