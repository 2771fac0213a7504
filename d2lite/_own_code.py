"""Which code is the learner's own: not Python's, not this package's, and not that of an installed library."""

import functools
import importlib.util
import os
import sysconfig

__all__ = ["is_own_code"]

_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_OF_CELLS = ("<ipython-input", "<stdin>")  # all other names in angle brackets are generated code


@functools.cache
def is_own_code(file: str) -> bool:
    """Return whether a file, as a traceback names it, is a learner's cell or file."""
    if file.startswith("<"):
        return file.startswith(_OF_CELLS)
    return not file.startswith(_of_others()) and not any(part in file for part in _INSTALLED)


@functools.cache
def _of_others() -> tuple[str, ...]:
    """Return the folders of Python's own modules, of this package, and of PyTorch, which may be built in place."""
    torch = importlib.util.find_spec("torch")
    folders = [sysconfig.get_path("stdlib"), os.path.dirname(os.__file__), os.path.dirname(__file__)]
    folders += [os.path.dirname(torch.origin)] if torch and torch.origin else []
    return tuple(os.path.join(folder, "") for folder in folders)
