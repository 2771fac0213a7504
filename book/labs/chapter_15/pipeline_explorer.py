"""The schedules of a pipeline: ranks, microbatches and the cost of a pass, predicted, and on real ranks measured."""

import html
from collections.abc import Callable, Sequence

import ipywidgets as widgets

from d2lite.figures.figure import Figure
from d2lite.figures.timeline import timeline_figure
from d2lite.trace import Event
from d2lite.widgets.explorer import Explorer
from d2lite.widgets.plotly_widget import PlotlyWidget
from d2lite.widgets.style import CLASS, control_style, sheet

from .pipeline_schedule import Pass, gpipe, one_f_one_b
from .pipeline_step import bubble_of, microbatches_held, predict_pipeline
from .torch_schedules import TORCH_SCHEDULES, torch_schedule

__all__ = ["PipelineExplorer"]

_BY_HAND = {"GPipe": gpipe, "1F1B": one_f_one_b}
Measure = Callable[[str, int], Sequence[Event]]  # of the schedule and the number of microbatches


class PipelineExplorer(Explorer):
    """A timeline of one step under a schedule of your choice, its bubble, and the microbatches that a rank holds.

    `schedule`, `ranks`, `microbatches`, `forward_ms`, `backward_ms` and `source` are the controls: set their `value` by
    hand or in code. Costs are those of one microbatch on one rank; a rank with two stages has half of them in each.
    `events` is what the figure shows; `bubble` is computed from it. Schedules except GPipe and 1F1B are PyTorch's, with
    two stages on each rank.

    Args:
        measure: runs a step on real ranks, measure(schedule, microbatches) -> its events; with it `source` has the
            choice "measured", for the schedules in `measurable`.
        num_ranks: on how many ranks `measure` runs.
        measurable: the schedules that `measure` can run.
    """

    def __init__(
        self, measure: Measure | None = None, num_ranks: int = 2, measurable: Sequence[str] = ("GPipe", "1F1B")
    ) -> None:
        self._measure, self._num_ranks, self._measurable = measure, num_ranks, measurable
        style = [420, 150]
        self.schedule = widgets.Dropdown(
            options=list(TORCH_SCHEDULES), value="1F1B", **control_style("schedule", *style)
        )
        self.ranks = widgets.IntSlider(value=4, min=1, max=8, **control_style("ranks", *style))
        self.microbatches = widgets.IntSlider(value=8, min=1, max=64, **control_style("microbatches", *style))
        self.forward_ms = widgets.FloatSlider(
            value=1, min=0.5, max=5, step=0.5, **control_style("forward pass, ms", *style)
        )
        self.backward_ms = widgets.FloatSlider(
            value=2, min=0.5, max=10, step=0.5, **control_style("backward pass, ms", *style)
        )
        sources = ["predicted", *(["measured"] if measure else [])]
        self.source = widgets.Dropdown(options=sources, **control_style("source", *style))
        controls = [self.schedule, self.ranks, self.microbatches, self.forward_ms, self.backward_ms]
        controls += [self.source] if measure else []
        self.events: list[Event] = []
        self.bubble = float("nan")
        self.summary = widgets.HTML(layout=widgets.Layout(min_height="64px", max_width="820px"))
        self.plot = PlotlyWidget(self._draw())
        self.view = widgets.VBox([sheet(), *controls, self.plot, self.summary])
        self.view.add_class(CLASS)
        self._follow(controls)

    def _passes(self) -> list[list[Pass]]:
        name, k, m = self.schedule.value, self.ranks.value, self.microbatches.value
        if name in _BY_HAND:
            return [_BY_HAND[name](stage, k, m) for stage in range(k)]
        return torch_schedule(name, k, m)

    def _draw(self) -> Figure:
        name, m = self.schedule.value, self.microbatches.value
        try:
            if self.source.value == "measured":
                return self._draw_measured(name, m)
            passes, per_rank = self._passes(), TORCH_SCHEDULES[name]
            ms = [self.forward_ms.value / per_rank, self.backward_ms.value / per_rank]
            self.events = predict_pipeline(passes, ms[0] / 1e3, ms[1] / 1e3)
        except (ValueError, RuntimeError) as error:  # also of ranks: WorkersError, NotImplementedError
            self.events, self.bubble, self._words = [], float("nan"), f"<b>Not drawn</b>: {html.escape(str(error))}"
            return Figure(layout={"title": {"text": "no schedule for these numbers"}})
        held = " · ".join(f"{microbatches_held(mine) / per_rank:g}" for mine in passes)
        self._words = f"{self._sizes()}, predicted. Microbatches that a rank holds at most, rank by rank: {held}."
        return timeline_figure(self.events, f"{name}, {self.ranks.value} ranks: one step, predicted")

    def _draw_measured(self, name: str, m: int) -> Figure:
        """Run the step, if the ranks that are there can do it."""
        if self._measure is None or name not in self._measurable or self.ranks.value != self._num_ranks:
            names = " and ".join(self._measurable)
            raise ValueError(f"measured are {names} on {self._num_ranks} ranks; everything else is predicted.")
        self.events = [event for event in self._measure(name, m) if event.kind != "wait"]
        self._words = f"{self._sizes()}, measured. The costs of a pass are those of the real stages, not the sliders'."
        return timeline_figure(self.events, f"{name}, {self._num_ranks} ranks: one step, measured")

    def _sizes(self) -> str:
        self.bubble = bubble_of(self.events)
        step_ms = 1e3 * (max(e.end_s for e in self.events) - min(e.start_s for e in self.events))
        length = f"{step_ms:.3g}" if step_ms < 100 else f"{step_ms:.0f}"
        return f"<b>{length} ms per step, bubble {self.bubble:.0%}</b>"

    def _redraw(self) -> None:
        self.plot.show(self._draw())
        self.summary.value = self._words
