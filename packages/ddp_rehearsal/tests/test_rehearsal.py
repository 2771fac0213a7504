"""Rehearsals of scripts: right ones have no finding, each bug is named, and nothing is left behind."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from d2lite import __main__ as command
from ddp_rehearsal import rehearse, report_text
from ddp_rehearsal.pretend_gpus import pretend_gpus_environment
from ddp_rehearsal.rank_process import empty_terminal
from notebook_ranks.tempdir import sweep_tempdirs
from packages.ddp_rehearsal.tests.bugs import BUGS, SCRIPTS

PATIENCE_S = 3  # enough here: what hangs is all that runs
pytestmark = pytest.mark.skipif(os.name == "nt", reason="ranks need Linux or macOS")


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path, monkeypatch):
    """A rehearsal leaves no process and no folder; the scripts write into the test's own folder."""
    monkeypatch.chdir(tmp_path)
    before = {process.pid for process in psutil.process_iter()}
    folders = folders_of_pools()  # of pools that other tests keep
    yield
    assert folders_of_pools() <= folders
    mine = [p for p in psutil.process_iter(["cmdline"]) if p.pid not in before and is_a_rank(p)]
    assert mine == []


def folders_of_pools():
    return set(Path(tempfile.gettempdir()).glob("notebook-ranks-*"))


def is_a_rank(process):
    return "ddp_rehearsal.fork_ranks" in (process.info["cmdline"] or ()) and is_mine(process)


def is_mine(process):
    try:
        return process.environ().get("TMPDIR") == tempfile.gettempdir() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(path.stem for path in SCRIPTS.glob("*.py")))
def test_a_right_script_has_no_finding(name):
    found = rehearse(str(SCRIPTS / f"{name}.py"), gpus=2)
    assert found.exit_code == 0 and not found.error and found.findings == [], report_text(found)
    assert found.steps >= 5


@pytest.mark.slow
def test_ranks_that_a_script_spawns_are_observed_on_real_gpus_too(tmp_path, monkeypatch):
    """The script stays on the CPU: the rehearsal alone takes the GPUs for real, and spawns new processes."""
    text = (SCRIPTS / "spawned.py").read_text(encoding="utf-8")
    for gpu, cpu in (("nccl", "gloo"), (".to(rank)", ""), (", device_ids=[rank]", ""), ("    torch.cuda.set_de", "# ")):
        assert gpu in text
        text = text.replace(gpu, cpu)
    script = tmp_path / "train.py"
    script.write_text(text.replace("torch.cuda.device_count()", "2"), encoding="utf-8")
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    found = rehearse(str(script), gpus=2)
    assert found.are_real and found.steps == 10 and found.findings == [], report_text(found)
    assert [note.kind for note in found.notes] == ["devices"]
    script.write_text(script.read_text().replace("    dist.destroy_process_group()", "    raise KeyError(rank)"))
    found = rehearse(str(script), gpus=2)
    assert found.findings[0].kind == "error" and found.findings[0].place[1] == 30, report_text(found)


@pytest.mark.slow
def test_a_script_for_more_gpus_than_there_are_is_not_accused(tmp_path):
    text = (SCRIPTS / "spawned.py").read_text(encoding="utf-8")
    script = tmp_path / "train.py"
    script.write_text(text.replace("torch.cuda.device_count()", "3"), encoding="utf-8")
    found = rehearse(str(script), gpus=2)
    assert found.exit_code == 2 and "on 2 pretend GPUs" in report_text(found), report_text(found)
    assert found.error.startswith("the script starts 3 ranks, and there is --gpus 2: try --gpus 3. ")
    assert rehearse(str(script), gpus=3).exit_code == 0
    found = rehearse(str(SCRIPTS / "one_process.py"), gpus=1)
    assert found.exit_code == 2 and "id" in found.error, report_text(found)
    script.write_text(text.replace(".to(rank)", ".to(rank + 1)", 1), encoding="utf-8")
    found = rehearse(str(script), gpus=2)
    assert found.exit_code == 1 and found.findings[0].kind == "devices", report_text(found)


