"""The files that a script opens, by an audit hook of Python."""

import os
import stat
import sys
from typing import TYPE_CHECKING, Any

from ddp_rehearsal.observations import Opened
from notebook_ranks.shared.own_code import is_own_code

if TYPE_CHECKING:
    from ddp_rehearsal.observer import Observer

__all__ = ["watch_files"]

MOST_FILES = 200  # that are noted
HIDDEN = (f"{os.sep}.", f"{os.sep}__pycache__{os.sep}")  # caches
NO_FILES = ("/dev/", "/proc/", "/sys/")
OF_IMPORTS = (
    "<frozen importlib._bootstrap>",
    "<frozen importlib._bootstrap_external>",
    "linecache.py",
    "tokenize.py",
    "traceback.py",
    "inspect.py",
)
WRITES = os.O_WRONLY | os.O_RDWR


def watch_files(observer: "Observer") -> None:
    """Note each file that the script opens, from now on: once for each path and mode."""
    seen: set[tuple[str, str]] = set()

    def hook(event: str, args: Any) -> None:
        if event == "open" and len(seen) < MOST_FILES and observer._is_mine():
            path, mode, flags = args
            if isinstance(path, str | bytes):
                observer._quietly(_note, observer, os.fsdecode(path), mode or _mode_of(flags), seen)

    sys.addaudithook(hook)


def _mode_of(flags: int) -> str:
    if flags & WRITES:
        return "a" if flags & os.O_APPEND else "x" if flags & os.O_EXCL else "w" if flags & os.O_TRUNC else "+"
    return "r"


def _note(observer: "Observer", path: str, mode: str, seen: set[tuple[str, str]]) -> None:
    kind = next((letter for letter in "wxa+" if letter in mode), "r")
    path = os.path.realpath(path)
    if (
        (path, kind) in seen
        or path.startswith(observer.folder)
        or path.startswith(NO_FILES)
        or any(part in path for part in HIDDEN)
        or not _by_script()
    ):
        return
    seen.add((path, kind))
    if not os.path.exists(path) or stat.S_ISREG(os.stat(path).st_mode):
        observer.note(Opened, path=path, mode=kind)


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
