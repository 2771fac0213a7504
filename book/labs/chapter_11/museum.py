"""The museum of bugs as a panel: choose an exhibit and its symptom, and see loss, accuracy and replica drift."""

import html
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import ipywidgets as widgets
import torch

from d2lite.data import load_data_fashion_mnist
from d2lite.devices import describe, try_gpus
from d2lite.models import lenet_params
from d2lite.training import replicate, train_batch
from d2lite.widgets.explorer import Explorer
from d2lite.widgets.plotly_widget import PlotlyWidget
from d2lite.widgets.style import CLASS, control_style, row, scrolling, sheet
from notebook_ranks.shared.checks import positive_int, whole_number

from .bug_exhibit import BugExhibit
from .replica_drift import History, step_history
from .replica_drift_figure import drift_figure

__all__ = ["Museum"]

LEARNING_RATES = (0.01, 0.02, 0.05, 0.1)
# of minibatches: shards of 16 + 2 on four devices, so that the last piece is smaller; the last minibatch of an epoch is
# small, as it is where a data set ends
BATCH_SIZES = (72, 72, 72, 5)
NUM_LOADED = 960  # that are loaded: a sixth of so many are test images
RIGHT_CODE = "right code"
ASK = "choose one to see the curves"


class Museum(Explorer):
    """Loss, accuracy and replica drift of an exhibit next to right code on the same examples; a cell shows it.

    `exhibit`, `symptom`, `k` and `lr` are the controls: set their `value` by hand or in code. The lines of the exhibit
    that differ from right code are shown; its curves appear when a symptom is chosen. `guesses` has the symptoms that
    were chosen, by exhibit, and `histories` what was measured of both runs. Each run trains LeNet for a few epochs of
    four minibatches of 72, 72, 72 and 5 examples; it is kept, so that a setting that was seen before needs no time.

    Args:
        exhibits: {name: BugExhibit}, for example EXHIBITS of d2lite.exercises.
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

    def __init__(self, exhibits: Mapping[str, BugExhibit], k: int = 2, lr: float = 0.05, num_epochs: int = 4) -> None:
        if not exhibits:
            raise ValueError("exhibits: expected at least one, got none. Try EXHIBITS of d2lite.exercises.")
        whole_number("k", k, 2, 4)
        positive_int("num_epochs", num_epochs)
        if lr not in LEARNING_RATES:
            raise ValueError(f"lr: expected one of {', '.join(map(str, LEARNING_RATES))}, got {lr!r}.")
        self.exhibits, self.num_epochs = dict(exhibits), num_epochs
        self.guesses: dict[str, str] = {}
        self._run = lru_cache(64)(self._trained)
        names = [RIGHT_CODE, *self.exhibits]
        self.exhibit = widgets.Dropdown(options=names, value=names[1], **control_style("exhibit", 400, 90))
        self.k = widgets.IntSlider(value=k, min=2, max=4, continuous_update=False, **control_style("devices", 300, 90))
        self.lr = widgets.SelectionSlider(
            options=LEARNING_RATES, value=lr, continuous_update=False, **control_style("learning rate", 300, 90)
        )
        signs = dict.fromkeys(sign for exhibit in self.exhibits.values() for sign in exhibit.signs)
        self.symptom = widgets.Dropdown(options=[ASK, *signs], value=ASK, **control_style("symptom", 400, 90))
        self._asked = names[1]  # the exhibit that `symptom` is about
        self.code = widgets.HTML()
        self.summary = widgets.HTML(layout=widgets.Layout(max_width="820px"))
        self.plot = PlotlyWidget(self._draw())
        controls = [self.exhibit, self.symptom, self.k, self.lr]
        self.view = widgets.VBox([sheet(), row(controls), scrolling(self.code, 220), self.plot, self.summary])
        self.view.add_class(CLASS)
        self._follow(controls)

    def _trained(self, step: Any, make: Any, k: int, lr: float) -> History:
        batches, test = _minibatches(self.num_epochs)
        devices = try_gpus(k)
        with torch.random.fork_rng(devices=[]):  # for exhibits that draw random numbers: the same in every run
            torch.manual_seed(0)
            return step_history(step, batches, test, make([p.clone() for p in lenet_params()], devices), devices, lr)

    @property
    def is_revealed(self) -> bool:
        """Whether the curves of the exhibit are shown: a symptom was chosen."""
        return self.exhibit.value == RIGHT_CODE or self.exhibit.value in self.guesses

    def _draw(self) -> Any:
        name, k, lr = self.exhibit.value, self.k.value, self.lr.value
        if (exhibit := self.exhibits.get(name)) is None:
            self.histories = {RIGHT_CODE: self._run(train_batch, replicate, k, lr)}
        else:
            pairs = ((exhibit.right_step, exhibit.right_replicate), (exhibit.train_batch, exhibit.replicate))
            own = [self._run(step, make, k, lr) for step, make in pairs]
            self.histories = dict(zip((RIGHT_CODE, name), own, strict=True))
        shown = dict(self.histories)
        if exhibit is None or not self.is_revealed:
            shown = {RIGHT_CODE: shown[RIGHT_CODE], f"{name} {'(not shown yet)' if exhibit else 'again'}": History()}
        return drift_figure(shown, f"{k} replicas, learning rate {lr:g}")

    def _redraw(self) -> None:
        name = self.exhibit.value
        if name != self._asked:  # the symptom that is shown belongs to the exhibit before
            self._asked = name
            self.symptom.value, self.symptom.disabled = self.guesses.get(name, ASK), name == RIGHT_CODE
        elif self.symptom.value != ASK and name != RIGHT_CODE:
            self.guesses[name] = self.symptom.value
        exhibit = self.exhibits.get(name)
        self.code.value = f"<pre>{html.escape(chr(10).join(exhibit.changes if exhibit else []))}</pre>"
        self.plot.show(self._draw())
        self.summary.value = self._words()

    def _words(self) -> str:
        name, devices = self.exhibit.value, describe(try_gpus(self.k.value))
        words = f"<b>{html.escape(name)}</b> ({html.escape(devices)}). "
        if not self.is_revealed:
            return words + "Read the lines, and choose the symptom that you expect. Then its curves are shown."
        right, own = self.histories[RIGHT_CODE], self.histories[name]
        if exhibit := self.exhibits.get(name):
            guess = self.guesses[name]
            others = html.escape("; ".join(sign for sign in exhibit.signs if sign != guess))
            result = f"{'Right, and also' if guess in exhibit.signs else 'No'}: {others}." if others else "Right."
            words += f"You expected: {html.escape(guess)}. {result}<br>"
        times = own.moved[0] / right.moved[0]
        words += f"Measured: after {len(own.losses)} steps test loss {own.losses[-1]:.3g} (right code "
        words += f"{right.losses[-1]:.3g}), accuracy {own.accuracies[-1]:.1%} ({right.accuracies[-1]:.1%}), both of "
        words += f"replica 0; replica drift {own.drifts[-1]:.2%} of the weights. "
        words += f"The first step is {times:.2f} times as long as that of right code."
        if exhibit:
            words += f"<details><summary>symptom and fix</summary>Symptom: {html.escape(exhibit.symptom)}. Fix: "
            words += f"{html.escape(exhibit.fix)}.</details>"
        return words

    def _draw_static(self) -> str:
        return self.code.value + super()._draw_static()

    def __repr__(self) -> str:
        lines = html.unescape(self.code.value.removeprefix("<pre>").removesuffix("</pre>"))
        return "\n".join([super().__repr__(), *([lines] if lines else [])])


@lru_cache(2)
def _minibatches(num_epochs: int) -> tuple[list[tuple[torch.Tensor, torch.Tensor]], tuple[torch.Tensor, torch.Tensor]]:
    """Return the minibatches of all epochs, and test images with their labels."""
    train_iter, test_iter = load_data_fashion_mnist(sum(BATCH_SIZES), NUM_LOADED)
    X, y = next(iter(train_iter))
    X_test, y_test = (torch.cat(parts) for parts in zip(*test_iter, strict=True))
    batches = list(zip(X.split(list(BATCH_SIZES)), y.split(list(BATCH_SIZES)), strict=True)) * num_epochs
    return batches, (X_test, y_test)
