"""The plugin of pytest, on test files of its own in a process of their own."""

import os
import subprocess
import sys

import pytest

TESTS = """
import pytest
import torch

@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_cuda():
    assert torch.cuda.device_count() == 2 and torch.ones(2, device="cuda:1").sum().item() == 2

def test_other_devices_are_refused():
    with pytest.raises(RuntimeError, match="same device"):
        torch.ones(1, device="cuda").add(torch.ones(3))

def test_not_pretended():
    torch.cuda.CUDAGraph()

@pytest.mark.needs_real_gpu(reason="it measures")
def test_real():
    assert False
"""
ONE = """
import os
import pytest
import torch

@pytest.mark.pretend_gpus(3)
def test_three():
    assert torch.cuda.device_count() == 3

@pytest.mark.pretend_gpus(1)
def test_fails():
    assert torch.cuda.device_count() == 3

@pytest.mark.pretend_gpus(1)
def test_ends():
    os._exit(7)

def test_none():
    assert torch.cuda.device_count() == 0
"""


def run(folder, text, *options):
    (folder / "test_it.py").write_text(text)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-rs",
        "-p",
        "ddp_rehearsal.pytest_plugin",
        "-p",
        "no:cacheprovider",
    ]
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run([*command, *options, "test_it.py"], cwd=folder, env=env, capture_output=True, text=True)


@pytest.mark.slow
def test_a_session_on_pretend_gpus(tmp_path):
    (tmp_path / "conftest.py").write_text("import torch\nassert torch.cuda.device_count() == 2  # when it is imported")
    done = run(tmp_path, TESTS, "--pretend-gpus", "2")
    assert "2 passed, 2 skipped" in done.stdout, done.stdout + done.stderr
    assert "CUDA graphs are not pretended" in done.stdout and "it measures" in done.stdout


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Windows has no fork")
def test_single_tests_in_forks(tmp_path):
    done = run(tmp_path, ONE)
    assert "2 failed, 2 passed" in done.stdout, done.stdout + done.stderr
    assert "assert 1 == 3" in done.stdout and "the process of this test ended (7)" in done.stdout


@pytest.mark.slow
def test_a_wrong_number(tmp_path):
    done = run(tmp_path, TESTS, "--pretend-gpus", "-1")
    assert done.returncode == 4 and "--pretend-gpus: k: expected" in done.stderr
