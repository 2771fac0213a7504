"""A puzzle: write the passes of each rank of a pipeline, under a limit of memory, in as short a step as possible."""

import html
from collections.abc import Sequence

import ipywidgets as widgets

from d2lite.figures.figure import Figure
from d2lite.figures.timeline import timeline_figure
from d2lite.trace import Event
from d2lite.widgets.explorer import Explorer
from d2lite.widgets.plotly_widget import PlotlyWidget
from d2lite.widgets.style import CLASS, control_style, sheet
from notebook_ranks.shared.checks import positive_int, true_or_false

from .pipeline_schedule import Pass, check_schedule, parse_passes, pass_order
from .pipeline_search import shortest_step
from .pipeline_step import bubble_of, microbatches_held, predict_pipeline

__all__ = ["SchedulePuzzle"]

_FORWARD, _BACKWARD = 1, 2  # milliseconds of a pass


class SchedulePuzzle(Explorer):
    """A line for each rank, in which you write its passes: "F0 F1 B0 B1", and the step that they are predicted to make.

    Rank i has stage i. A forward pass lasts 1 ms and a backward pass 2 ms; its halves I and W, where they are allowed,
    1 ms each. A schedule that cannot run is refused with the dependency that stands against it, and drawn up to there.
    One that can run is compared with `best_ms`, the shortest step of all schedules under the same limit, which an
    exhaustive search finds.

    `lines` holds the text fields: set their `value` by hand or in code. `is_legal`, `step_ms` and `is_solved` are what
    the puzzle says about them.

    Args:
        num_ranks: how many ranks, and stages: 1 to 4; with `split` to 3, since the search takes long.
        num_microbatches: how many microbatches go through: 1 to 8; with `split` to 6.
        most_held: the most microbatches whose activations a rank may hold at a time.
        split: whether a backward pass may be written as I and W.

    Raises:
        ValueError: if a number is out of range.
        TypeError: if an argument has another type.
    """

    def __init__(self, num_ranks: int = 2, num_microbatches: int = 4, most_held: int = 4, split: bool = False) -> None:
        self.split = true_or_false("split", split)
        self.num_ranks = positive_int("num_ranks", num_ranks, 3 if split else 4)
        self.num_microbatches = positive_int("num_microbatches", num_microbatches, 6 if split else 8)
        self.most_held = positive_int("most_held", most_held)
        self.best_ms = shortest_step(num_ranks, num_microbatches, most_held, _FORWARD, _BACKWARD, split)
        self.is_legal, self.is_solved, self.step_ms = False, False, float("nan")
        self.lines = [
            widgets.Text(continuous_update=False, placeholder="F0 B0 ...", **control_style(f"rank {rank}", 700, 60))
            for rank in range(num_ranks)
        ]
        letters = "F0 (forward pass of microbatch 0), B0 (its backward pass)"
        letters += ", or I0 and W0 (the two halves of B0)" if split else ""
        rules = (
            f"{num_microbatches} microbatches, at most {most_held} held on a rank at a time. "
            f"Write {letters}. Enter draws."
        )
        self.summary = widgets.HTML(layout=widgets.Layout(min_height="64px", max_width="820px"))
        self.plot = PlotlyWidget(self._draw())
        self.view = widgets.VBox([sheet(), widgets.HTML(rules), *self.lines, self.plot, self.summary])
        self.view.add_class(CLASS)
        self._follow(self.lines)

    def _draw(self) -> Figure:
        self.is_legal, self.is_solved, self.step_ms = False, False, float("nan")
        schedule: list[list[Pass]] = []
        if any(line.value.strip() for line in self.lines):
            try:
                schedule = [parse_passes(line.value, rank) for rank, line in enumerate(self.lines)]
                self._words = self._judged(schedule)
            except (ValueError, TypeError) as error:
                self._words = f"<b>Not yet</b>: {html.escape(str(error))}"
        else:
            self._words = "<b>Empty</b>: write the passes of each rank."
        events = self._up_to_the_error(schedule)
        if not events:
            return Figure(layout={"title": {"text": "nothing can run yet"}})
        return timeline_figure(events, "your schedule, predicted")

    def _judged(self, schedule: Sequence[Sequence[Pass]]) -> str:
        """Return the words for a schedule that can run; ValueError says why it cannot."""
        if not self.split and any(one.kind in "IW" for mine in schedule for one in mine):
            raise ValueError("in this puzzle a backward pass is one pass, B.")
        for rank, mine in enumerate(schedule):
            for number, one in enumerate(mine, 1):
                if one.stage != rank:
                    raise ValueError(f"rank {rank}, pass {number}: {one} is of stage {one.stage}; rank i has stage i.")
        check_schedule(schedule, self.num_ranks, self.num_microbatches)
        for rank, mine in enumerate(schedule):
            if (held := microbatches_held(mine)) > self.most_held:
                raise ValueError(
                    f"rank {rank} holds the activations of {held} microbatches at a time, and has memory for "
                    f"{self.most_held}. A {'W or B' if self.split else 'B'} must come before the next F."
                )
        events = predict_pipeline(schedule, _FORWARD, _BACKWARD)
        self.is_legal, self.step_ms = True, max(event.end_s for event in events)
        self.is_solved = self.step_ms <= self.best_ms
        words = f"It runs: <b>{self.step_ms:g} ms per step</b>, bubble {bubble_of(events):.0%}, predicted. "
        if self.is_solved:
            return f"{words}<b>Solved</b>: no schedule under this limit is shorter."
        return f"{words}The shortest step under this limit is {self.best_ms} ms."

    def _up_to_the_error(self, schedule: Sequence[Sequence[Pass]]) -> list[Event]:
        """Return the predicted events of the passes that can run, in milliseconds."""
        ran: list[list[Pass]] = [[] for _ in schedule]
        try:
            for rank, one in pass_order(schedule, self.num_ranks):
                ran[rank].append(one)
        except ValueError:
            pass  # the words say it
        return predict_pipeline(ran, _FORWARD / 1e3, _BACKWARD / 1e3)

    def _redraw(self) -> None:
        self.plot.show(self._draw())
        self.summary.value = self._words
