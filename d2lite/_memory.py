"""What is freed is kept: without this, one replica can be a third slower than two, and the speed-up a lie.

glibc gives large tensors back to the system as they are freed, and the system clears the same pages when the next step
asks for them again: for some sizes of the minibatch a third of the step, for others nothing (chapter 8 counts them).
"""

import ctypes
import os

__all__ = ["give_back", "keep", "tunables"]

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD of glibc's malloc.h
_LARGEST = 2**25  # bytes, the most that glibc takes as a threshold of mmap
_SPARE = 2**30  # bytes of free memory that may stay
_NO_CACHES = ("glibc.malloc.tcache_count=0", "glibc.malloc.mxfast=0")


def keep():
    """Let this process keep the memory of tensors up to 32 MiB that it frees; return whether it does.

    It does on Linux with glibc, unless D2LITE_KEEP_MEMORY=0 is set; `import d2lite` calls it. In threads beside the
    main one it holds where MALLOC_ARENA_MAX=1 was set when the process started (by `make lab` and on Binder): heaps of
    their own cannot be kept.
    """
    if _left_alone():
        return False
    mallopt = _glibc("mallopt")
    return bool(mallopt and mallopt(_MMAP_THRESHOLD, _LARGEST) and mallopt(_TRIM_THRESHOLD, _SPARE))


def tunables():
    """Return the environment in which a process that keeps memory needs less of it, to be set when it starts.

    glibc caches the small pieces that are left over beside large tensors. Then the room of a freed tensor is not whole
    again, and the next of its size goes elsewhere: a rank of LeNet, 256 examples, had 114 to 137 MB of its own after an
    epoch, without the caches 84 to 102.
    """
    mine = os.environ.get("GLIBC_TUNABLES")
    return {} if _left_alone() else {"GLIBC_TUNABLES": ":".join(filter(None, [mine, *_NO_CACHES]))}


def give_back():
    """Give what this process has freed and kept back to the system, once: others need it now."""
    if trim := _glibc("malloc_trim"):
        trim(0)


def _left_alone():
    return os.environ.get("D2LITE_KEEP_MEMORY") == "0"


def _glibc(name):
    """The function of the C library; None where it has another one."""
    try:
        return getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError, TypeError):
        return None
