"""The fair comparison: two arms side by side, same seeds, same budget, and whether their difference is significant."""

import html
from dataclasses import replace
from typing import Any

import ipywidgets as widgets

from d2lite.figures.figure import Figure
from d2lite.widgets.style import control_style, row
from notebook_ranks.shared.checks import instance_of, positive_int, positive_number, whole_number

from .comparison import OPTIMIZERS, Arm, Trial, differences, run_arms, train_arm
from .comparison_figure import bands_figure
from .experiment import Experiment
from .significance import ArmComparison, compare_arms
from .warm_start import KEPT, start_net

__all__ = ["FairComparison"]

LOCKS = ("examples seen", "wall time")
_ARM_BATCH_SIZES = (32, 64, 128, 256, 512)
_EARLIER_SEED = 1_000_003  # of the network that was trained before, where something of it is kept


class FairComparison(Experiment):
    """Two arms, trained with the same seeds on the same budget; `comparison` says whether they differ.

    `controls` holds the controls by name; those of the arms are named "a.lr", "b.lr", and so on. `arms` are the two
    arms that they describe, and `trials` are the finished trainings. `comparison` compares the last accuracies, seed by
    seed (an ArmComparison); it is None until both arms have two seeds in common.

    Args:
        a: The first arm, with which the second is compared.
        b: The second arm.
        num_seeds: Trainings of each arm, 2 to 20.
        num_examples: How many training examples there are.
        num_epochs: The budget if the lock is "examples seen".
        seconds: The budget if the lock is "wall time": time of the steps and of loading, evaluation left out.
        lock: The budget that is the same for both arms.

    Raises:
        TypeError: if an arm is not an Arm, or a value is not a number.
        ValueError: if a number is out of range.
    """

    def __init__(
        self,
        a: Arm | None = None,
        b: Arm | None = None,
        num_seeds: int = 4,
        *,
        num_examples: int = 3000,
        num_epochs: int = 4,
        seconds: float = 0.5,
        lock: str = "examples seen",
    ) -> None:
        a, b = a or Arm("A: minibatches of 64"), b or Arm("B: twice the minibatch", batch_size=128)
        for name, arm in (("a", a), ("b", b)):
            instance_of(name, arm, Arm, hint='Write Arm("name", batch_size=128).')
        if a.name == b.name:
            raise ValueError(f"b: expected an arm with another name than a, got {b.name!r} twice.")
        self.num_examples, self._given = positive_int("num_examples", num_examples), (a, b)
        number = dict(continuous_update=False)
        common = {
            "lock": widgets.Dropdown(options=LOCKS, value=lock, **control_style("the same", 230, 70)),
            "num_seeds": widgets.IntSlider(
                whole_number("num_seeds", num_seeds, 2, 20), 2, 20, **number, **control_style("seeds", 260, 70)
            ),
            "num_epochs": widgets.IntSlider(
                positive_int("num_epochs", num_epochs, 20), 1, 20, **number, **control_style("epochs", 260, 70)
            ),
            "seconds": widgets.BoundedFloatText(
                value=positive_number("seconds", seconds), min=0.05, max=60, **control_style("seconds", 200, 70)
            ),
        }
        columns, controls = [], dict(common)
        for letter, arm in zip("ab", self._given, strict=True):
            own = _arm_controls(arm)
            controls |= {f"{letter}.{name}": control for name, control in own.items()}
            title = widgets.HTML(f"<b>{html.escape(arm.name)}</b>")
            layout = widgets.Layout(flex="1 1 300px", min_width="0")
            columns.append(widgets.VBox([title, *own.values()], layout=layout))
        self.arms, self._trained_as = self._given, (LOCKS[0], float(num_examples * num_epochs))
        self._trained = self._given
        self.comparison: ArmComparison | None = None
        self._build([row(common.values()), row(columns)], controls, 112)

    def _read(self) -> tuple[Arm, Arm]:
        """The arms that the controls describe. Raises ValueError if one does not fit."""
        found = []
        for letter, arm in zip("ab", self._given, strict=True):
            own = {name.split(".")[1]: c.value for name, c in self.controls.items() if name.startswith(f"{letter}.")}
            own["lr"] = float(f"{own['lr']:.3g}")
            found.append(replace(arm, **own))
        return found[0], found[1]

    def _prepare(self) -> int:
        self._trained = self.arms = self._read()
        value = {name: control.value for name, control in self.controls.items() if "." not in name}
        self._seeds, self._epochs = range(value["num_seeds"]), value["num_epochs"]
        self._seconds = value["seconds"] if value["lock"] == LOCKS[1] else None
        self._trained_as = (value["lock"], self._seconds or float(self._epochs * self.num_examples))
        self.comparison = None
        return 2 * value["num_seeds"]

    def _compute(self) -> None:
        used = None
        if any(arm.kept != "nothing" for arm in self._trained):
            before = replace(self._trained[0], kept="nothing")
            net = start_net(_EARLIER_SEED)
            train_arm(before, _EARLIER_SEED, net, num_examples=self.num_examples, num_epochs=self._epochs)
            used = net.state_dict()
        run_arms(
            self._trained,
            self._seeds,
            self.num_examples,
            num_epochs=self._epochs,
            seconds=self._seconds,
            used=used,
            on_trial=self._add,
        )

    def _by_arm(self) -> dict[str, list[Trial]]:
        trials = list(self.trials)
        return {arm.name: [trial for trial in trials if trial.arm.name == arm.name] for arm in self._given}

    def _draw(self) -> Figure:
        lock, budget = self._trained_as
        unit = "examples seen" if lock == LOCKS[0] else "seconds of training"
        return bands_figure(self._by_arm(), budget, unit, "mean of the seeds; band: from the lowest to the highest")

    def _result(self) -> str:
        try:
            self.arms = self._read()
        except ValueError as error:
            return f'<pre class="problem">{html.escape(str(error))}</pre>'
        differ = differences(*self.arms)
        names = ", ".join(differ).replace("_", " ") or "nothing"
        lines = [f"The arms differ in: <b>{html.escape(names)}</b>."]
        if len(differ) > 1:
            lines.append("A difference belongs to all of these together: no single one is shown to be the cause.")
        a, b = self._by_arm().values()
        of_a, of_b = ({trial.seed: trial.accuracy for trial in some} for some in (a, b))
        common = sorted(of_a.keys() & of_b.keys())
        if len(common) > 1:
            last_a, last_b = [of_a[seed] for seed in common], [of_b[seed] for seed in common]
            self.comparison = compare_arms(last_a, last_b, paired=True)
            lines += [html.escape(self.comparison.in_words(self._given[0].name, self._given[1].name)), _spent(a, b)]
            if self.arms != self._trained:
                lines.append("The settings have changed since: press Run.")
        return "<br>".join(lines)


