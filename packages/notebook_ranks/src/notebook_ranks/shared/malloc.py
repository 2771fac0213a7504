"""glibc's malloc: keep freed memory in the process. Otherwise one replica can be a third slower than it need be.

The measured speed-up of two replicas is then too large.

glibc returns the memory of large tensors to the system when they are freed, and the system clears the same pages when
the next step allocates them again. For some minibatch sizes that takes a third of the step, for others no time
(the appendix to chapter 8 counts the pages).
"""

import ctypes
import os
from typing import Any

__all__ = ["give_back", "keep", "tunables"]

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD of glibc's malloc.h
_LARGEST = 2**25  # bytes: the largest mmap threshold that glibc accepts
_SPARE = 2**30  # bytes of free memory that the process may keep
_NO_CACHES = ("glibc.malloc.tcache_count=0", "glibc.malloc.mxfast=0")


def keep() -> bool:
    """Make this process keep the memory of freed tensors of up to 32 MiB; return whether it does.

    It is called where a run begins: when `parallel_apply` starts its threads, in `Run.begin`, and when a rank starts.
    An import leaves the process alone. It works on Linux with glibc, unless D2LITE_KEEP_MEMORY=0 is set. For
    threads other than the main one it works only if MALLOC_ARENA_MAX=1 was set when the process started (`make lab` and
    Binder set it): glibc does not keep the free memory of a thread's own heap.
    """
    if _left_alone():
        return False
    mallopt = _glibc("mallopt")
    return bool(mallopt and mallopt(_MMAP_THRESHOLD, _LARGEST) and mallopt(_TRIM_THRESHOLD, _SPARE))


def tunables() -> dict[str, str]:
    """Return environment variables with which a process that keeps memory needs less of it; set them when it starts.

    glibc caches small pieces that are left over next to large tensors. The memory of a freed tensor is then split, and
    the next tensor of its size is placed elsewhere. A rank that trains LeNet on 256 examples had 114 to 137 MB of
    private memory after an epoch, and 84 to 102 MB without the caches.
    """
    mine = os.environ.get("GLIBC_TUNABLES")
    return {} if _left_alone() else {"GLIBC_TUNABLES": ":".join(filter(None, [mine, *_NO_CACHES]))}


def give_back() -> None:
    """Return the memory that this process has freed and kept to the system, once, for other processes to use."""
    if trim := _glibc("malloc_trim"):
        trim(0)


def _left_alone() -> bool:
    return os.environ.get("D2LITE_KEEP_MEMORY") == "0"


def _glibc(name: str) -> Any:
    """Return a function of the C library, or None where the library is not glibc."""
    try:
        return getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError, TypeError):
        return None