ON_ONE_CORE = """
import os, subprocess, sys, time
from ddp_rehearsal.rank_process import busy_s
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(12)]
time.sleep(1)
began, before = time.monotonic(), busy_s()
while time.monotonic() < began + 2:
    pass
print(busy_s() - before)
for other in others:
    other.kill()
before = busy_s()
time.sleep(2)
print(busy_s() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/schedstat"), reason="tells how long a thread waits for a core")
def test_a_rank_that_gets_no_core_is_not_idle():
    command = [sys.executable, "-c", ON_ONE_CORE]
    computes, sleeps = map(float, subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    assert computes > 1.0 and sleeps < 1.0


@pytest.mark.slow
def test_updates_that_a_grad_scaler_leaves_out_are_no_accumulation():
    found = rehearse(str(SCRIPTS / "mixed_precision.py"), gpus=2, steps=1)
    assert found.steps == 1 and "backward passes" not in report_text(found)


@pytest.mark.slow
@pytest.mark.parametrize("name", BUGS)
def test_a_bug_is_named(name, tmp_path):
    bug = BUGS[name]
    path = bug.write(tmp_path)
    found = rehearse(str(path), gpus=bug.gpus, patience_s=PATIENCE_S, same=bug.same)
    assert len(found.findings) == found.exit_code == bug.is_sure, report_text(found)
    finding = next(finding for finding in found.findings or found.notes if bug.words in finding.words)
    assert bug.words in finding.words and (finding.kind, finding.ranks) == (bug.kind, bug.ranks)
    assert finding.step == bug.step
    if bug.line:
        file, line, _ = finding.place
        assert Path(file).name == path.name and bug.line in path.read_text().splitlines()[line - 1]


@pytest.mark.slow
@pytest.mark.parametrize("gpus", [1, 2, 4])
def test_a_right_script_is_the_same_on_any_number_of_gpus(gpus):
    script = str(SCRIPTS / "batch_size.py")
    found = rehearse(script, ["--lr", "0.1"], gpus=gpus, same="--batch-size {32/k}")
    assert found.exit_code == 0 and found.same_as_one and found.findings == [], report_text(found)
    assert "The same as on 1 GPU in 8 steps" in found.facts[0]
    assert f"batch_size.py --lr 0.1 --batch-size {32 // gpus} on {gpus} pretend" in report_text(found)


@pytest.mark.slow
def test_what_is_wrong_without_a_comparison_comes_first(tmp_path):
    found = rehearse(str(BUGS["no DDP"].write(tmp_path)), same="")
    assert [finding.kind for finding in found.findings] == ["copies"] and found.same_as_one is False
    assert found.facts[0] == "Not compared with 1 GPU: mend what was found first."


@pytest.mark.slow
def test_a_search_is_not_called_the_same_although_rank_0_is():
    found = rehearse(str(SCRIPTS / "ensemble.py"), same="")
    assert found.findings == [] and found.same_as_one is False and found.exit_code == 1
    assert found.facts[0].startswith("The same as on 1 GPU in 6 steps") and "rank 0 alone" in found.facts[0]


@pytest.mark.slow
def test_different_minibatches_are_not_called_the_same(capsys):
    with pytest.raises(SystemExit) as end:
        command.main(["rehearse", "--gpus", "2", "--same", "--batch-size 16", "--json", "r.json", "--html", "r.html",
                      str(SCRIPTS / "batch_size.py")])  # fmt: skip
    assert end.value.code == 1
    text, report, page = capsys.readouterr().out, json.loads(Path("r.json").read_text()), Path("r.html").read_text()
    assert "not shown to be the same as on 1 GPU" in text and "not shown to be the same as on 1 GPU" in page
    assert (report["exit_code"], report["same_as_one"], report["findings"]) == (1, False, [])
    for said in (text, report["notes"][0]["words"], page):
        assert "did not see the same examples in step 1, so they cannot be compared: 16 on 1 GPU, and 32 on 2" in said


@pytest.mark.slow
def test_a_script_that_cannot_be_run(tmp_path):
    script = tmp_path / "train.py"
    for text, said in (
        ("import no_such_module\n", "ModuleNotFoundError"),
        ("import sys\nsys.exit(2)\n", "SystemExit: 2"),
    ):
        script.write_text(text)
        found = rehearse(str(script))
        assert found.exit_code == 2 and said in found.error and "could not be run" in report_text(found)


@pytest.mark.slow
def test_the_command_writes_reports_and_gives_the_script_its_arguments(tmp_path, capsys):
    script = tmp_path / "train.py"
    script.write_text(
        "import os, sys\nprint(sys.argv[1:], os.environ['RANK'], os.environ['WORLD_SIZE'], __name__)\n"
        "print('<script>alert(1)</script>')\n"
    )
    with pytest.raises(SystemExit) as end:
        command.main(["rehearse", "--gpus", "2", "--json", "r.json", "--html", "r.html", str(script), "--gpus", "7"])
    assert end.value.code == 2  # nothing was checked
    assert "No update was seen" in capsys.readouterr().out
    report = json.loads(Path("r.json").read_text())
    assert (report["exit_code"], report["gpus"], report["findings"]) == (2, 2, [])
    page = Path("r.html").read_text()
    assert "[&#x27;--gpus&#x27;, &#x27;7&#x27;] 1 2 __main__" in page
    assert "&lt;script&gt;alert(1)" in page and "<script" not in page


@pytest.mark.slow
@pytest.mark.parametrize("variables", [pretend_gpus_environment(1), {"CUDA_VISIBLE_DEVICES": ""}])
def test_a_machine_with_fewer_gpus_than_are_wanted_or_none_that_is_visible(variables):
    env = with_path() | variables
    command = [sys.executable, "-m", "d2lite", "rehearse", "--gpus", "2", "--steps", "3", str(SCRIPTS / "by_hand.py")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "on 2 pretend GPUs, 3 steps" in done.stdout, done.stdout + done.stderr


@pytest.mark.slow
def test_control_c_ends_all_ranks(tmp_path):
    process = sleeping_rehearsal(tmp_path)
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130


STARTS_ITS_OWN = """
import time
import torch
import torch.multiprocessing as mp

