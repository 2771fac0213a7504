"""The Scaling explorer: choose network, GPUs, links and algorithm, and read what is predicted for 1 to 10,000 GPUs."""

import threading

from d2lite.costs.alpha_beta import ALGORITHMS
from d2lite.costs.hardware import DEVICES, LINKS
from d2lite.costs.scaling import GPUS, Setup, outcomes, summary
from d2lite.costs.workloads import NETWORKS, named_workload

__all__ = ["BATCH_SIZES", "ScalingExplorer"]

BATCH_SIZES = tuple(2**i for i in range(21))  # 1 .. 1,048,576
EACH, ALL = "of each GPU", "of all together"
_CSS = """<style>
.d2lite-scaling .js-plotly-plot text { fill: var(--jp-ui-font-color1, #797979) !important; }
.d2lite-scaling .js-plotly-plot .hoverlayer text { fill: #fff !important; }
.d2lite-scaling .widget-html-content { color: var(--jp-ui-font-color1, inherit); line-height: 1.45; }
</style>"""


class ScalingExplorer:
    """Efficiency, seconds an epoch, where they go and what they cost, predicted by the cost model; a cell shows it.

    `controls` holds the controls by name: set their `value` by hand or in code. `setup` is the Setup they say,
    `outcomes` what is drawn. Arguments are fields of Setup, the number of GPUs, and the price of an hour of one GPU, in
    any money. Without torchvision only the small networks can be chosen. Needs ipywidgets, plotly and anywidget.
    """

    def __init__(self, k=64, price=0.0, **setup):
        import ipywidgets as widgets

        from d2lite.figures.scaling import efficiency_figure, step_figure
        from d2lite.widgets.live import live_figure

        self._figures = efficiency_figure, step_figure
        self.setup = Setup(**setup)
        self.controls = _controls(widgets, self.setup, k, price)
        self.outcomes = outcomes(self.setup, sorted({*GPUS, k}))
        self.efficiency, left = live_figure(efficiency_figure(self.outcomes, k))
        self.step, right = live_figure(step_figure(self.outcomes[1], self.outcomes[k]))
        self.summary = widgets.HTML(layout=widgets.Layout(min_height="90px"))
        row = dict(display="flex", flex_flow="row wrap", width="100%")
        height = f"{self.efficiency.layout.height + 4}px"
        for box in (left, right):
            box.layout = widgets.Layout(flex="1 1 380px", min_width="0", height=height, overflow="hidden")
        self.view = widgets.VBox(
            [
                widgets.HTML(_CSS, layout=widgets.Layout(height="0", margin="0")),
                widgets.Box(list(self.controls.values()), layout=widgets.Layout(**row)),
                widgets.Box([left, right], layout=widgets.Layout(**row)),
                self.summary,
            ],
            layout=widgets.Layout(width="100%", overflow="hidden"),
        )
        self.view.add_class("d2lite-scaling")
        self._lock = threading.Lock()
        for control in self.controls.values():
            control.observe(self._update, "value")
        self._update()

    def _update(self, change=None):
        with self._lock:  # callbacks may come on several threads; the last one draws the last values
            value = {name: control.value for name, control in self.controls.items()}
            k = value["k"]
            self.setup = _setup(value)
            self.outcomes = outcomes(self.setup, sorted({*GPUS, k}))
            efficiency_figure, step_figure = self._figures
            _redraw(self.efficiency, efficiency_figure(self.outcomes, k))
            _redraw(self.step, step_figure(self.outcomes[1], self.outcomes[k]))
            self.summary.value = summary(self.setup, k, value["price"])

    def _ipython_display_(self):
        from IPython.display import display

        display(self.view)


def _controls(widgets, setup, k, price):
    """The controls by name, in the order in which they are shown."""

    def wide(label, **more):
        layout = widgets.Layout(width="300px")
        return dict(description=label, layout=layout, style={"description_width": "112px"}) | more

    def named(presets, chosen):
        presets = presets if chosen in presets else (*presets, chosen)
        return dict(options=[(preset.name or "own", preset) for preset in presets], value=chosen)

    sizes, gpus = sorted({*BATCH_SIZES, setup.batch_size}), sorted({*GPUS, k})
    text = dict(continuous_update=False)
    number = text | dict(min=0.0, max=1e6)
    overhead_ms = round(1e3 * setup.overhead_s, 3)
    return {
        "network": widgets.Dropdown(options=_networks(), value=setup.network, **wide("network")),
        "batch_size": widgets.SelectionSlider(options=sizes, value=setup.batch_size, **wide("minibatch")),
        "shared": widgets.Dropdown(options=[EACH, ALL], value=ALL if setup.is_global else EACH, **wide("it is that")),
        "device": widgets.Dropdown(**named(DEVICES, setup.device), **wide("GPU")),
        "k": widgets.SelectionSlider(options=[(f"{n:,}", n) for n in gpus], value=k, **wide("GPUs")),
        "per_host": widgets.BoundedIntText(value=setup.per_host, min=1, max=10_000, **wide("GPUs in a host"), **text),
        "inside": widgets.Dropdown(**named(LINKS, setup.inside), **wide("link in a host")),
        "across": widgets.Dropdown(**named(LINKS, setup.across), **wide("link across hosts")),
        "algorithm": widgets.Dropdown(options=ALGORITHMS, value=setup.algorithm, **wide("all-reduce")),
        "overlap": widgets.Checkbox(value=setup.overlap, **wide("overlap backward")),
        "overhead_ms": widgets.BoundedFloatText(value=overhead_ms, **wide("overhead, ms"), **number),
        "spread": widgets.BoundedFloatText(value=100 * setup.spread, **wide("GPU spread, %"), **number),
        "price": widgets.BoundedFloatText(value=price, **wide("GPU-hour's price"), **number),
    }


def _networks():
    """The networks that can be had here; each is looked at once now, so that choosing it takes no time."""
    found = []
    for name in NETWORKS:
        try:
            named_workload(name)
        except ImportError:  # no torchvision
            continue
        found.append(name)
    return found


def _setup(value):
    names = ("network", "device", "batch_size", "per_host", "inside", "across", "algorithm", "overlap")
    typed = dict(overhead_s=value["overhead_ms"] / 1e3, spread=value["spread"] / 100)
    return Setup(**{name: value[name] for name in names}, is_global=value["shared"] == ALL, **typed)


def _redraw(figure, fresh):
    with figure.batch_update():  # one message: nothing flickers
        for shown, new in zip(figure.data, fresh.data, strict=True):
            for name in ("x", "y", "text", "textposition"):
                if new[name] is not None:
                    shown[name] = new[name]
        figure.layout.xaxis.range = fresh.layout.xaxis.range
        figure.layout.annotations = fresh.layout.annotations
