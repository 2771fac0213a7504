"""Events: what a running function reports to a listener, such as a live figure, and how the listener stops it.

Without a listener, `emit` is one look-up.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

__all__ = ["Stopped", "emit", "has_listener", "listening"]

Listener = Callable[..., None]
_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


class Stopped(BaseException):
    """Raised inside a training function whose Stop button was pressed.

    Not an Exception, so that a learner's `except Exception` does not swallow it.
    """


@contextmanager
def listening(listener: Listener) -> Iterator[Listener]:
    """Call `listener(event, **facts)` for each event that this thread emits inside the block."""
    token = _listener.set(listener)
    try:
        yield listener
    finally:
        _listener.reset(token)


def has_listener() -> bool:
    """Return whether this thread has a listener."""
    return _listener.get() is not None


def emit(event: str, **facts: Any) -> None:
    """Pass an event to the listener of this thread, if there is one; the listener may raise Stopped.

    In a rank of a pool the pool listens. It passes on the events of rank 0. A point (the event "point") that is emitted
    with each_rank=True is passed on from every rank, with its `rank`.
    """
    listener = _listener.get()
    if listener is not None:
        listener(event, **facts)