def sleep(rank):
    torch.cuda.set_device(rank)
    open("began", "a").close()
    time.sleep(600)

if __name__ == "__main__":
    mp.spawn(sleep, nprocs=2)
"""


@pytest.mark.slow
def test_a_killed_command_leaves_no_process_that_its_script_has_started(tmp_path):
    process = sleeping_rehearsal(tmp_path, STARTS_ITS_OWN)
    started = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait(20)
    _, alive = psutil.wait_procs(started, timeout=20)
    sweep_tempdirs()  # as the next start of a pool or a rehearsal does
    assert len(started) >= 4 and alive == []


SERVICE = """
import os, subprocess, sys, time

def note(pid):
    open(f"service-{pid}", "w").close()

note(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True).pid)
if os.fork() == 0:  # a daemon, as loggers start one
    os.setsid()
    if os.fork() == 0:
        note(os.getpid())
        time.sleep(600)
    os._exit(0)
os.wait()
while len([name for name in os.listdir() if name.startswith("service-")]) < 4:
    time.sleep(0.1)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs a subreaper")
@pytest.mark.parametrize("goes_on", [False, True])
def test_what_a_script_has_started_in_a_session_of_its_own_ends_with_the_rehearsal(tmp_path, monkeypatch, goes_on):
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "train.py"
    script.write_text(SERVICE + "time.sleep(600)\n" * goes_on)
    rehearse(str(script), limit_s=40 if goes_on else 90)
    services = [int(path.name.partition("-")[2]) for path in tmp_path.glob("service-*")]
    assert len(services) == 4 and not any(map(psutil.pid_exists, services))


