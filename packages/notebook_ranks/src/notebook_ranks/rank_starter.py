"""The parent of a pool's ranks: it starts them, and then becomes the program that watches them.

On Linux it imports PyTorch once and forks itself, so that the ranks share the memory of all that was imported. That is
safe only because it computes nothing and therefore has one thread: a fork would leave the locks of other threads locked
for ever. Elsewhere (some libraries of macOS do not survive a fork) each rank is a new interpreter. This program
is started by its path, so that Python does not search the working folder.
"""

import contextlib
import gc
import importlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence

__all__ = ["PR_SET_CHILD_SUBREAPER", "main", "prctl"]

REAPER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "reaper.py")
SIGNALS = {signal.SIGTERM, signal.SIGCHLD}
THREADS = "/proc/self/task"  # one entry per thread
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h


def main(start_method: str, num_gpus: int, preload: Sequence[str], control: int, folder: str, pipes: list[int]) -> None:
    """Start one rank for each of `pipes`, and become `notebook_ranks.reaper`.

    `start_method` is "fork" or "spawn", `num_gpus` is the machine's, `preload` names the modules that forks share, and
    `folder` is the pool's; `control` and `pipes` are inherited descriptors.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # only the notebook handles an interrupt of the notebook
    if start_method == "fork":
        _preload(num_gpus, preload)
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)  # the notebook may ignore them, and what is ignored is inherited
    prctl(PR_SET_CHILD_SUBREAPER, 1)  # the children of a rank that ends become the reaper's
    start = _fork_rank if start_method == "fork" and len(os.listdir(THREADS)) == 1 else _spawn_rank
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # so far SIGTERM ended this process; the reaper waits for both
    pids = [start(rank, control, folder, pipes) for rank in range(len(pipes))]
    for pipe in pipes:
        os.close(pipe)  # only the rank has its end of the pipe: the notebook sees it close when the rank ends
    os.execv(sys.executable, [sys.executable, "-I", "-S", REAPER, str(control), folder, *map(str, pids)])


def _preload(num_gpus: int, preload: Sequence[str]) -> None:
    """Import what the ranks need, and compute nothing. A module that fails to import fails again where it is used."""
    gc.disable()  # faster, and the collector does not write to pages that the ranks share
    import torch

    import notebook_ranks.rank  # noqa: F401

    for module in preload:
        with contextlib.suppress(Exception):
            importlib.import_module(module)

    if not num_gpus:
        # The first optimizer of a process imports the compiler. The ranks share it if it is imported here. Measured on
        # the CPU build of torch 2.13, November 2026, medians of 9 pools of 2 ranks on 2 cores: the start takes 1.9 s
        # instead of 1.1 s, the first training run with DDP 3.8 s instead of 6.4 s, and the peak of kernel and ranks
        # (PSS) is 662 MB instead of 774 MB.
        torch.optim.SGD([torch.zeros(1)])
    gc.freeze()


def _fork_rank(rank: int, control: int, folder: str, pipes: list[int]) -> int:
    from notebook_ranks.forked import run_in_fork

    return run_in_fork(_become_rank, rank, control, folder, pipes)


def _become_rank(rank: int, control: int, folder: str, pipes: list[int]) -> None:
    """Run rank `rank` in a fork of the starter."""
    from notebook_ranks.output import append_output
    from notebook_ranks.rank import main as rank_main
    from notebook_ranks.rank_seed import seed_rank

    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # the rank ends when the starter ends
    gc.enable()
    os.close(control)
    for other in pipes:
        if other != pipes[rank]:
            os.close(other)
    append_output(_output_path(folder, rank))
    seed_rank()
    rank_main(pipes[rank])


def _spawn_rank(rank: int, control: int, folder: str, pipes: list[int]) -> int:
    command = [sys.executable, "-m", "notebook_ranks.rank", str(pipes[rank])]
    with open(_output_path(folder, rank), "ab") as output:  # append: a rank may empty it
        return subprocess.Popen(
            command,
            stdout=output,
            stderr=output,
            pass_fds=[pipes[rank]],
            start_new_session=True,  # a group of processes that the reaper can end
        ).pid


def prctl(option: int, value: int) -> None:
    """Set an attribute of this process, on Linux."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _output_path(folder: str, rank: int) -> str:
    """Return the file for what a rank writes to descriptors 1 and 2, past Python's own streams."""
    return os.path.join(folder, f"rank-{rank}.txt")


if __name__ == "__main__":
    # its modules have names such as `events`
    sys.path[:] = [path for path in sys.path if path != os.path.dirname(__file__)]
    start_method, gpus, preload, control, folder, *pipes = sys.argv[1:]
    main(start_method, int(gpus), preload.split(), int(control), folder, [int(pipe) for pipe in pipes])
