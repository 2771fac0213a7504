"""The parent of a pool's ranks: it starts them, and then becomes the program that watches them.

On Linux it imports PyTorch once and forks itself: the ranks share the memory of all that was imported. That is safe
only because it computes nothing, and so has no second thread, whose locks a fork would leave locked for ever.
Elsewhere (macOS has libraries that no fork survives) each rank is an interpreter of its own. It is started by its
path: as a module it would import PyTorch first.
"""

import contextlib
import gc
import os
import signal
import subprocess
import sys
import traceback

__all__ = ["main"]

WATCH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "watcher.py")
SIGNALS = {signal.SIGTERM, signal.SIGCHLD}
THREADS = "/proc/self/task"  # one entry a thread
PR_SET_PDEATHSIG = 1  # linux/prctl.h
GPU_ONLY = ("triton", "cuda.bindings")  # compiler and driver: 100 MB that no rank would use on CPUs
LATER = "torch.distributed.tensor"  # a quarter of a second that the compiler does without; a rank's own import finds it


def main(how, num_gpus, control, folder, pipes):
    """Start a rank at each of `pipes`, and become `d2lite.workers.watcher`.

    `how` is "fork" or "spawn", `num_gpus` the machine's, `folder` the pool's; the others are inherited descriptors.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the notebook's interrupt is the notebook's to handle
    if how == "fork":
        _import(num_gpus)
    start = _fork if how == "fork" and len(os.listdir(THREADS)) == 1 else _spawn
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # until now SIGTERM just ends us; the watcher waits for both
    pids = [start(rank, control, folder, pipes) for rank in range(len(pipes))]
    for pipe in pipes:
        os.close(pipe)  # a rank's end must be its alone, or the notebook would not see it close
    os.execv(sys.executable, [sys.executable, "-I", "-S", WATCH, str(control), folder, *map(str, pids)])


def _import(num_gpus):
    """Load what ranks need, and nothing that computes."""
    gc.disable()  # faster, and no page is written to later for the collector's sake
    if not num_gpus:
        sys.modules.update(dict.fromkeys(GPU_ONLY))
    import torch

    import d2lite.workers.rank  # noqa: F401

    if not num_gpus:
        _import_compiler(torch)
    gc.freeze()


def _import_compiler(torch):
    """Load what the first optimizer of each rank would load, used or not: 80 MB, which ranks share."""
    blocked = sys.modules.setdefault(LATER, None) is None  # a PyTorch that has it loaded already keeps it
    with contextlib.suppress(ImportError):  # a PyTorch that cannot do without it: each rank loads its own
        torch.optim.SGD([torch.zeros(1)])
    if blocked:
        del sys.modules[LATER]


def _fork(rank, control, folder, pipes):
    pid = os.fork()
    if pid:
        return pid
    try:
        _become(rank, control, folder, pipes)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)  # never back into the agent's own code


def _become(rank, control, folder, pipes):
    """Be that rank, in a fork of the agent."""
    import ctypes

    from d2lite.workers.rank import main as rank_main

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # the agent's end is its ranks' end
    gc.enable()
    os.close(control)
    for other in pipes:
        if other != pipes[rank]:
            os.close(other)
    with _said(folder, rank) as said:
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()  # else all ranks would draw the same numbers
    rank_main(pipes[rank])


def _spawn(rank, control, folder, pipes):
    command = [sys.executable, "-m", "d2lite.workers.rank", str(pipes[rank])]
    with _said(folder, rank) as said:
        return subprocess.Popen(command, stdout=said, stderr=said, pass_fds=[pipes[rank]]).pid


def _said(folder, rank):
    """The file for what a rank writes past Python."""
    return open(os.path.join(folder, f"rank-{rank}.txt"), "wb")


if __name__ == "__main__":
    sys.path[:] = [path for path in sys.path if path != os.path.dirname(__file__)]  # its modules are d2lite's
    how, num_gpus, control, folder, *pipes = sys.argv[1:]
    main(how, int(num_gpus), int(control), folder, [int(pipe) for pipe in pipes])
