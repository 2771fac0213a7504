"""What is freed is kept: without this, one replica can be a third slower than two, and the speed-up a lie.

glibc gives large tensors back to the system as they are freed, and the system clears the same pages when the next step
asks for them again: for some sizes of the minibatch a third of the step, for others nothing (chapter 8 counts them).
"""

import ctypes
import os

__all__ = ["give_back", "keep"]

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD of glibc's malloc.h
_LARGEST = 2**25  # bytes, the most that glibc takes as a threshold of mmap
_SPARE = 2**30  # bytes of free memory that may stay


def keep():
    """Let this process keep the memory of tensors up to 32 MiB that it frees; return whether it does.

    It does on Linux with glibc, unless D2LITE_KEEP_MEMORY=0 is set; `import d2lite` calls it. In threads beside the
    main one it holds where MALLOC_ARENA_MAX=1 was set when the process started (by `make lab` and on Binder): heaps of
    their own cannot be kept.
    """
    if os.environ.get("D2LITE_KEEP_MEMORY") == "0":
        return False
    mallopt = _glibc("mallopt")
    return bool(mallopt and mallopt(_MMAP_THRESHOLD, _LARGEST) and mallopt(_TRIM_THRESHOLD, _SPARE))


def give_back():
    """Give what this process has freed and kept back to the system, once: others need it now."""
    if trim := _glibc("malloc_trim"):
        trim(0)


def _glibc(name):
    """The function of the C library; None where it has another one."""
    try:
        return getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError, TypeError):
        return None
