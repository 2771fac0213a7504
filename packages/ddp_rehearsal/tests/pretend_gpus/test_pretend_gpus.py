"""The pretence is for a complete process, so what must be true of it is tested in processes of its own."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from ddp_rehearsal.pretend_gpus import pretend_gpus, pretend_gpus_environment, pretend_visible_gpus

HERE = Path(__file__).parent


def run(*command, k=2, **env):
    """Run Python with `k` pretend GPUs, or none, and return what it printed."""
    env = {**os.environ, **(pretend_gpus_environment(k) if k else {}), "D2LITE_QUICK": "1", **env}
    command = [sys.executable, *command]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=240, cwd=HERE.parents[3])
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return str(found.getsockname()[1])


@pytest.mark.slow
def test_pretend_gpus_are_as_strict_as_real_ones():
    files = [str(HERE / name) for name in ("gpu_checks.py", "script_checks.py")]
    run("-m", "pytest", "-q", "-p", "no:cacheprovider", "-n0", *files)


@pytest.mark.slow
def test_ranks_of_torchrun():
    port = f"--master-port={free_port()}"
    run("-m", "torch.distributed.run", "--nproc-per-node=2", port, str(HERE / "rank_checks.py"))


@pytest.mark.slow
def test_ranks_of_spawn():
    run(str(HERE / "rank_checks.py"), free_port())


@pytest.mark.slow
def test_the_verb_switches_on_this_process_and_those_that_it_starts():
    code = """
import os, subprocess, sys
import torch
import d2lite
from ddp_rehearsal.pretend_gpus import pretend_gpus
assert torch.cuda.device_count() == 0
pretend_gpus(3)
assert d2lite.num_gpus() == 3 and torch.ones(1, device="cuda:2").is_cuda
with d2lite.Workers(2) as workers:
    assert workers.run(lambda: torch.cuda.device_count()) == [3, 3]
child = [sys.executable, "-c", "import torch; print(torch.cuda.device_count())"]
for hidden, count in (({}, b"3"), ({"CUDA_VISIBLE_DEVICES": "0"}, b"1")):
    assert subprocess.run(child, capture_output=True, env=os.environ | hidden).stdout.strip() == count
"""
    run("-c", code, k=0)


@pytest.mark.slow
def test_counting_what_autograd_keeps_changes_no_operator():
    pytest.importorskip("expecttest")  # PyTorch's samples need it
    assert " operators: 0 differ" in run(str(HERE / "operator_samples.py"), k=0)


@pytest.mark.parametrize("make", [pretend_gpus, pretend_gpus_environment])
@pytest.mark.parametrize(("k", "error"), [(0, ValueError), (-1, ValueError), ("2", TypeError), (1.5, TypeError)])
def test_the_number_of_gpus_is_checked(make, k, error):
    with pytest.raises(error, match="k: expected a positive whole number, got .* It is the number of GPUs"):
        make(k)


def test_real_gpus_are_not_hidden(monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    with pytest.raises(RuntimeError, match=r"expected a process without GPUs, got one with 2 real GPU\(s\), k = 2"):
        pretend_gpus(2)


def test_gpus_that_are_hidden_stay_hidden(monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(
        RuntimeError, match=r"expected GPUs that CUDA_VISIBLE_DEVICES names, got k = 2 and ''. Unset it"
    ):
        pretend_gpus(2)
    monkeypatch.setenv("D2LITE_PRETEND_GPUS", "2")
    pretend_visible_gpus()  # none of the two
    monkeypatch.setenv("D2LITE_PRETEND_GPUS", "two")
    with pytest.raises(ValueError, match="D2LITE_PRETEND_GPUS: expected a number of GPUs, got 'two'"):
        pretend_visible_gpus()


def test_the_environment_of_a_child_names_the_folder_once(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["/one", str(HERE)]))
    first = pretend_gpus_environment(2)
    assert first["D2LITE_PRETEND_GPUS"] == "2"
    assert first["PYTHONPATH"].split(os.pathsep)[0].endswith("at_start") and str(HERE) in first["PYTHONPATH"]
    monkeypatch.setenv("PYTHONPATH", first["PYTHONPATH"])
    assert pretend_gpus_environment(2) == first
