"""Which code is the learner's own: not Python's, not that of an installed library, and not of these packages."""

import functools
import os
import sys
import sysconfig

__all__ = ["is_own_code", "not_own"]

_OF_PROMPTS = ("<ipython-input", "<python-input", "<stdin>", "<console>")  # other names are taken for generated code
_IN_PATHS = ("site-packages", "dist-packages")  # folders of installed libraries
_COMPILED = f"{os.sep}torchinductor_"  # begins the name of the folder of what `torch.compile` has written


_folders = [os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]  # of packages that may be no installed ones


def not_own(folder: str) -> None:
    """Take the code in a folder for that of a library, although it is not installed as one."""
    if folder not in _folders:
        _folders.append(folder)
        _is_own.cache_clear()
        _foreign_folders.cache_clear()


def is_own_code(file: str) -> bool:
    """Return whether a file, as a traceback names it, is a learner's cell or file."""
    return _is_own(file, getattr(sys.modules.get("torch"), "__file__", None) or "")


@functools.cache
def _is_own(file: str, torch_file: str) -> bool:
    if file.startswith("<"):
        return file.startswith(_OF_PROMPTS)
    path = os.path.normcase(file)
    inside = any(f"{os.sep}{name}{os.sep}" in path for name in _IN_PATHS) or _COMPILED in path
    return not inside and not path.startswith(_foreign_folders(torch_file))


@functools.cache
def _foreign_folders(torch_file: str) -> tuple[str, ...]:
    """Return the folders of Python's own modules, of these packages, and of PyTorch, which may be built in place."""
    files = [os.__file__, *([torch_file] if torch_file else [])]
    folders = [sysconfig.get_path("stdlib"), *map(os.path.dirname, files), *_folders]
    return tuple(os.path.normcase(os.path.join(folder, "")) for folder in folders)
