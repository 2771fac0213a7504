"""The notebook's side of `notebook_ranks.rank_starter`: start it, receive the ranks' exit codes, and end the ranks."""

import contextlib
import os
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from socket import socketpair

from notebook_ranks.machine import num_gpus
from notebook_ranks.pipe import NotebookEnd
from notebook_ranks.shared import malloc as _malloc
from notebook_ranks.tempdir import make_tempdir, remove_tempdir

__all__ = ["StarterHandle", "import_path"]

STARTER = Path(__file__).with_name("rank_starter.py")
BUFFER_SIZE = "256"  # collectives that a rank's flight recorder keeps, unless the environment sets a different number
START = "fork" if sys.platform == "linux" else "spawn"
END_S = 5.0  # bounds the wait for the end of a killed process, which takes milliseconds
EXITCODE_S = 2.0  # bounds the wait for the exit code of a starter whose pipe is closed


class StarterHandle:
    """The process that starts `world_size` ranks, reports how they ended, and ends them; with the pool's folder.

    `pipes` are the notebook's ends of the pipes to the ranks. A process that the notebook forks does not have them, and
    its end does not end the ranks. Raises OSError if no process or folder can be made.
    """

    def __init__(self, world_size: int, preload: Sequence[str] = ()) -> None:
        _malloc.give_back()  # the ranks need it
        self.owner, self.killed = os.getpid(), False
        self.tempdir = make_tempdir()  # the folder, and the descriptor of its lock
        self.folder = self.tempdir[0]
        self.exitcodes: dict[int, int] = {}
        pairs = []
        try:
            for _ in range(world_size + 1):
                pairs.append(socketpair())
            theirs = [their.fileno() for _, their in pairs]
            with open(self.folder / "starter.txt", "wb") as output:
                self.process = subprocess.Popen(
                    [
                        sys.executable,
                        STARTER,
                        START,
                        str(num_gpus()),
                        " ".join(preload),
                        str(theirs[0]),
                        self.folder,
                        *map(str, theirs[1:]),
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    pass_fds=theirs,
                    env=_environment(),
                    start_new_session=True,  # what ends or stops the notebook's process group leaves time to clean up
                )
        except BaseException:
            for mine, _ in pairs:
                mine.close()
            remove_tempdir(*self.tempdir)
            raise
        finally:
            for _, their in pairs:
                their.close()
        self.control = Connection(pairs[0][0].detach())
        self.pipes = [NotebookEnd(mine) for mine, _ in pairs[1:]]
        _starters.add(self)

    def read_exitcodes(self, limit_s: float = 0.0) -> None:
        """Receive the exit codes that have come; wait up to `limit_s` for the first.

        All ranks end when the starter ends.
        """
        try:
            while self.control.poll(limit_s):
                rank, code = self.control.recv()
                self.exitcodes[rank] = code
                limit_s = 0.0
        except (EOFError, OSError):
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = self.process.wait(EXITCODE_S) or -signal.SIGKILL  # 0: the notebook ignores SIGCHLD
                self.exitcodes = {**dict.fromkeys(range(len(self.pipes)), code), **self.exitcodes}

    def exitcode(self, rank: int, limit_s: float = 0.0) -> int | None:
        """Return the exit code of a rank; None if it has not ended within `limit_s`, or if its code has not come."""
        deadline = time.monotonic() + limit_s
        while rank not in self.exitcodes:
            self.read_exitcodes(max(0.0, deadline - time.monotonic()))
            if time.monotonic() >= deadline:
                break
        return self.exitcodes.get(rank)

    def kill(self) -> None:
        """End all ranks immediately."""
        self.killed = True
        if self.owner == os.getpid():
            self.process.terminate()
            self.process.send_signal(signal.SIGCONT)  # if it is stopped

    def end(self) -> None:
        """End all ranks and what they have started, wait for them, close the pipes and remove the folder."""
        if self.owner != os.getpid():
            return
        self.kill()
        try:
            self.process.wait(END_S)
        except subprocess.TimeoutExpired:  # it does not react: it is stopped for good, or cannot be scheduled
            self.process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(END_S)
        _starters.discard(self)  # its descriptors are free for other files, which a fork must not close
        self.close()
        remove_tempdir(*self.tempdir)

    def close(self) -> None:
        """Close the pipes."""
        self.control.close()
        for pipe in self.pipes:
            pipe.close()


_starters: weakref.WeakSet[StarterHandle] = weakref.WeakSet()


def _leave_to_the_parent() -> None:
    """Give up all starters, in a fork of the notebook: they end with the notebook, and not with its fork."""
    for starter in list(_starters):
        starter.close()
        os.close(starter.tempdir[1])
    _starters.clear()  # a fork of this fork has nothing more to close


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_leave_to_the_parent)


def _environment() -> dict[str, str]:
    """Return the ranks' environment: that of the notebook, with a recorder."""
    return {"TORCH_FR_BUFFER_SIZE": BUFFER_SIZE, **os.environ, **_malloc.tunables(), **on_this_machine()}


def on_this_machine() -> dict[str, str]:
    """Return what ranks on this machine need: this program's import path, one thread per rank, loopback alone."""
    loopback = "lo0" if sys.platform == "darwin" else "lo"
    return {
        "PYTHONPATH": os.pathsep.join(p for p in import_path() if p),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": loopback,
        "NCCL_SOCKET_IFNAME": loopback,
    }


def import_path() -> list[str]:
    """Return the entries of the notebook's `sys.path` that Python searches; it skips what is not a text (a Path)."""
    return [p for p in sys.path if isinstance(p, str) and "\0" not in p]
