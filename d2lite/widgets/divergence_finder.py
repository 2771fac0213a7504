"""The divergence finder: two runs step by step, and the first tensor in which they differ, with picture and line."""

import html
import math

import ipywidgets as widgets
import torch

from d2lite._checks import instance_of
from d2lite.bugs import Comparison, Write
from d2lite.bugs.write_recorder import GRADIENT, WEIGHT
from d2lite.figures.divergence import divergence_figure, tensor_picture
from d2lite.widgets.explorer import Explorer
from d2lite.widgets.plotly_widget import PlotlyWidget
from d2lite.widgets.style import CLASS, control_style, row, sheet

__all__ = ["DivergenceFinder"]


class DivergenceFinder(Explorer):
    """A slider over the steps of two runs that were compared; a cell shows it.

    `step` and `tensor` are the controls: set their `value` by hand or in code. It begins at the first difference that
    is more than rounding. Pictures of the tensors are there for that step, the one before and the one after it.

    Args:
        comparison: the result of `find_divergence` or `compare_replicas`.

    Raises:
        TypeError: if it is no Comparison.

    Example:
        >>> from d2lite import lenet_params, replicate, train_batch, try_gpus
        >>> from d2lite.bugs import compare_replicas, record_steps
        >>> devices, batches = try_gpus(2), [(torch.rand(4, 1, 28, 28), torch.arange(4))]
        >>> run = record_steps(train_batch, batches, replicate(lenet_params(), devices), devices, 0.1)
        >>> finder = DivergenceFinder(compare_replicas(run))
        >>> finder.step.value
        1
    """

    def __init__(self, comparison: Comparison) -> None:
        self.comparison = instance_of("comparison", comparison, Comparison, hint="Call find_divergence(...) first.")
        first, number = comparison.first, len(comparison.weights)
        self.step = widgets.IntSlider(
            value=first.step if first else 1, min=1, max=max(2, number), **control_style("step", 420, 60)
        )
        self.tensor = widgets.Dropdown(options=self._tensors(), **control_style("tensor", 420, 60))
        if first is not None:
            self.tensor.value = _key(first.write)
        self.summary = widgets.HTML(layout=widgets.Layout(min_height="250px", max_width="820px"))
        self.plot = PlotlyWidget(divergence_figure(comparison, self.step.value))
        self.view = widgets.VBox([sheet(), row([self.step, self.tensor]), self.plot, self.summary])
        self.view.add_class(CLASS)
        self._follow([self.step, self.tensor])

    def _tensors(self) -> list[tuple[str, tuple[bool, int, int]]]:
        """The gradients and weights of all replicas, as (name, (is a weight, replica, parameter))."""
        found = {_key(write): write.name for _, other in self.comparison.kept.values() for write in other.writes}
        first = self.comparison.first
        if first is not None:
            found[_key(first.write)] = first.write.name
        found = found or {(True, 0, 0): "not kept"}
        return [
            (f"{'weight' if key[0] else 'gradient'} {name}, replica {key[1]}", key)
            for key, name in sorted(found.items())
        ]

    def _redraw(self) -> None:
        self.plot.show(divergence_figure(self.comparison, self.step.value))
        self.summary.value = f"{html.escape(str(self.comparison))}<br>{self._at_step()}"

    def _at_step(self) -> str:
        """What is known of the step of the slider, with pictures where tensors were kept (HTML)."""
        step = self.step.value
        if step not in self.comparison.kept:
            return f"Step {step}: no pictures. Tensors are kept for the first difference, and one step around it."
        is_weight, rank, index = self.tensor.value
        one, other = (record.last(WEIGHT if is_weight else GRADIENT) for record in self.comparison.kept[step])
        write = other.get((rank, index))
        with_itself = self.comparison.kept[step][0] is self.comparison.kept[step][1]
        same = one.get((0, index)) if with_itself else one.get((rank, index), one.get((0, index)))
        if write is None or same is None:
            return f"Step {step}: this tensor was not written."
        line = (
            f"line {write.line}: <code>{html.escape(write.code)}</code>" if write.line else "a line that was not seen"
        )
        words = f"Step {step}, last written by {line}<br>"
        if write.tensor is None or same.tensor is None or write.tensor.shape != same.tensor.shape:
            return words + "Its values were not kept."
        apart = write.tensor.cpu() - same.tensor.cpu()
        return words + "".join(
            f'<span style="display: inline-block; margin: 8px 24px 0 0">{picture}</span>'
            for picture in (
                tensor_picture(same.tensor, "replica 0" if with_itself else "first run", _most(same.tensor)),
                tensor_picture(write.tensor, f"replica {rank}, here", _most(same.tensor)),
                tensor_picture(apart, f"difference, up to {_most(apart):.1e}", _most(same.tensor)),
            )
        )


def _key(write: Write) -> tuple[bool, int, int]:
    """Return (whether it is a weight, replica, parameter) of a write."""
    return write.operation == "update", write.rank, write.index


def _most(tensor: torch.Tensor) -> float:
    most = float(tensor.abs().max()) if tensor.numel() else 0.0
    return most if math.isfinite(most) and most else 1.0
