"""torchrun from a notebook: its ranks share what it has imported, and end with it."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from notebook_ranks.machine import num_gpus

__all__ = ["run_torchrun"]

END_S = 40.0  # torchrun gives its ranks 30 s


def run_torchrun(arguments: Sequence[str | Path], *, timeout_s: float) -> subprocess.CompletedProcess[str]:
    """Run torchrun with the Python of this process, and return how it ended, as `subprocess.run` does.

    At the time-out, or when the cell is stopped, torchrun is asked to end, and ends its ranks. `subprocess.run` would
    kill torchrun alone; ranks that wait for each other with gloo would wait on for half an hour. On Linux without GPUs
    the ranks are forks of torchrun. With the CUDA build of PyTorch 2.15 a rank then has 13 MB of its own when its
    script begins, instead of 308 MB (November 2026). Forks of a script that sets no seed draw the same random numbers.

    Args:
        arguments: those of torchrun: its options, the path of the script, and the script's own arguments.
        timeout_s: seconds after which it is ended.

    Raises:
        subprocess.TimeoutExpired: at the time-out.

    Example:
        >>> run_torchrun(["--standalone", "--nproc-per-node=2", "train.py"], timeout_s=100).returncode
        0
    """
    command = [sys.executable, "-m", "torch.distributed.run", *map(str, arguments)]
    env, pipe = os.environ | _forks(), subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=env) as process:
        try:
            out, err = process.communicate(timeout=timeout_s)
        finally:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(END_S)
                except subprocess.TimeoutExpired:
                    process.kill()
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def _forks() -> dict[str, str]:
    """Return environment variables with which torchrun forks its ranks, on Linux without GPUs; elsewhere {}.

    The first two are torchrun's options `--run-path` and `--start-method=fork`: it needs the script's whole path then.
    torchrun sets the number of threads itself, but a fork has read it before.
    """
    if sys.platform != "linux" or num_gpus():  # some libraries of macOS, and CUDA once it runs, do not survive a fork
        return {}
    return {"PET_RUN_PATH": "1", "PET_START_METHOD": "fork", "OMP_NUM_THREADS": "1"}
