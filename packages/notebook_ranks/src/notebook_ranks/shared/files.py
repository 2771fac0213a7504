"""Files that are written completely or not at all."""

import errno
import os
import stat
import uuid
from contextlib import suppress
from pathlib import Path

__all__ = ["replace_file"]


def replace_file(path: Path, text: str) -> None:
    """Write a file completely or not at all; an existing one keeps its permissions, and a link stays a link.

    Raises:
        OSError: if it cannot be written, or if `path` names a folder, a device or anything else but a regular file.
    """
    mode = _permissions(path)
    place = Path(os.path.realpath(path))
    part = place.with_name(f".part-{uuid.uuid4().hex}")
    try:
        with open(part, "x", encoding="utf-8", errors="backslashreplace") as file:  # \udc80 is JSON, too
            if mode is not None:
                os.chmod(part, mode)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, place)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error  # not the name of the part
    finally:
        with suppress(OSError):  # renamed, or never made
            part.unlink()


def _permissions(path: Path) -> int | None:
    """Return the permissions of a file that may be replaced, or None if there is none; raise OSError for all else."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        if path.parent.is_dir():
            return None
        raise FileNotFoundError(errno.ENOENT, "the folder does not exist", str(path.parent)) from None
    if not stat.S_ISREG(mode):
        raise OSError(f"path: expected the name of a file, got {path}, which is no regular file. Choose another name.")
    if not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, "the file is read-only", str(path))
    return stat.S_IMODE(mode)
