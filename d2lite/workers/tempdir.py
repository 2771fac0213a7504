"""Temporary folders that do not outlive their owner, even one that is killed.

The owner holds a lock on the folder, which the system takes away when the process ends, however it ends: a folder
whose lock can be had is nobody's, and the next start removes it.
"""

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

__all__ = ["make_tempdir", "remove_tempdir", "sweep_tempdirs"]

PREFIX = "d2lite-workers-"


def make_tempdir():
    """Return (path of a fresh folder, descriptor that holds its lock); linux and macOS."""
    sweep_tempdirs()
    path = Path(tempfile.mkdtemp(prefix=PREFIX))
    descriptor = os.open(path / "new", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    _lock(descriptor)
    os.rename(path / "new", path / "owner")  # seen by `sweep_tempdirs` when it is locked, not before
    return path, descriptor


def remove_tempdir(path, descriptor):
    """Remove a folder and give its lock back."""
    shutil.rmtree(path, ignore_errors=True)
    os.close(descriptor)


def sweep_tempdirs():
    """Remove the folders of owners that were killed together with their ranks."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # somebody else's, or gone already
            descriptor = os.open(path / "owner", os.O_RDWR)
            try:
                _lock(descriptor)
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(descriptor)


def _lock(descriptor):
    """Lock an open file; raises OSError where another process has it."""
    import fcntl  # not on Windows, where nobody calls this

    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
