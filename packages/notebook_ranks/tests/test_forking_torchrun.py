"""torchrun_forks: the ranks are forks of torchrun, and a script runs in them as in programs of their own."""

import importlib
import os
import subprocess
import sys

import pytest

from notebook_ranks import torchrun_forks

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


@pytest.fixture
def no_gpus(monkeypatch):
    monkeypatch.setattr(importlib.import_module("notebook_ranks.forking_torchrun"), "num_gpus", lambda: 0)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the ranks are programs")
def test_the_ranks_are_forks_and_run_the_script(no_gpus, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", script, "word"]
    env = os.environ | torchrun_forks()
    ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=100)
    assert ended.returncode == 0, ended.stderr
    assert sorted(ended.stdout.splitlines()) == [f"{rank} 2 __main__ ['word'] 1 True" for rank in (0, 1)]


def test_ranks_are_programs_where_a_fork_is_not_safe(no_gpus, monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    assert torchrun_forks()["PET_START_METHOD"] == "fork"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert torchrun_forks() == {}
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(importlib.import_module("notebook_ranks.forking_torchrun"), "num_gpus", lambda: 1)
    assert torchrun_forks() == {}
