"""The divergence finder: how far two runs are apart, and the first tensor in which they differ, with its line."""

import html
import math

import ipywidgets as widgets
import torch

from d2lite.widgets.explorer import Explorer
from d2lite.widgets.plotly_widget import PlotlyWidget
from d2lite.widgets.style import CLASS, control_style, row, sheet
from notebook_ranks.shared.checks import instance_of

from .divergence import Comparison
from .divergence_figure import divergence_figure, tensor_picture
from .write_recorder import GRADIENT, WEIGHT, Write

__all__ = ["DivergenceFinder"]


class DivergenceFinder(Explorer):
    """Two runs that were compared: how far apart they are in each step, and tensors of both; a cell shows it.

    `step` and `tensor` are the controls: set their `value` by hand or in code. They begin at the first difference that
    is more than rounding. Tensors are kept for that step, the one before and the one after it. Without such a
    difference there are no controls.

    Args:
        comparison: the result of `find_divergence` or `compare_replicas`.

    Raises:
        TypeError: if it is no Comparison.

    Example:
        >>> from d2lite import lenet_params, replicate, try_gpus
        >>> from d2lite import train_batch
        >>> from d2lite.labs.chapter_11.divergence import compare_replicas
        >>> from d2lite.labs.chapter_11.write_recorder import record_steps
        >>> devices, batches = try_gpus(2), [(torch.rand(4, 1, 28, 28), torch.arange(4))]
        >>> run = record_steps(train_batch, batches, replicate(lenet_params(), devices), devices, 0.1)
        >>> finder = DivergenceFinder(compare_replicas(run))
        >>> finder.comparison.first is None
        True
    """

    def __init__(self, comparison: Comparison) -> None:
        self.comparison = instance_of("comparison", comparison, Comparison, hint="Call find_divergence(...) first.")
        first, kept = comparison.first, sorted(comparison.kept)
        steps = [(f"step {step}", step) for step in kept] or [("no step", 0)]
        self.step = widgets.ToggleButtons(options=steps, value=first.step if first and kept else steps[0][1])
        self.step.style.button_width = "76px"
        self.tensor = widgets.Dropdown(options=self._tensors(), **control_style("tensor", 420, 60))
        if first is not None:
            self.tensor.value = _place_of(first.write)
        self.summary = widgets.HTML(layout=widgets.Layout(max_width="820px", margin="0 0 8px", flex="none"))
        self.pictures = widgets.HTML()
        self.plot = PlotlyWidget(divergence_figure(comparison, self.step.value or None))
        controls = [row([self.step, self.tensor])] if kept else []
        self.view = widgets.VBox([sheet(), self.summary, self.plot, *controls, self.pictures])
        self.view.add_class(CLASS)
        self._follow([self.step, self.tensor])

    def _tensors(self) -> list[tuple[str, tuple[bool, int, int]]]:
        """The gradients and weights of all replicas, as (name, (is a weight, replica, parameter))."""
        found = {_place_of(write): write.name for _, other in self.comparison.kept.values() for write in other.writes}
        first = self.comparison.first
        if first is not None:
            found[_place_of(first.write)] = first.write.name
        found = found or {(True, 0, 0): "not kept"}
        return [
            (f"{'weight' if key[0] else 'gradient'} {name}, replica {key[1]}", key)
            for key, name in sorted(found.items())
        ]

    def _redraw(self) -> None:
        self.plot.show(divergence_figure(self.comparison, self.step.value or None))
        self.summary.value = html.escape(str(self.comparison))
        self.pictures.value = self._at_step() if self.comparison.kept else ""

    def _draw_static(self) -> str:
        return super()._draw_static() + self.pictures.value

    def _at_step(self) -> str:
        """The tensor in both runs after the chosen step, as pictures, and the line that wrote it (HTML)."""
        step, (is_weight, rank, index) = self.step.value, self.tensor.value
        one, other = (record.last(WEIGHT if is_weight else GRADIENT) for record in self.comparison.kept[step])
        write = other.get((rank, index))
        with_itself = self.comparison.kept[step][0] is self.comparison.kept[step][1]
        same = one.get((0, index)) if with_itself else one.get((rank, index), one.get((0, index)))
        if write is None or same is None:
            return f"Step {step}: this tensor was not written."
        first = self.comparison.first
        words = ""  # of the first difference, the summary has said it
        if first is None or (step, self.tensor.value) != (first.step, _place_of(first.write)):
            line = f"line {write.line}: <code>{html.escape(write.code)}</code>"
            words = f"Step {step}, last written by {line if write.line else 'a line that was not seen'}<br>"
        if write.tensor is None or same.tensor is None or write.tensor.shape != same.tensor.shape:
            return words + "Its values were not kept."
        apart, most = write.tensor.cpu() - same.tensor.cpu(), _most(same.tensor)
        pictures = (
            tensor_picture(same.tensor, "replica 0" if with_itself else "first run", most),
            tensor_picture(write.tensor, f"replica {rank}" + ("" if with_itself else ", second run"), most),
            tensor_picture(apart, f"difference, up to {_most(apart):.2g}" if apart.any() else "difference: none", most),
        )
        shown = "".join(f'<span style="display: inline-block; margin: 8px 10px 0 0">{each}</span>' for each in pictures)
        return f"{words}Orange is above 0, blue below, the strongest colour {most:.2g}.<br>{shown}"


def _place_of(write: Write) -> tuple[bool, int, int]:
    """Return (whether it is a weight, replica, parameter) of a write."""
    return write.operation == "update", write.rank, write.index


def _most(tensor: torch.Tensor) -> float:
    most = float(tensor.abs().max()) if tensor.numel() else 0.0
    return most if math.isfinite(most) and most else 1.0
