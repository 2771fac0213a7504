"""Interrupts of the notebook, held back while processes, pipes and folders are made or removed."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any

__all__ = ["interrupts_held"]


@contextlib.contextmanager
def interrupts_held() -> Iterator[None]:
    """Hold back an interrupt (SIGINT) until the block ends, and raise it then; several become one.

    Python raises KeyboardInterrupt in the main thread, between any two of its operations. In other threads this does
    nothing. What is in the block must be short, and must not wait without a bound.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    held: list[tuple[Any, ...]] = []
    signal.signal(signal.SIGINT, lambda *interrupt: held.append(interrupt))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if held:
            handler(*held[0])
