"""Which code is the learner's own: not Python's, not this package's, and not that of an installed library."""

import functools
import os
import sys
import sysconfig

__all__ = ["is_own_code"]

_OF_PROMPTS = ("<ipython-input", "<python-input", "<stdin>", "<console>")  # other names are taken for generated code
_IN_PATHS = ("site-packages", "dist-packages")  # folders of installed libraries
_COMPILED = f"{os.sep}torchinductor_"  # begins the name of the folder of what `torch.compile` has written


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
    """Return the folders of Python's own modules, of this package, and of PyTorch, which may be built in place."""
    files = [os.__file__, __file__, *([torch_file] if torch_file else [])]
    folders = [sysconfig.get_path("stdlib"), *map(os.path.dirname, files)]
    return tuple(os.path.normcase(os.path.join(folder, "")) for folder in folders)
