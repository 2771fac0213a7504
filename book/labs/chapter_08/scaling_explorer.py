"""The Scaling explorer: choose network, GPUs, links and algorithm, and read what is predicted for 1 to 10,000 GPUs."""

from collections.abc import Mapping, Sequence
from typing import Any

import ipywidgets as widgets

from d2lite.costs.alpha_beta import COST_FORMULAS
from d2lite.costs.hardware import DEVICES, LINKS
from d2lite.widgets.explorer import Explorer
from d2lite.widgets.plotly_widget import PlotlyWidget
from d2lite.widgets.style import CLASS, control_style, row, sheet

from .scaling import GPUS, ScalingPrediction, Setup, describe_scaling, predict_scaling
from .scaling_figure import efficiency_figure, step_figure
from .workloads import NETWORKS, named_workload

__all__ = ["ScalingExplorer"]

_SCALING_BATCH_SIZES = tuple(2**i for i in range(21))  # 1 .. 1,048,576
EACH, ALL = "each GPU", "all GPUs together"
# what is set: the controls, by name
_GROUPS = {
    "Training": ("network", "batch_size", "shared", "algorithm", "overlap", "overhead_ms", "spread"),
    "Machines and price": ("k", "device", "per_host", "inside", "across", "price"),
}


class ScalingExplorer(Explorer):
    """Efficiency, seconds per epoch, their parts and their price, predicted by the cost model; a cell shows it.

    `controls` holds the controls by name: set their `value` by hand or in code. `setup` is the Setup that they
    describe, `predictions` is what is drawn. Arguments are the number of GPUs, the price of one GPU for an hour, in any
    currency, and fields of Setup. Without torchvision only the small networks can be chosen.
    """

    def __init__(self, k: int = 64, price: float = 0.0, **setup: Any) -> None:
        self.setup = Setup(**setup)
        self.controls = _controls(self.setup, k, price)
        self.predictions = _predicted(self.setup, k)
        self.efficiency = PlotlyWidget(efficiency_figure(self.predictions, k))
        self.step = PlotlyWidget(step_figure(self.predictions[1], self.predictions[k]))
        self.summary = widgets.HTML()
        height = f"{self.efficiency.figure.layout.height + 4}px"
        for plot in (self.efficiency, self.step):
            plot.layout = widgets.Layout(flex="1 1 380px", min_width="0", height=height, overflow="hidden")
        groups = [_titled_column(title, [self.controls[name] for name in names]) for title, names in _GROUPS.items()]
        rows = [sheet(), row(groups), row([self.efficiency, self.step]), self.summary]
        self.view = widgets.VBox(rows, layout=widgets.Layout(width="100%", overflow="hidden"))
        self.view.add_class(CLASS)
        self._follow(self.controls.values())

    @property
    def plots(self) -> list[PlotlyWidget]:
        """The widgets of both figures: the efficiency, and where a step goes."""
        return [self.efficiency, self.step]

    def _redraw(self) -> None:
        value = {name: control.value for name, control in self.controls.items()}
        k = value["k"]
        self.setup = _setup(value)
        self.predictions = _predicted(self.setup, k)
        self.efficiency.show(efficiency_figure(self.predictions, k))
        self.step.show(step_figure(self.predictions[1], self.predictions[k]))
        self.summary.value = describe_scaling(self.setup, k, value["price"])


def _titled_column(title: str, controls: Sequence[widgets.Widget]) -> widgets.VBox:
    """A column of controls under its title; columns move below each other where the page is narrow."""
    head = widgets.HTML(f"<b>{title}</b>")
    return widgets.VBox([head, *controls], layout=widgets.Layout(width="320px", margin="0 12px 8px 0"))


def _predicted(setup: Setup, k: int) -> dict[int, ScalingPrediction | None]:
    return {n: predict_scaling(setup, n) for n in sorted({*GPUS, k})}


def _controls(setup: Setup, k: int, price: float) -> dict[str, Any]:
    """The controls by name, in the order in which they are shown."""

    def wide(description: str) -> dict[str, Any]:
        return control_style(description, 310, 98)

    def named(presets: tuple[Any, ...], chosen: object) -> dict[str, Any]:
        presets = presets if chosen in presets else (*presets, chosen)
        return dict(options=[(preset.name or "own", preset) for preset in presets], value=chosen)

    sizes, gpus = sorted({*_SCALING_BATCH_SIZES, setup.batch_size}), sorted({*GPUS, k})
    number = dict(min=0.0, max=1e6, continuous_update=False)
    overhead_ms = round(1e3 * setup.overhead_s, 3)
    return {
        "network": widgets.Dropdown(options=_networks(), value=setup.network, **wide("network")),
        "batch_size": widgets.SelectionSlider(options=sizes, value=setup.batch_size, **wide("minibatch")),
        "shared": widgets.Dropdown(options=[EACH, ALL], value=ALL if setup.is_global else EACH, **wide("… is for")),
        "device": widgets.Dropdown(**named(DEVICES, setup.device), **wide("GPU")),
        "k": widgets.SelectionSlider(options=[(f"{n:,}", n) for n in gpus], value=k, **wide("GPUs")),
        "per_host": widgets.BoundedIntText(
            value=setup.per_host, min=1, max=10_000, continuous_update=False, **wide("GPUs per host")
        ),
        "inside": widgets.Dropdown(**named(LINKS, setup.inside), **wide("inside a host")),
        "across": widgets.Dropdown(**named(LINKS, setup.across), **wide("across hosts")),
        "algorithm": widgets.Dropdown(options=list(COST_FORMULAS), value=setup.algorithm, **wide("all-reduce")),
        "overlap": widgets.Checkbox(value=setup.overlap, **wide("while computing")),
        "overhead_ms": widgets.BoundedFloatText(value=overhead_ms, **wide("overhead, ms"), **number),
        "spread": widgets.BoundedFloatText(value=100 * setup.spread, **wide("spread, %"), **number),
        "price": widgets.BoundedFloatText(value=price, **wide("price per hour"), **number),
    }


def _networks() -> list[str]:
    """The networks that can be built here; each workload is computed now, so that choosing it takes no time."""
    found = []
    for name in NETWORKS:
        try:
            named_workload(name)
        except ImportError:  # no torchvision
            continue
        found.append(name)
    return found


def _setup(value: Mapping[str, Any]) -> Setup:
    names = ("network", "device", "batch_size", "per_host", "inside", "across", "algorithm", "overlap")
    typed = dict(overhead_s=value["overhead_ms"] / 1e3, spread=value["spread"] / 100)
    return Setup(**{name: value[name] for name in names}, is_global=value["shared"] == ALL, **typed)
