"""run_torchrun: the ranks are forks of torchrun, a script runs in them as in programs, and they end with it."""

import importlib
import subprocess
import sys
import time

import psutil
import pytest

from notebook_ranks import run_torchrun

MODULE = importlib.import_module("notebook_ranks.torchrun")
SCRIPT = """
import sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
is_fork = "torch.distributed.run" in open("/proc/self/cmdline").read()
line = f"{dist.get_rank()} {int(total)} {__name__} {sys.argv[1:]} {torch.get_num_threads()} {is_fork}\\n"
print(line, end="", flush=True)  # with its end in one piece: with PYTHONUNBUFFERED the lines of two ranks would mix
dist.barrier()
"""
HANGS = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
open(f"rank-{os.getpid()}", "w").close()
dist.all_reduce(torch.ones(1)) if dist.get_rank() == 0 else dist.recv(torch.ones(1), 0)
"""
ON_TWO = ["--standalone", "--nproc-per-node=2"]


@pytest.fixture
def no_gpus(monkeypatch):
    monkeypatch.setattr(MODULE, "num_gpus", lambda: 0)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the ranks are programs")
def test_the_ranks_are_forks_and_run_the_script(no_gpus, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    ended = run_torchrun([*ON_TWO, script, "word"], timeout_s=100)
    assert ended.returncode == 0, ended.stderr
    assert sorted(ended.stdout.splitlines()) == [f"{rank} 2 __main__ ['word'] 1 True" for rank in (0, 1)]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no ranks")
def test_ranks_that_hang_end_at_the_time_out(no_gpus, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (script := tmp_path / "script.py").write_text(HANGS)
    with pytest.raises(subprocess.TimeoutExpired):
        run_torchrun([*ON_TWO, script], timeout_s=25)
    pids = [int(path.name.partition("-")[2]) for path in tmp_path.glob("rank-*")]
    until = time.monotonic() + 10
    while any(map(psutil.pid_exists, pids)) and time.monotonic() < until:
        time.sleep(0.1)
    assert len(pids) == 2 and not any(map(psutil.pid_exists, pids))


def test_ranks_are_programs_where_a_fork_is_not_safe(no_gpus, monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    assert MODULE._forks()["PET_START_METHOD"] == "fork"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert MODULE._forks() == {}
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(MODULE, "num_gpus", lambda: 1)
    assert MODULE._forks() == {}
