"""What a running training loop tells the one who watches it, and how it is asked to stop.

The data iterator and `Animator.add` call `tell`; a panel listens. Nobody listening costs one look-up.
"""

from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["Diverged", "Stopped", "listening", "tell"]

_listener = ContextVar("d2lite_listener", default=None)


class Stopped(BaseException):
    """Raised inside a training function whose Stop button was pressed.

    Not an Exception, so that a learner's `except Exception` does not swallow it.
    """


class Diverged(ArithmeticError):
    """Raised when the loss is NaN or infinite: `step` (from 1) and `lr` say where; `run` holds the curves so far."""

    def __init__(self, step, lr, loss, run=None):
        super().__init__(
            f"diverged at step {step}, lr {lr:g}: the loss is {loss}. Try a learning rate ten times smaller."
        )
        self.step, self.lr, self.run = step, lr, run


@contextmanager
def listening(listener):
    """Call `listener(event, **facts)` for all that this thread tells inside the block."""
    token = _listener.set(listener)
    try:
        yield listener
    finally:
        _listener.reset(token)


def tell(event, **facts):
    """Tell the listener of this thread, if any; the listener may raise Stopped.

    Events: "minibatch" (epoch, step, steps), "epoch" (epoch, seconds, num_examples, dataset), "point" (x, y).
    """
    listener = _listener.get()
    if listener is not None:
        listener(event, **facts)
