"""A collective step by step: choose algorithm and devices, move through the steps, watch the sums grow."""

import html
from collections.abc import Callable
from typing import Any

import ipywidgets as widgets
import torch

from d2lite.collectives.on_devices import all_gather, all_reduce, broadcast, reduce, reduce_scatter
from d2lite.collectives.plans import ALGORITHMS, COLLECTIVES
from d2lite.figures.figure import picture
from d2lite.trace import Trace
from d2lite.widgets.explorer import Explorer
from d2lite.widgets.plotly_widget import PlotlyWidget
from d2lite.widgets.style import CLASS, control_style, row, sheet
from notebook_ranks.shared.checks import positive_int
from notebook_ranks.shared.format import format_bytes

from .collective_shapes import MOST_IN_SHAPE, collective_shape, shape_words
from .collective_steps import MOST_DEVICES, collective_figure, least_n_bytes

__all__ = ["CollectiveStepper", "trace_collective", "trace_summary"]

_CALLS: dict[str, Callable[..., Any]] = dict(
    zip(COLLECTIVES, (all_reduce, broadcast, reduce, reduce_scatter, all_gather), strict=True)
)
_NUMEL = 84_000  # float32: 336 KB, which 2, 3, 4, 5, 6, 7 and 8 devices divide without a remainder


def trace_collective(
    collective: str, algorithm: str, k: int, tensor: torch.Tensor | None = None, **options: Any
) -> Trace:
    """Return the Trace of a collective ("all_reduce", ...) of k tensors like `tensor`, by default 336 KB of float32.

    The collective really runs, on copies. `options` are its further arguments, for instance `per_host` or `src`.

    Raises:
        ValueError: for an unknown collective or algorithm, and for a number below 1.
        TypeError: for a `k` that is not a whole number.
    """
    if collective not in _CALLS:
        raise ValueError(f"collective: expected one of {', '.join(_CALLS)}, got {collective!r}.")
    positive_int("k", k)
    tensor = torch.zeros(_NUMEL) if tensor is None else tensor.detach()
    trace = Trace()
    _CALLS[collective]([tensor.clone() for _ in range(k)], algorithm=algorithm, trace=trace, **options)
    return trace


def trace_summary(trace: Trace, shows_least: bool = True) -> str:
    """Return in words (HTML) the steps of a collective, the bytes of the tensor, n, and those of the busiest device.

    The latter also as a multiple of n and, with `shows_least`, against the least.
    """
    sent, least = max(trace.sent_n_bytes(), default=0), least_n_bytes(trace) if shows_least else None
    if not trace.steps:
        return "One device holds everything by itself: it sends nothing."
    steps = f"{len(trace.steps)} step" + ("s" if len(trace.steps) > 1 else "")
    n = sum(trace.chunk_n_bytes)
    words = f"<b>{html.escape(trace.algorithm)}</b>, a tensor of n = {format_bytes(n)}: {steps}; the busiest device "
    words += f"sends {format_bytes(sent)}" + (f" = {sent / n:.3g} n" if n else "")
    if least:
        near = "the least that is possible" if sent <= least else "hardly more than the least possible"
        words += f", {near}" if sent < 1.005 * least else f", {sent / least:.3g} times the least possible"
    total = sum(trace.sent_n_bytes())
    return words + f", and all of them together {format_bytes(total)}" + (f" = {total / n:.3g} n." if n else ".")


class CollectiveStepper(Explorer):
    """The steps of a collective as a picture with a slider and a play button; a cell shows it.

    `algorithm`, `k`, `step` and `drawn_as` are the controls: set their `value` by hand or in code. "shape" draws the
    devices as a ring, a tree, a star or hosts, "grid" one row per device and one column per chunk; more than 8 devices
    have a grid only. `trace` is the Trace that is
    drawn. `collective` is one of "all_reduce", "broadcast", "reduce", "reduce_scatter", "all_gather"; each device has a
    copy of `tensor`, by default 336 KB of float32. Without `shows_least` it does not tell how few bytes the busiest
    device could send. Raises like `trace_collective`, and ValueError for more than 16
    devices.
    """

    def __init__(
        self,
        algorithm: str = "ring",
        k: int = 4,
        tensor: torch.Tensor | None = None,
        collective: str = "all_reduce",
        shows_least: bool = True,
    ) -> None:
        positive_int("k", k, MOST_DEVICES, "More rows cannot be read.")
        self.collective, self.tensor, self._drawn = collective, tensor, (algorithm, k)
        self.shows_least = shows_least
        self.trace = trace_collective(collective, algorithm, k, tensor)
        most = len(self.trace.steps)
        self.algorithm = widgets.Dropdown(options=ALGORITHMS, value=algorithm, **control_style("algorithm", 360, 80))
        self.k = widgets.IntSlider(value=k, min=1, max=max(8, k), **control_style("devices", 360, 80))
        self.step = widgets.IntSlider(value=0, min=0, max=most, **control_style("step", 360, 80))
        self.play = widgets.Play(value=0, min=0, max=most, interval=1000, show_repeat=False)
        self.drawn_as = widgets.ToggleButtons(options=["shape", "grid"], tooltips=["the devices", "a row per device"])
        self.drawn_as.style.button_width = "72px"
        self.shape, self.summary = widgets.HTML(), widgets.HTML()
        self.plot = PlotlyWidget(collective_figure(self.trace, 0, shows_least))
        controls = [row([self.algorithm, self.k]), row([self.step, self.play, self.drawn_as])]
        rows = [sheet(), *controls, self.shape, self.plot, self.summary]
        self.view = widgets.VBox(rows, layout=widgets.Layout(width="100%"))
        self.view.add_class(CLASS)
        self._link = widgets.jslink((self.play, "value"), (self.step, "value"))  # the page plays without the kernel
        self._follow([self.algorithm, self.k, self.step, self.drawn_as])

    def _redraw(self) -> None:
        chosen = self.algorithm.value, self.k.value
        if chosen != self._drawn:
            self._drawn = chosen
            self.trace = trace_collective(self.collective, *chosen, self.tensor)
            self.step.max = self.play.max = len(self.trace.steps)
            self.step.value = self.play.value = 0
        self.summary.value = trace_summary(self.trace, self.shows_least)
        step = min(self.step.value, len(self.trace.steps))
        has_shape = self.drawn_as.value == "shape" and self.trace.world_size <= MOST_IN_SHAPE
        self.shape.layout.display, self.plot.layout.display = ("block", "none") if has_shape else ("none", "block")
        self.shape.value = collective_shape(self.trace, step) if has_shape else ""
        self.plot.show(collective_figure(self.trace, step, self.shows_least))

    def _draw_static(self) -> str:
        if not self.shape.value:
            return super()._draw_static()
        step = min(self.step.value, len(self.trace.steps))
        return picture(self.shape.value, shape_words(self.trace, step)) + f"<p>{self.summary.value}</p>"
