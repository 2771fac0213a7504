"""README: one screen, and ten lines of Python that run."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
(PYTHON,) = re.findall(r"```python\n(.*?)```", README, re.S)


def test_it_is_four_kilobytes_at_most():
    assert len(README.encode()) <= 4096


def test_it_shows_what_the_kit_was_asked_for():
    for name in ("try_all_gpus", "split_batch", "Accumulator", "Timer", "Animator", "Panel(train)", "train(num_gpus=2"):
        assert name in PYTHON


@pytest.mark.slow
def test_its_python_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("D2LITE_QUICK", "1")
    done = subprocess.run([sys.executable, "-c", PYTHON], cwd=tmp_path, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
