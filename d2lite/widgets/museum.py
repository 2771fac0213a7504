"""The museum of bugs as a panel: choose an exhibit, and see what it does to loss, accuracy and replica drift."""

import html
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Protocol

import ipywidgets as widgets
import torch

from d2lite._checks import positive_int, whole_number
from d2lite.data import load_data_fashion_mnist
from d2lite.devices import describe, try_gpus
from d2lite.figures.divergence import drift_figure
from d2lite.models import lenet_params
from d2lite.profiling import History, step_history
from d2lite.training import replicate, train_batch
from d2lite.widgets.explorer import Explorer
from d2lite.widgets.live import live_figure, redraw
from d2lite.widgets.style import CLASS, control_style, row, sheet

__all__ = ["Museum"]

LEARNING_RATES = (0.01, 0.02, 0.05, 0.1)
SIZES = (64, 64, 64, 6)  # of minibatches: the last of an epoch is small, as it is where a data set ends
NUM_EXAMPLES = 960  # that are loaded: a sixth of so many are test images
RIGHT = "right code"


class Wrong(Protocol):
    """What an exhibit has."""

    symptom: str
    mend: str
    train_batch: Any
    replicate: Any


class Museum(Explorer):
    """Loss, accuracy and replica drift of an exhibit next to right code on the same examples; a cell shows it.

    `exhibit`, `k` and `lr` are the controls: set their `value` by hand or in code. `histories` is what is drawn. Each
    run trains LeNet for a few epochs of four minibatches of 64, 64, 64 and 6 examples; it is kept, so that a setting
    that was seen before appears at once.

    Args:
        exhibits: {name: exhibit}, for example EXHIBITS of d2lite.exercises; each has symptom, mend, train_batch and
            replicate.
        k: the number of replicas, from 2 to 4.
        lr: the learning rate.
        num_epochs: the number of epochs.

    Raises:
        ValueError: if there is no exhibit, or a value is out of range.
        TypeError: if a value is of another type.

    Example:
        >>> from d2lite.exercises import EXHIBITS
        >>> museum = Museum(EXHIBITS, num_epochs=1)
        >>> museum.exhibit.value = "rebinding all-reduce"
        >>> museum.histories["rebinding all-reduce"].drifts[-1] > museum.histories["right code"].drifts[-1]
        True
    """

    def __init__(self, exhibits: Mapping[str, Wrong], k: int = 2, lr: float = 0.05, num_epochs: int = 4) -> None:
        if not exhibits:
            raise ValueError("exhibits: expected at least one, got none. Try EXHIBITS of d2lite.exercises.")
        whole_number("k", k, 2, 4)
        positive_int("num_epochs", num_epochs)
        if lr not in LEARNING_RATES:
            raise ValueError(f"lr: expected one of {', '.join(map(str, LEARNING_RATES))}, got {lr!r}.")
        self.exhibits, self.num_epochs = dict(exhibits), num_epochs
        self._run = lru_cache(64)(self._trained)
        names = [RIGHT, *self.exhibits]
        self.exhibit = widgets.Dropdown(options=names, value=names[1], **control_style("exhibit", 400, 90))
        self.k = widgets.IntSlider(value=k, min=2, max=4, continuous_update=False, **control_style("devices", 300, 90))
        self.lr = widgets.SelectionSlider(
            options=LEARNING_RATES, value=lr, continuous_update=False, **control_style("learning rate", 300, 90)
        )
        self.summary = widgets.HTML(layout=widgets.Layout(min_height="110px", max_width="820px"))
        self.figure, box = live_figure(self._draw())
        controls = [self.exhibit, self.k, self.lr]
        self.view = widgets.VBox([sheet(), row(controls), box, self.summary])
        self.view.add_class(CLASS)
        self._follow(controls)

    def _trained(self, name: str, k: int, lr: float) -> History:
        batches, test = _data(self.num_epochs)
        exhibit = self.exhibits.get(name)
        devices = try_gpus(k)
        make, step = (replicate, train_batch) if exhibit is None else (exhibit.replicate, exhibit.train_batch)
        return step_history(step, batches, test, make([p.clone() for p in lenet_params()], devices), devices, lr)

    def _draw(self) -> Any:
        name, k, lr = self.exhibit.value, self.k.value, self.lr.value
        self.histories = {RIGHT: self._run(RIGHT, k, lr), name: self._run(name, k, lr)}
        shown = self.histories if name != RIGHT else {RIGHT: self.histories[RIGHT], f"{RIGHT} again": History()}
        return drift_figure(shown, f"{k} replicas, learning rate {lr:g}")

    def _redraw(self) -> None:
        redraw(self.figure, self._draw())
        self.summary.value = self._words()

    def _words(self) -> str:
        name, devices = self.exhibit.value, describe(try_gpus(self.k.value))
        right, own = self.histories[RIGHT], self.histories[name]
        words = f"<b>{html.escape(name)}</b> ({html.escape(devices)}). "
        if exhibit := self.exhibits.get(name):
            words += f"Symptom: {html.escape(exhibit.symptom)}. Mend: {html.escape(exhibit.mend)}.<br>"
        times = own.moved[0] / right.moved[0]
        words += f"After {len(own.losses)} steps: test loss {own.losses[-1]:.3g} (right code {right.losses[-1]:.3g}), "
        words += f"accuracy {own.accuracies[-1]:.1%} ({right.accuracies[-1]:.1%}), "
        words += f"replica drift {own.drifts[-1]:.2%} of the weights. "
        return words + f"The first step is {times:.2f} times as long as that of right code. All of this is measured."


@lru_cache(2)
def _data(num_epochs: int) -> tuple[list[tuple[torch.Tensor, torch.Tensor]], tuple[torch.Tensor, torch.Tensor]]:
    """Return the minibatches of all epochs, and test images with their labels."""
    train_iter, test_iter = load_data_fashion_mnist(sum(SIZES), NUM_EXAMPLES)
    X, y = next(iter(train_iter))
    X_test, y_test = (torch.cat(parts) for parts in zip(*test_iter, strict=True))
    batches = list(zip(X.split(list(SIZES)), y.split(list(SIZES)), strict=True)) * num_epochs
    return batches, (X_test, y_test)
