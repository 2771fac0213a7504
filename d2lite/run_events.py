"""The events of a training loop, which a panel listens to, and the error of a loop whose loss is no number.

Each event, who emits it, and its facts:

- "run", `Run.begin`: run, the Run that begins
- "minibatch", an iterator that shuffles: epoch, step, steps, dataset
- "epoch", the same: epoch, seconds, num_examples
- "evaluation", an iterator in order, before each minibatch: none
- "point", `Animator.add` and loops on ranks: names, x, y, lists with one entry per curve; with each_rank=True also rank
- "recorded step", `watched_step`: recorded, a RecordedStep
- "tested images", `watched_step`: tested, ImageGuesses
- "waiting", a pool while its ranks compute: none
"""

from typing import Any

from notebook_ranks.events import Stopped, emit, has_listener, listening

__all__ = ["Diverged", "Stopped", "emit", "has_listener", "listening"]


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
