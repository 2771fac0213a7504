"""The learner's own modules: a rank imports them again if one was edited since it imported them."""

import importlib
import os
import sys

from notebook_ranks.shared.own_code import is_own_code

__all__ = ["OwnModules"]

State = tuple[int, int]  # time of the last change in ns, size in bytes


class OwnModules:
    """The imported modules that are neither installed nor part of Python or of this package, and their files' states.

    If one of the files has changed, all of these modules are imported again when they are used next: a different one
    may have taken something from it with `from module import name`. What they kept in their variables is lost.
    """

    def __init__(self) -> None:
        self._looked_at: set[str] = set()
        self._files: dict[str, tuple[str, State | None]] = {}  # of each own module
        self.note(0)

    def note(self, since_ns: int) -> None:
        """Note the modules that are new since the last call, with the states of their files.

        `since_ns` (of time.time_ns) is a moment before they were imported. A file that was written after it counts as
        changed, since the version that was imported is not known. With 0, no file does.
        """
        for name, module in list(sys.modules.items()):  # a list: other threads import, too
            if name in self._looked_at:
                continue
            self._looked_at.add(name)
            file = getattr(module, "__file__", None)
            if name != "__main__" and isinstance(file, str) and is_own_code(file):
                state = _state_of_file(file)
                self._files[name] = file, None if state and since_ns and state[0] > since_ns else state

    def forget_changed(self) -> None:
        """Forget all own modules if the file of one has changed."""
        if any(_state_of_file(file) != state for file, state in self._files.values()):
            for name in self._files:
                sys.modules.pop(name, None)
            self._looked_at -= self._files.keys()
            self._files.clear()
            importlib.invalidate_caches()


def _state_of_file(file: str) -> State | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
