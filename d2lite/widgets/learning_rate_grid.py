"""Accuracy over learning rate and minibatch, computed cell by cell in the background and drawn as a heat map."""

from collections.abc import Sequence

import ipywidgets as widgets

from d2lite._checks import all_of, positive_int, positive_number
from d2lite.figures.comparison import heat_map_figure
from d2lite.figures.figure import Figure
from d2lite.training.comparison import Arm, run_arms
from d2lite.widgets.experiment import Experiment
from d2lite.widgets.style import control_style, row

__all__ = ["LearningRateGrid"]


class LearningRateGrid(Experiment):
    """A heat map of the test accuracy, which fills while the trainings end; `accuracies` are the cells so far.

    The large minibatches come first, since they take least time. `best` is {batch size: best learning rate} of the
    columns that are complete.

    Args:
        batch_sizes: The columns.
        lrs: The rows.
        num_seeds: Trainings of each cell; the cell shows their mean.
        num_examples: How many training examples there are.
        num_epochs: Passes over them.
        decay_share: The last part of the training, in which the learning rate falls to zero.

    Raises:
        TypeError: if a value is not a number.
        ValueError: if a number is out of range, or a list is empty.
    """

    def __init__(
        self,
        batch_sizes: Sequence[int] = (32, 64, 128, 256, 512),
        lrs: Sequence[float] = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6),
        num_seeds: int = 1,
        num_examples: int = 3000,
        num_epochs: int = 4,
        decay_share: float = 0.25,
    ) -> None:
        self.batch_sizes = sorted(set(all_of("batch_sizes", batch_sizes, positive_int, 1)))
        self.lrs = sorted(set(all_of("lrs", lrs, positive_number, 1)))
        self.num_examples, self.num_epochs = num_examples, num_epochs
        self.decay_share = decay_share
        seeds = widgets.IntSlider(positive_int("num_seeds", num_seeds, 10), 1, 10, **control_style("seeds", 260, 70))
        self._num_seeds = num_seeds
        self._build([row([seeds])], {"num_seeds": seeds}, 56)

    @property
    def accuracies(self) -> dict[tuple[int, float], float]:
        """{(batch size, learning rate): mean accuracy of the seeds that are trained}."""
        found: dict[tuple[int, float], list[float]] = {}
        for trial in list(self.trials):
            found.setdefault((trial.arm.batch_size, trial.arm.lr), []).append(trial.accuracy)
        return {cell: sum(values) / len(values) for cell, values in found.items()}

    @property
    def best(self) -> dict[int, float]:
        """{batch size: the learning rate with the highest accuracy} of complete columns."""
        known = self.accuracies
        complete = [size for size in self.batch_sizes if all((size, lr) in known for lr in self.lrs)]
        return {size: max(self.lrs, key=lambda lr: known[size, lr]) for size in complete}

    def _prepare(self) -> int:
        self._num_seeds = self.controls["num_seeds"].value
        return len(self.batch_sizes) * len(self.lrs) * self._num_seeds

    def _compute(self) -> None:
        for size in reversed(self.batch_sizes):
            arms = [Arm(f"{size}, {lr:g}", size, lr, decay_share=self.decay_share) for lr in self.lrs]
            run_arms(
                arms,
                range(self._num_seeds),
                self.num_examples,
                num_epochs=self.num_epochs,
                num_points=1,
                on_trial=self._add,
            )

    def _draw(self) -> Figure:
        return heat_map_figure(self.batch_sizes, self.lrs, self.accuracies, "test accuracy (%)")

    def _result(self) -> str:
        best = ", ".join(f"{size}: {lr:g}" for size, lr in self.best.items()) or "not known yet"
        return f"The best learning rate of each minibatch: {best}."
