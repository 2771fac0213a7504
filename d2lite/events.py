"""What a running training loop tells the one who watches it, and how it is asked to stop.

The data iterator and `Animator.add` call `tell`; a panel listens. Nobody listening costs one look-up.
"""

from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["Diverged", "Stopped", "heard", "listening", "tell"]

_listener = ContextVar("d2lite_listener", default=None)


class Stopped(BaseException):
    """Raised inside a training function whose Stop button was pressed.

    Not an Exception, so that a learner's `except Exception` does not swallow it.
    """


class Diverged(ArithmeticError):
    """Raised when a loss or a point is NaN or infinite: `step` (from 1) and `lr` (None if unknown) say where.

    `run` holds the curves so far. `unit` says what `step` counts, `what` whose value `loss` is.
    """

    def __init__(self, step, lr, loss, run=None, unit="step", what="loss"):
        at = f"{unit} {step}" + ("" if lr is None else f", lr {lr:g}")
        super().__init__(f"diverged at {at}: the {what} is {loss}. Try a learning rate ten times smaller.")
        self.step, self.lr, self.run = step, lr, run


@contextmanager
def listening(listener):
    """Call `listener(event, **facts)` for all that this thread tells inside the block."""
    token = _listener.set(listener)
    try:
        yield listener
    finally:
        _listener.reset(token)


def heard():
    """Return whether somebody listens to this thread."""
    return _listener.get() is not None


def tell(event, **facts):
    """Tell the listener of this thread, if any; the listener may raise Stopped or Diverged.

    Events: "run" (run: the record of a run that begins), "minibatch" (epoch, step, steps, dataset), "evaluation",
    "epoch" (epoch, seconds, num_examples), "point" (names, x, y: three lists with one entry a curve).
    Of what ranks tell, rank 0's is heard, and every rank's point with each_rank=True, as a curve of its own.
    """
    listener = _listener.get()
    if listener is not None:
        listener(event, **facts)
