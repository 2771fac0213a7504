"""A live comparison of the three ways to split training: choose model, devices and batch size, read what is sent."""

from collections.abc import Callable
from functools import cache

import ipywidgets as widgets
import torch
from plotly.graph_objects import Figure
from torch import nn

from d2lite.models import lenet_layers, mlp_layers, resnet18, simple_cnn_layers
from d2lite.widgets.explorer import Explorer
from d2lite.widgets.plotly_widget import PlotlyWidget
from d2lite.widgets.style import CLASS, control_style, sheet
from notebook_ranks.shared.format import format_bytes

from .partition_figure import traffic_bars
from .partitioning import WAYS, Layer, all_ways, layers_of

__all__ = ["NETS", "PartitionExplorer", "sizes_of", "traffic_summary"]

_PARTITION_BATCH_SIZES = tuple(2**i for i in range(3, 13))  # 8 .. 4096

# makers of networks for images [b, 1, 28, 28], their layers one after another
NETS: dict[str, Callable[[], nn.Sequential]] = {
    "LeNet": lenet_layers,
    "SimpleCNN": simple_cnn_layers,
    "ResNet-18, width 8": lambda: resnet18(10, width=8),
    "ResNet-18, width 64": lambda: resnet18(10, width=64),
    "MLP, three layers of 4096": mlp_layers,
}


@cache
def sizes_of(model: str, batch_size: int) -> list[Layer]:
    """Return layers_of NETS[model] for `batch_size` images of 28x28, found on the device "meta": no memory, no time.

    Raises ValueError for a model that is not in NETS.
    """
    if model not in NETS:
        raise ValueError(f"model: expected one of {', '.join(NETS)}, got {model!r}.")
    with torch.device("meta"):
        return layers_of(NETS[model](), torch.empty(batch_size, 1, 28, 28))


def traffic_summary(model: str, k: int, batch_size: int) -> str:
    """Return in words (HTML) which way sends the fewest bytes for NETS[model] over k devices, and why."""
    layers = sizes_of(model, batch_size)
    traffics = {way: traffic for way, traffic in all_ways(layers, k).items() if traffic}
    params = format_bytes(sum(layer.params_n_bytes for layer in layers))
    if k == 1:
        return f"One device has all {params} of parameters and the complete minibatch: it sends nothing."
    least = min(traffics.values(), key=lambda traffic: traffic.n_bytes)
    what = {
        "data": f"gradients, as large as the parameters ({params}), whatever the batch size",
        "pipeline": f"the activations at {k - 1} cut{'s' if k > 2 else ''} between layers, and their gradients",
        "tensor": "the activations between all layers with weights, and their gradients",
    }
    name = WAYS[least.way].capitalize()
    words = f"<b>{name}</b> sends the fewest bytes, {format_bytes(least.n_bytes)}: {what[least.way]}."
    if "data" not in traffics:
        words += f" Data parallelism is not possible with {k} devices: there are {batch_size} examples."
    if "pipeline" not in traffics:
        parts = sum(layer.n_macs > 0 for layer in layers)
        words += f" Pipeline parallelism is not possible with {k} devices: there are {parts} layers with weights"
        words += ", a residual block taken as one." if "Residual" in {layer.kind for layer in layers} else "."
    if len(traffics) == len(WAYS):
        even = batch_size * traffics["data"].n_bytes / traffics["pipeline"].n_bytes
        words += f" At a batch size of about {even:,.0f}, data and pipeline parallelism send the same."
    return words


class PartitionExplorer(Explorer):
    """Bars of what each way sends in an iteration, over model, number of devices and batch size; a cell shows it.

    `model`, `k` and `batch_size` are the controls: set their `value` by hand or in code. `traffics` is what the bars
    show, as all_ways returns it.
    """

    def __init__(self, model: str = "LeNet", k: int = 2, batch_size: int = 256) -> None:
        self.model = widgets.Dropdown(options=list(NETS), value=model, **control_style("model", 420, 90))
        self.k = widgets.IntSlider(value=k, min=1, max=16, **control_style("devices", 420, 90))
        self.batch_size = widgets.SelectionSlider(
            options=_PARTITION_BATCH_SIZES, value=batch_size, **control_style("batch size", 420, 90)
        )
        self.summary = widgets.HTML(layout=widgets.Layout(min_height="84px", max_width="820px"))
        self.plot = PlotlyWidget(self._draw())
        self.view = widgets.VBox([sheet(), self.model, self.k, self.batch_size, self.plot, self.summary])
        self.view.add_class(CLASS)
        self._follow([self.model, self.k, self.batch_size])

    def _draw(self) -> Figure:
        self.traffics = all_ways(sizes_of(self.model.value, self.batch_size.value), self.k.value)
        return traffic_bars(self.traffics, "Bytes sent in one iteration")

    def _redraw(self) -> None:
        self.plot.show(self._draw())
        self.summary.value = traffic_summary(self.model.value, self.k.value, self.batch_size.value)