@pytest.mark.slow
def test_a_killed_command_leaves_no_rank(tmp_path):
    folders = folders_of_pools()
    process = sleeping_rehearsal(tmp_path)
    ranks = [p for p in psutil.Process(process.pid).children(recursive=True)]
    process.kill()
    process.wait(20)
    _, alive = psutil.wait_procs(ranks, timeout=20)
    left = folders_of_pools() - folders
    sweep_tempdirs()  # as the next start of a pool or a rehearsal does
    assert len(ranks) == 3 and alive == []
    assert len(left) == 1 and folders_of_pools() <= folders


SLEEPS = "import time\nopen('began', 'a').close()\ntime.sleep(600)\n"


def sleeping_rehearsal(folder, text=SLEEPS):
    """Start the command with a script that sleeps, and return its process once the script has begun."""
    script = folder / "train.py"
    script.write_text(text)
    process = subprocess.Popen([sys.executable, "-m", "d2lite", "rehearse", str(script)], env=with_path())
    until = time.monotonic() + 60
    while not Path("began").exists() and time.monotonic() < until:
        time.sleep(0.1)
    return process


def with_path():
    return {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}


def test_a_terminal_for_a_rank_has_a_size_and_no_input():
    terminal = empty_terminal(90, 30)
    assert os.get_terminal_size(terminal) == (90, 30)
    assert [os.read(terminal, 1) for _ in range(3)] == [b""] * 3
    os.close(terminal)


ASKS_FOR_THE_SIZE = """
import os
size = os.popen("stty size").read().split()
assert size == ["30", "90"], size
input()
"""


@pytest.mark.slow
def test_ranks_have_a_terminal_where_the_rehearsal_has_one(tmp_path):
    (tmp_path / "train.py").write_text(ASKS_FOR_THE_SIZE)
    command, terminal = [sys.executable, "-m", "ddp_rehearsal", "train.py"], empty_terminal(90, 30)
    done = subprocess.run(command, stdin=terminal, env=with_path(), capture_output=True, text=True, timeout=300)
    os.close(terminal)
    assert done.returncode == 2 and "could not be run. EOFError" in done.stdout, done.stdout + done.stderr


@pytest.mark.slow
def test_the_limit_ends_a_script_that_goes_on(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("import time\nwhile True:\n    time.sleep(0.01)\n")
    found = rehearse(str(script), limit_s=8)
    assert found.exit_code == 2 and "ended after 8 s" in found.notes[0].words


def test_wrong_arguments(tmp_path, capsys):
    script = tmp_path / "train.py"
    script.write_text("")
    with pytest.raises(FileNotFoundError, match="expected the path of a Python file"):
        rehearse("no.py")
    for wrong, error in (({"gpus": 0}, ValueError), ({"gpus": 65}, ValueError), ({"steps": 1.5}, TypeError),
                         ({"patience_s": 0}, ValueError), ({"allow": ["copy"]}, ValueError),
                         ({"limit_s": "1"}, TypeError)):  # fmt: skip
        with pytest.raises(error, match=next(iter(wrong))):
            rehearse(str(script), **wrong)
    with pytest.raises(ValueError, match="same: expected a whole number, got {10/k} = 10/3"):
        rehearse(str(script), gpus=3, same="{10/k}")
    with pytest.raises(SystemExit) as end:
        command.main(["rehearse", "--same", "-n {k", str(script)])
    assert end.value.code == 2 and "expected a } for each {" in capsys.readouterr().err
    with pytest.raises(SystemExit) as end:
        command.main(["rehearse", "no.py"])
    assert end.value.code == 2 and "no.py" in capsys.readouterr().err
