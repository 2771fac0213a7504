"""The pretence is for a complete process, so what must be true of it is tested in one of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from d2lite.pretend_gpus import pretend_gpus_environment

HERE = Path(__file__).parent


@pytest.mark.slow
def test_pretend_gpus_are_as_strict_as_real_ones():
    env = {**os.environ, **pretend_gpus_environment(2), "D2LITE_QUICK": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n0", HERE / "gpu_checks.py"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=240, cwd=HERE.parents[1])
    assert done.returncode == 0, done.stdout + done.stderr
