"""Interrupt a function that runs in a different thread: an asynchronous exception is raised in it.

CPython raises it at the next call, or where a loop jumps back. That ends code in pure Python. It does not end one long
call (a sleep, a wait for a lock, C code) before the call returns, nor a function that catches every exception.
"""

import ctypes
import threading
import time
from collections.abc import Callable
from typing import Any

from d2lite.run_events import Stopped

__all__ = ["Interruptible"]

_EVERY_S = 0.5  # between two interrupts: the function may be cleaning up after the first, in its `finally`


class Interruptible:
    """One call of a function, in which `interrupt` raises Stopped; Stopped is never raised in the code around the call.

    `at` is the time of the last interrupt in seconds (time.monotonic), None before the first.
    """

    def __init__(self) -> None:
        self.at: float | None = None
        self._lock = threading.Lock()
        self._thread_id: int | None = None  # None: not in the function

    def call(self, function: Callable[..., Any], **arguments: Any) -> Any:
        """Return function(**arguments), called in this thread; raise Stopped if it was interrupted."""
        try:
            try:
                with self._lock:
                    self._thread_id = threading.get_ident()
                return function(**arguments)
            finally:
                self._leave()
        except Stopped:
            self._leave()  # again: the interrupt may have been raised on the way out, before it was refused
            raise

    def interrupt(self) -> None:
        """Raise Stopped in the function, at its next call or jump back; does nothing more than twice per second."""
        with self._lock:
            now = time.monotonic()
            if self._thread_id is not None and (self.at is None or now >= self.at + _EVERY_S):
                self.at = now
                _raise_in(self._thread_id, Stopped)

    def _leave(self) -> None:
        with self._lock:
            self._thread_id = None
        if self.at is not None:
            _take_back()


def _raise_in(thread_id: int, kind: type[BaseException]) -> None:
    """Make CPython raise `kind` in a thread, by the interpreter's C interface: Python has no call for it."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread_id), ctypes.py_object(kind))


def _take_back() -> None:
    """Forget what CPython was asked to raise in this thread, and has not raised yet: it is raised here, and caught.

    To ask for no exception instead would leave CPython 3.11 with a flag that is never cleared: from then on a
    debugger's trace function never returns from the first call that it sees (tried: 3.11.7).
    """
    try:
        _raise_in(threading.get_ident(), Stopped)
        for _ in range(1000):  # raised where the loop jumps back
            pass
    except Stopped:
        pass
