"""Temporary folders that do not outlive their owner, even if it is killed.

The owner holds a lock on the folder, and the system releases the lock when the process ends, however it ends. A folder
whose lock is free has no owner, and the next start removes it.
"""

import contextlib
import os
import shutil
import tempfile
import time
from pathlib import Path

__all__ = ["make_tempdir", "remove_tempdir", "sweep_tempdirs"]

PREFIX = "notebook-ranks-"
HALF_MADE_S = 60  # a folder without an owner's file is that old: its maker was killed before the file had its name


def make_tempdir() -> tuple[Path, int]:
    """Make a folder; return its path and the descriptor that holds its lock (Linux and macOS)."""
    sweep_tempdirs()
    path = Path(tempfile.mkdtemp(prefix=PREFIX))
    descriptor = os.open(path / "new", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    _lock(descriptor)
    os.rename(path / "new", path / "owner")  # `sweep_tempdirs` looks for this name: it is locked by now
    return path, descriptor


def remove_tempdir(path: Path, descriptor: int) -> None:
    """Remove a folder and release its lock."""
    shutil.rmtree(path, ignore_errors=True)
    os.close(descriptor)


def sweep_tempdirs() -> None:
    """Remove the folders of owners that were killed together with their ranks."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # it has an owner, or is gone already
            if not (path / "owner").exists():
                if time.time() - path.lstat().st_mtime > HALF_MADE_S:
                    shutil.rmtree(path, ignore_errors=True)
                continue
            descriptor = os.open(path / "owner", os.O_RDWR)
            try:
                _lock(descriptor)
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(descriptor)


def _lock(descriptor: int) -> None:
    """Lock an open file; raise OSError if another process holds the lock."""
    import fcntl  # Windows lacks it, and has no pools

    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