def _spent(a: list[Trial], b: list[Trial]) -> str:
    """What the trainings have taken, in words."""

    def mean(trials: list[Trial], name: str) -> float:
        return float(sum(getattr(trial, name) for trial in trials)) / len(trials)

    parts = [f"{mean(t, 'examples'):,.0f} examples in {mean(t, 'steps'):,.0f} steps" for t in (a, b)]
    times = [f"{mean(t, 'seconds'):.2f} s" for t in (a, b)]
    diverged = sum(trial.has_diverged for trial in (*a, *b))
    text = f"A training took {parts[0]}, {times[0]} (first arm), and {parts[1]}, {times[1]} (second arm)."
    return text + (f" {diverged} of them diverged." if diverged else "")


def _arm_controls(arm: Arm) -> dict[str, widgets.Widget]:
    """The controls of one arm, by the names of its settings."""

    def wide(name: str) -> dict[str, Any]:
        return control_style(name, 320, 130)

    return {
        "batch_size": widgets.Dropdown(
            options=sorted({*_ARM_BATCH_SIZES, arm.batch_size}), value=arm.batch_size, **wide("batch size")
        ),
        "lr": widgets.FloatLogSlider(
            value=arm.lr, base=10, min=-4, max=1.5, step=0.02, readout_format=".2g", **wide("lr")
        ),
        "optimizer": widgets.Dropdown(options=OPTIMIZERS, value=arm.optimizer, **wide("optimizer")),
        "momentum": widgets.BoundedFloatText(value=arm.momentum, min=0, max=0.99, **wide("momentum")),
        "warm_up_epochs": widgets.BoundedFloatText(value=arm.warm_up_epochs, min=0, max=20, **wide("warm-up, epochs")),
        "decay_share": widgets.BoundedFloatText(value=arm.decay_share, min=0, max=1, **wide("decay, share")),
        "num_gpus": widgets.IntSlider(arm.num_gpus, 1, max(4, arm.num_gpus), **wide("devices")),
        "kept": widgets.Dropdown(options=list(KEPT), value=arm.kept, **wide("kept, earlier run")),
    }
