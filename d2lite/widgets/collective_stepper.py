"""A collective step by step: choose algorithm and devices, move through the steps, watch the sums grow."""

import threading

import torch

from d2lite._checks import positive_int
from d2lite._format import format_bytes
from d2lite.collectives.on_devices import all_gather, all_reduce, broadcast, reduce, reduce_scatter
from d2lite.collectives.planner import ALGORITHMS, COLLECTIVES
from d2lite.figures.collectives import MOST, collective_figure, least_n_bytes
from d2lite.trace import Trace

__all__ = ["CollectiveStepper", "trace_collective", "summary"]

_CALLS = dict(zip(COLLECTIVES, (all_reduce, broadcast, reduce, reduce_scatter, all_gather), strict=True))
_NUMEL = 84_000  # float32: 336 KB, which 2, 3, 4, 5, 6, 7 and 8 devices share without a remainder


def trace_collective(collective, algorithm, k, tensor=None, **options):
    """Return the Trace of a collective ("all_reduce", ...) of k tensors like `tensor`, by default 336 KB of float32.

    It is really carried out, on copies. `options` are further ones of the collective, `per_host` or `src` for instance.
    Raises ValueError or TypeError.
    """
    if collective not in _CALLS:
        raise ValueError(f"collective: expected one of {', '.join(_CALLS)}, got {collective!r}.")
    positive_int("k", k)
    tensor = torch.zeros(_NUMEL) if tensor is None else tensor.detach()
    trace = Trace()
    _CALLS[collective]([tensor.clone() for _ in range(k)], algorithm=algorithm, trace=trace, **options)
    return trace


def summary(trace):
    """Return in words what a collective took: its steps, and the bytes of the busiest device against the least."""
    sent, least = max(trace.sent_n_bytes(), default=0), least_n_bytes(trace)
    if not trace.steps:
        return "One device has the whole by itself: it sends nothing."
    steps = f"{len(trace.steps)} step" + ("s" if len(trace.steps) > 1 else "")
    words = f"<b>{trace.algorithm}</b>: {steps}; the busiest device sends {format_bytes(sent)}"
    if least:
        near = "the least that is possible" if sent <= least else "hardly more than the least possible"
        words += f", {near}" if sent < 1.005 * least else f", {sent / least:.3g} times the least possible"
    return words + f", and all of them together {format_bytes(sum(trace.sent_n_bytes()))}."


class CollectiveStepper:
    """The steps of a collective as a picture with a slider and a play button; a cell shows it.

    `algorithm`, `k` and `step` are the controls: set their `value` by hand or in code. `trace` is the Trace that is
    drawn. `collective` is one of "all_reduce", "broadcast", "reduce", "reduce_scatter", "all_gather"; each device has a
    copy of `tensor`, by default 336 KB of float32. Needs ipywidgets, plotly and anywidget. Raises as `record`.
    """

    def __init__(self, algorithm="ring", k=4, tensor=None, collective="all_reduce"):
        import ipywidgets as widgets

        from d2lite.widgets.live import live_figure

        positive_int("k", k, MOST, "More rows cannot be read.")
        self.collective, self.tensor = collective, tensor
        self.trace = trace_collective(collective, algorithm, k, tensor)
        wide = dict(layout=widgets.Layout(width="360px"), style={"description_width": "80px"})
        self.algorithm = widgets.Dropdown(options=ALGORITHMS, value=algorithm, description="algorithm", **wide)
        self.k = widgets.IntSlider(value=k, min=1, max=max(8, k), description="devices", **wide)
        self.step = widgets.IntSlider(value=0, min=0, max=len(self.trace.steps), description="step", **wide)
        self.play = widgets.Play(value=0, min=0, max=len(self.trace.steps), interval=1000, show_repeat=False)
        self.summary = widgets.HTML(summary(self.trace))
        self.figure, box = live_figure(collective_figure(self.trace, 0))
        row = widgets.Layout(display="flex", flex_flow="row wrap")
        upper = widgets.Box([self.algorithm, self.k], layout=row)
        lower = widgets.Box([self.step, self.play], layout=row)
        self.view = widgets.VBox([upper, lower, box, self.summary], layout=widgets.Layout(width="100%"))
        self._lock = threading.RLock()
        self._link = widgets.jslink((self.play, "value"), (self.step, "value"))  # the page plays by itself
        self.step.observe(self._draw, "value")
        for control in (self.algorithm, self.k):
            control.observe(self._restart, "value")

    def _restart(self, change=None):
        with self._lock:  # callbacks may come on several threads; the last one draws the last values
            self.trace = trace_collective(self.collective, self.algorithm.value, self.k.value, self.tensor)
            self.step.max = self.play.max = len(self.trace.steps)
            self.step.value = self.play.value = 0
            self.summary.value = summary(self.trace)
            self._draw()

    def _draw(self, change=None):
        with self._lock, self.figure.batch_update():  # one message: nothing flickers
            fresh = collective_figure(self.trace, min(self.step.value, len(self.trace.steps)))
            for shown, new in zip(self.figure.data, fresh.data, strict=True):
                shown.update(new.to_plotly_json(), overwrite=True)
            self.figure.update_layout(fresh.layout.to_plotly_json())

    def _ipython_display_(self):
        from IPython.display import display

        display(self.view)
