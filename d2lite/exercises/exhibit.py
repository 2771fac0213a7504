"""One bug of the museum: a wrong function next to the right one, what it looks like, and the fix."""

import html
from collections.abc import Callable
from dataclasses import dataclass

import torch

from d2lite.exercises.changes import changed_lines
from d2lite.training import replicate, train_batch

__all__ = ["DRIFT", "LATER", "LONG", "NOTHING", "SHORT", "SIGNS", "SIZES", "Exhibit", "Replicate", "Step"]

Step = Callable[..., object]  # train_batch(X, y, device_params, devices, lr)
Replicate = Callable[..., list[list[torch.Tensor]]]

# what a learner may expect of a bug; an exhibit has one of them, or two
SIGNS = LONG, SHORT, DRIFT, SIZES, LATER, NOTHING = (
    "the step is too long",
    "the step is too short",
    "replicas drift apart",
    "wrong for some sizes of minibatches only",
    "right in step 1, wrong from step 2 on",
    "no curve shows it",
)


@dataclass(frozen=True, repr=False)
class Exhibit:
    """A bug: its name, what it looks like, the fix, a learner's functions, and the same functions repaired.

    `signs` are those of SIGNS that are right answers. `helpers` are the right and the wrong function that the steps
    call, if the bug is in there. `found_as` is the name that `check_step` gives, if it is another one.
    """

    name: str
    symptom: str
    fix: str
    signs: tuple[str, ...]
    train_batch: Step = train_batch
    replicate: Replicate = replicate
    right_step: Step = train_batch
    right_replicate: Replicate = replicate
    helpers: tuple[Callable[..., object], ...] = ()
    found_as: str = ""

    @property
    def verdict(self) -> str:
        """The name that `check_step` gives it."""
        return self.found_as or self.name

    @property
    def changes(self) -> list[str]:
        """The lines that differ from right code, each with "right: " or "wrong: " in front, and one line around them.

        Lines of another function than the training step come after its name.
        """
        right, wrong = (function.__name__ for function in self.helpers or (train_batch, train_batch))
        lines = changed_lines(self.right_step, self.train_batch, {wrong: right})
        pairs = [(self.helpers[0], self.helpers[1])] if self.helpers else []
        for one, other in [*pairs, (self.right_replicate, self.replicate)]:
            if changed := changed_lines(one, other):
                lines += [f"in {one.__name__}:", *changed]
        return lines

    def __repr__(self) -> str:
        return "\n".join([self.name, *self.changes, f"symptom: {self.symptom}", f"fix: {self.fix}"])

    def _repr_html_(self) -> str:
        words = f"Symptom: {html.escape(self.symptom)}.<br>Fix: {html.escape(self.fix)}."
        code = html.escape("\n".join(self.changes))
        return f"<details><summary>{html.escape(self.name)}</summary><pre>{code}</pre><p>{words}</p></details>"
