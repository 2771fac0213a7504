"""The files that a script opens, by an audit hook of Python."""

import os
import stat
import sys
from collections.abc import Callable
from typing import Any

from notebook_ranks.shared.own_code import is_own_code

__all__ = ["EVENTS", "watch_files"]

MOST_FILES = 200  # that are noted of those that are read, and of all others: a script may read thousands of images
HIDDEN = (f"{os.sep}.", f"{os.sep}__pycache__{os.sep}")  # caches
NO_FILES = ("/dev/", "/proc/", "/sys/")
LOCKS = ("fcntl.flock", "fcntl.lockf")  # events of Python
LOCK = ".lock"  # the end of names of files that are there to be shared
OF_IMPORTS = (
    "<frozen importlib._bootstrap>",
    "<frozen importlib._bootstrap_external>",
    "linecache.py",
    "tokenize.py",
    "traceback.py",
    "inspect.py",
)
EVENTS = "events.out.tfevents."  # the beginning of the names of files that TensorBoard writes in a thread of its own
WRITES = os.O_WRONLY | os.O_RDWR


def watch_files(note: Callable[[str, str], None], is_watched: Callable[[], bool], folder: str) -> None:
    """Call `note(path, mode)` for each file that the script opens from now on, once for each path and mode.

    It does so while `is_watched()`; files in `folder` are not the script's. A lock of an open file is noted with the
    path "".
    """
    seen: set[tuple[str, str]] = set()
    num_seen = {True: 0, False: 0}  # whether it is read -> how many

    def hook(event: str, args: Any) -> None:
        if event in LOCKS and is_watched() and _by_script() and ("", "lock") not in seen:
            seen.add(("", "lock"))
            note("", "lock")
        if event == "open" and (is_watched() or _is_log(str(args[0]))):
            path, mode, flags = args
            kind = _kind_of(mode or _mode_of(flags))
            if isinstance(path, str | bytes) and num_seen[kind == "r"] < MOST_FILES:
                path = os.path.realpath(os.fsdecode(path))
                kind = "lock" if path.endswith(LOCK) else kind
                if (path, kind) not in seen and not path.startswith(folder) and _is_of_script(path):
                    seen.add((path, kind))
                    num_seen[kind == "r"] += 1
                    note(path, kind)

    sys.addaudithook(hook)


def _kind_of(mode: str) -> str:
    return next((letter for letter in "wxa+" if letter in mode), "r")


def _is_of_script(path: str) -> bool:
    """Return whether a path is an ordinary file, or none yet, that the script opens and no cache."""
    if path.startswith(NO_FILES) or any(part in path for part in HIDDEN):
        return False
    if not _is_log(path) and not _by_script():
        return False
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return True


def _is_log(path: str) -> bool:
    return f"{os.sep}{EVENTS}" in path


def _mode_of(flags: int) -> str:
    if flags & WRITES:
        return "a" if flags & os.O_APPEND else "x" if flags & os.O_EXCL else "w" if flags & os.O_TRUNC else "+"
    return "r"


def _by_script() -> bool:
    """Return whether the script opens the file, itself or by a library, and no import does."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if file.endswith(OF_IMPORTS) or file.startswith(OF_IMPORTS):
            return False
        if is_own_code(file):
            return True
        frame = frame.f_back
    return False
