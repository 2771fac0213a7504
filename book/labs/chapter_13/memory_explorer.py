"""Does a network fit into the memory of a device, in which stage of ZeRO, and what to change first?"""

import ipywidgets as widgets
from plotly.graph_objects import Figure
from torch import nn

from d2lite.widgets.explorer import Explorer
from d2lite.widgets.plotly_widget import PlotlyWidget
from d2lite.widgets.style import CLASS, control_style, sheet
from notebook_ranks.shared.checks import instance_of
from notebook_ranks.shared.format import format_bytes

from .memory import (
    MEMORY_MODELS,
    OPTIMIZER_NUMBERS,
    PRECISIONS,
    MemoryModel,
    MemoryPrediction,
    predict_memory,
    transformer_activations,
)
from .memory_figure import memory_bars

__all__ = ["MemoryExplorer"]

_DEVICES_GB = (8, 24, 80, 141)
_YOURS = "your network"
_STAGES = tuple(f"stage {stage}" for stage in range(4))


class MemoryExplorer(Explorer):
    """Bars of what a rank holds in each stage of ZeRO, over network, optimizer, precision, ranks, microbatch.

    `model`, `optimizer`, `precision`, `ranks`, `microbatch`, `checkpointing` and `device_gb` are the controls: set
    their `value` by hand or in code. `predictions` is what the bars show. Activations are those of the book's
    transformer with the sizes of the model (`transformer_activations`).

    Args:
        net: a network of your own, which is then one of the choices. Its parameters count; activations do not.

    Raises:
        TypeError: if `net` is not an nn.Module.
    """

    def __init__(self, net: nn.Module | None = None) -> None:
        names = [model.name for model in MEMORY_MODELS]
        self._num_params = 0
        if net is not None:
            instance_of("net", net, nn.Module)
            self._num_params = sum(param.numel() for param in net.parameters())
            names = [_YOURS, *names]
        style = [420, 110]
        self.model = widgets.Dropdown(options=names, value=names[0 if net else 2], **control_style("network", *style))
        self.optimizer = widgets.Dropdown(
            options=list(OPTIMIZER_NUMBERS), value="Adam", **control_style("optimizer", *style)
        )
        self.precision = widgets.Dropdown(options=list(PRECISIONS), value="mixed", **control_style("precision", *style))
        self.ranks = widgets.SelectionSlider(
            options=[2**i for i in range(13)], value=8, **control_style("ranks", *style)
        )
        self.microbatch = widgets.SelectionSlider(
            options=[2**i for i in range(7)], value=1, **control_style("microbatch", *style)
        )
        self.checkpointing = widgets.Checkbox(value=False, **control_style("checkpointing", *style))
        self.device_gb = widgets.Dropdown(options=_DEVICES_GB, value=24, **control_style("GB per device", *style))
        controls = [self.model, self.optimizer, self.precision, self.ranks, self.microbatch, self.checkpointing]
        controls.append(self.device_gb)
        self.summary = widgets.HTML(layout=widgets.Layout(min_height="84px", max_width="820px"))
        self.plot = PlotlyWidget(self._draw())
        self.view = widgets.VBox([sheet(), *controls, self.plot, self.summary])
        self.view.add_class(CLASS)
        self._follow(controls)

    def _sizes(self) -> MemoryModel | None:
        return next((model for model in MEMORY_MODELS if model.name == self.model.value), None)

    def _activations(self) -> float:
        model = self._sizes()
        if model is None:
            return 0.0
        return transformer_activations(
            self.microbatch.value,
            model.context,
            model.width,
            model.num_blocks,
            model.num_heads,
            model.num_characters,
            PRECISIONS[self.precision.value][0],
            self.checkpointing.value,
        )

    def _draw(self) -> Figure:
        model, kept = self._sizes(), self._activations()
        num_params = self._num_params if model is None else model.num_params
        self.predictions = {
            name: predict_memory(num_params, self.optimizer.value, self.precision.value, stage, self.ranks.value, kept)
            for stage, name in enumerate(_STAGES)
        }
        return memory_bars(self.predictions, self.device_gb.value * 1e9, "What a rank holds, stage by stage")

    def _redraw(self) -> None:
        self.plot.show(self._draw())
        self.summary.value = self._words()

    def _words(self) -> str:
        model = self._sizes()
        source = "" if model is None else f" Sizes of the network: {model.source}."
        return (
            f"{self._does_it_fit()}<br>The formula is the one of the ZeRO paper (Rajbhandari et al. 2020, "
            f"arXiv:1910.02054) and gives its Table 1.{source}"
        )

    def _does_it_fit(self) -> str:
        room = self.device_gb.value * 1e9
        fitting = [name for name, found in self.predictions.items() if found.total_n_bytes <= room]
        if fitting:
            return (
                f"<b>It fits from {fitting[0]} on</b>, with {self.device_gb.value} GB per device. A step needs more "
                "for moments: at least one complete block with its gradients."
            )
        least = self.predictions[_STAGES[-1]]
        missing = format_bytes(least.total_n_bytes - room)
        return f"<b>It does not fit</b>: {missing} are missing in stage 3. Change first: {self._first_change(least)}."

    def _first_change(self, least: MemoryPrediction) -> str:
        """Return the lever that acts on the largest part."""
        shared = least.total_n_bytes - least.activations_n_bytes
        if least.activations_n_bytes <= shared:
            return "more ranks, since parameters, gradients and state are larger than the activations"
        if not self.checkpointing.value:
            return "checkpointing, since activations are the largest part"
        if self.microbatch.value > 1:
            return "a smaller microbatch, since activations are still the largest part"
        return "the way to split: one example does not fit, and tensor or sequence parallelism divides it"
