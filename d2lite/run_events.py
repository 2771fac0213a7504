"""Events: what a running training loop reports to a listener such as a panel, and how the listener stops the loop.

The data iterator and `Animator.add` call `emit`; a panel installs the listener. Without one, `emit` is one look-up.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

__all__ = ["Diverged", "Stopped", "emit", "has_listener", "listening"]

Listener = Callable[..., None]
_listener: ContextVar[Listener | None] = ContextVar("d2lite_listener", default=None)


class Stopped(BaseException):
    """Raised inside a training function whose Stop button was pressed.

    Not an Exception, so that a learner's `except Exception` does not swallow it.
    """


class Diverged(ArithmeticError):
    """Raised when a loss or a point is NaN or infinite.

    `step` (from 1) and `lr` (None if unknown) say where, and `status` says so in words; `run` holds the curves so far.
    """

    def __init__(
        self, step: int, lr: float | None, value: float, run: Any = None, unit: str = "step", what: str = "loss"
    ) -> None:
        """`unit` names what `step` counts, and `what` names the quantity that has the `value`."""
        self.status = f"diverged at {unit} {step}" + ("" if lr is None else f", lr {lr:g}")
        super().__init__(f"{self.status}: the {what} is {value}. Try a learning rate ten times smaller.")
        self.step, self.lr, self.run = step, lr, run


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
    """Pass an event to the listener of this thread, if there is one; the listener may raise Stopped or Diverged.

    The events are "run" (run: the Run that begins), "minibatch" (epoch, step, steps, dataset), "evaluation",
    "epoch" (epoch, seconds, num_examples), "recorded step" (recorded) and "tested images" (tested) of watched_step,
    "waiting" (a pool waits for its ranks) and "point" (names, x, y: three lists with one entry per curve). A pool
    passes on the events of rank 0, and of a point emitted with each_rank=True that of every rank, with its `rank`: each
    rank is a curve of its own.
    """
    listener = _listener.get()
    if listener is not None:
        listener(event, **facts)
