"""A live comparison of the three ways to cut a training: choose model, devices and batch size, read what is sent."""

import threading
from collections import OrderedDict
from functools import cache

import torch
from torch import nn

from d2lite._format import format_bytes
from d2lite.costs.partitioning import WAYS, all_ways, layers_of
from d2lite.figures.partitioning import traffic_bars
from d2lite.models import resnet18

__all__ = ["BATCH_SIZES", "NETS", "PartitionExplorer", "summary", "sizes_of"]

BATCH_SIZES = tuple(2**i for i in range(3, 13))  # 8 .. 4096


def _lenet():
    layers = dict(conv1=nn.Conv2d(1, 20, 3), relu1=nn.ReLU(), pool1=nn.AvgPool2d(2))
    layers |= dict(conv2=nn.Conv2d(20, 50, 5), relu2=nn.ReLU(), pool2=nn.AvgPool2d(2), flatten=nn.Flatten())
    layers |= dict(linear1=nn.Linear(800, 128), relu3=nn.ReLU(), linear2=nn.Linear(128, 10))
    return nn.Sequential(OrderedDict(layers))


def _simple_cnn():
    layers = dict(conv=nn.Conv2d(1, 32, 3, padding=1), relu=nn.ReLU(), pool=nn.MaxPool2d(2), flatten=nn.Flatten())
    return nn.Sequential(OrderedDict(layers, linear=nn.Linear(32 * 14 * 14, 10)))


def _mlp():
    layers = dict(flatten=nn.Flatten(), linear1=nn.Linear(784, 4096), relu1=nn.ReLU())
    layers |= dict(linear2=nn.Linear(4096, 4096), relu2=nn.ReLU(), linear3=nn.Linear(4096, 4096), relu3=nn.ReLU())
    return nn.Sequential(OrderedDict(layers, linear4=nn.Linear(4096, 10)))


# makers of networks for images [b, 1, 28, 28], their layers one after another; models.py has the first two as modules
NETS = {
    "LeNet": _lenet,
    "SimpleCNN": _simple_cnn,
    "ResNet-18, width 8": lambda: resnet18(10, width=8),
    "ResNet-18, width 64": lambda: resnet18(10, width=64),
    "MLP, three layers of 4096": _mlp,
}


@cache
def sizes_of(model, batch_size):
    """Return layers_of NETS[model] for `batch_size` images of 28x28, found on the device "meta": no memory, no time.

    Raises ValueError for a model that is not in NETS.
    """
    if model not in NETS:
        raise ValueError(f"model: expected one of {', '.join(NETS)}, got {model!r}.")
    with torch.device("meta"):
        return layers_of(NETS[model](), torch.empty(batch_size, 1, 28, 28))


def summary(model, k, batch_size):
    """Return in words which way sends the fewest bytes for NETS[model] over k devices, and why."""
    layers = sizes_of(model, batch_size)
    traffics = {way: traffic for way, traffic in all_ways(layers, k).items() if traffic}
    params = format_bytes(sum(layer.params_n_bytes for layer in layers))
    if k == 1:
        return f"One device has all {params} of parameters and the whole minibatch: it sends nothing."
    least = min(traffics.values(), key=lambda traffic: traffic.n_bytes)
    what = {
        "data": f"gradients, as large as the parameters ({params}), whatever the batch size",
        "layers": f"the activations at {k - 1} cut{'s' if k > 2 else ''}, and their gradients",
        "network": "the activations between all layers with weights, and their gradients",
    }
    words = f"Cutting <b>{WAYS[least.way]}</b> sends least, {format_bytes(least.n_bytes)}: {what[least.way]}."
    if "data" not in traffics:
        words += f" The data cannot be cut for {k} devices: there are {batch_size} examples."
    if "layers" not in traffics:
        parts = sum(layer.n_macs > 0 for layer in layers)
        words += f" The layers cannot be cut for {k} devices: there are {parts} with weights"
        words += ", a residual block taken as one." if "Residual" in {layer.kind for layer in layers} else "."
    if len(traffics) == len(WAYS):
        even = batch_size * traffics["data"].n_bytes / traffics["layers"].n_bytes
        words += f" At a batch size of about {even:,.0f}, cutting the data and cutting the layers send the same."
    return words


class PartitionExplorer:
    """Bars of what each way sends in an iteration, over model, number of devices and batch size; a cell shows it.

    `model`, `k` and `batch_size` are the controls: set their `value` by hand or in code. `traffics` is what the bars
    show, as all_ways returns it. Where no browser looks on it works the same. Needs ipywidgets, plotly and anywidget.
    """

    def __init__(self, model="LeNet", k=2, batch_size=256):
        import ipywidgets as widgets
        import nbformat  # noqa: F401  (before plotly asks for it: loads four seconds faster)
        import plotly.graph_objects as go

        wide = dict(layout=widgets.Layout(width="420px"), style={"description_width": "90px"})
        self.model = widgets.Dropdown(options=list(NETS), value=model, description="model", **wide)
        self.k = widgets.IntSlider(value=k, min=1, max=16, description="devices", **wide)
        self.batch_size = widgets.SelectionSlider(
            options=BATCH_SIZES, value=batch_size, description="batch size", **wide
        )
        self.summary = widgets.HTML(layout=widgets.Layout(min_height="84px", max_width="820px"))
        self.figure = go.FigureWidget(self._draw())
        self.view = widgets.VBox([self.model, self.k, self.batch_size, self.figure, self.summary])
        self._lock = threading.Lock()
        for control in (self.model, self.k, self.batch_size):
            control.observe(self._update, "value")
        self._update()

    def _draw(self):
        self.traffics = all_ways(sizes_of(self.model.value, self.batch_size.value), self.k.value)
        return traffic_bars(self.traffics, "Bytes sent in one iteration")

    def _update(self, change=None):
        with self._lock:  # callbacks may come on several threads; the last one draws the last values
            fresh = self._draw()
            with self.figure.batch_update():  # one message: nothing flickers
                self.figure.data[0].x = fresh.data[0].x
                self.figure.data[0].customdata = fresh.data[0].customdata
                self.figure.layout.annotations = fresh.layout.annotations
            self.summary.value = summary(self.model.value, self.k.value, self.batch_size.value)

    def _ipython_display_(self):
        from IPython.display import display

        display(self.view)
