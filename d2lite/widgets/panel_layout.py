"""What a panel looks like: buttons, progress, two figures and a table; it draws runs and starts none.

Sizes are fixed, so that nothing jumps; only the table at the end grows with the runs. Only what has changed is sent.
"""

import html
from collections.abc import Sequence
from typing import Any

from ipywidgets import widgets

from d2lite.figures import figure_layout, training_curves
from d2lite.figures.alternative_text import alternative_text
from d2lite.figures.figure import picture
from d2lite.figures.svg import figure_svg
from d2lite.figures.table import runs_table
from d2lite.training.run import Run, legends
from d2lite.widgets.live_figure import close_all, live_figure, redraw
from d2lite.widgets.style import CLASS, fixed, growing, row, sheet

__all__ = ["PanelLayout", "panel_picture"]

_BARS = 8  # runs in the figure of seconds; the table holds all
_LAYOUT = widgets.Layout


class PanelLayout:
    """The widgets of a panel: `widget` holds all, `train`, `stop`, `clear`, `save` and `interrupt` are its buttons."""

    def __init__(self, inputs: Sequence[widgets.Widget]) -> None:
        self.train = _button("Train", "play", "Start a run with these settings", button_style="primary")
        self.stop = _button("Stop", "stop", "End the run after the current step", disabled=True)
        self.clear = _button("Clear", "eraser", "Forget all runs")
        self.save = _button("Save", "save", "Write all runs to a JSON file")
        self.interrupt = _button("Interrupt", "bolt", "End a run that does not see Stop", button_style="warning")
        self.interrupt.layout.visibility = "hidden"  # it has its place all the same, so that nothing moves
        self.devices, self.status, self.table, self.messages = (widgets.HTML() for _ in range(4))
        self.progress = widgets.FloatProgress(max=1.0, layout=_LAYOUT(width="100%", height="10px", margin="4px 0"))
        self.curves, curves = live_figure(training_curves.curves([]))
        self.bars, bars = live_figure(training_curves.seconds_per_epoch([]))
        # what is shown now, so that only changes are sent
        self._look: list[tuple[str, dict[str, Any], str]] | None = None
        self._axes: tuple[str, dict[str, Any], dict[str, Any]] | None = None
        self._bar_values: list[tuple[str, tuple[float, ...]]] | None = None
        scrolled = _LAYOUT(flex="0 0 auto", overflow="visible")  # else the table's head scrolls away
        parts = [
            sheet(),
            row(inputs),
            row([self.train, self.stop, self.clear, self.save, self.interrupt]),
            fixed(self.devices, 44),
            self.progress,
            fixed(self.status, 24),
            row([_figure(curves, "2 1 420px"), _figure(bars, "1 1 280px")]),
            growing(widgets.VBox([self.table, self.messages], layout=scrolled), 84, 240),
        ]
        self.widget = widgets.VBox(parts, layout=_LAYOUT(width="100%", overflow="hidden"))
        self.widget.add_class(CLASS)
        self.draw([])

    def show_running(self, is_running: bool) -> None:
        """Enable the buttons that make sense now."""
        self.train.disabled = self.clear.disabled = is_running
        self.stop.disabled = not is_running
        if not is_running:
            self.show_interrupt(False)

    def show_interrupt(self, is_shown: bool) -> None:
        """Show the button Interrupt, or an empty place of its size."""
        self.interrupt.layout.visibility = "visible" if is_shown else "hidden"

    def show_status(self, status: str, fraction: float | None = None) -> None:
        """Show the status line, and the progress (0..1) if given."""
        self.status.value = html.escape(status)
        if fraction is not None:
            self.progress.value = fraction

    def show_devices(self, devices: str, dataset: str) -> None:
        """Show which devices train, or would train, and on which data."""
        self.devices.value = f"Devices: <b>{html.escape(devices)}</b><br>Data: <b>{html.escape(dataset)}</b>"

    def show_messages(self, printed: str = "", problem: str = "") -> None:
        """Show the last lines that were printed, and a problem in plain words beneath them."""
        last = "\n".join(line[-1000:] for line in printed.splitlines()[-20:])[-4096:]
        parts = [("printed", last), ("problem", problem)]
        self.messages.value = "".join(f'<pre class="{kind}">{html.escape(text)}</pre>' for kind, text in parts if text)

    def draw(self, runs: Sequence[Run]) -> None:
        """Draw the runs: curves, bars and table."""
        names = legends(runs)
        self._draw_curves(runs, names)
        self._draw_bars(runs, names)
        self.table.value = runs_table(runs)

    def _draw_curves(self, runs: Sequence[Run], names: Sequence[str]) -> None:
        traces, axes = training_curves.curve_traces(runs, names), training_curves.axes(runs)
        look = [(t["name"], t["line"], t["mode"]) for t in traces]
        with self.curves.drawing, self.curves.batch_update():
            if axes != self._axes:
                title, xaxis, yaxis = self._axes = axes
                self.curves.update_layout(title_text=title, xaxis=xaxis, yaxis=yaxis)
            if look == self._look:
                for shown, trace in zip(self.curves.data, traces, strict=True):
                    if len(shown.x) != len(trace["x"]) or len(trace["x"]) == figure_layout.MAX_POINTS:
                        shown.x, shown.y = trace["x"], trace["y"]
        if look != self._look:
            with self.curves.drawing:
                self.curves.data = ()
                self.curves.add_traces(traces)
            self._look = look
        self.curves.describe()

    def _draw_bars(self, runs: Sequence[Run], names: Sequence[str]) -> None:
        values = [(name, tuple(run.seconds)) for run, name in zip(runs, names, strict=True)]
        if values != self._bar_values:
            self._bar_values, first = values, max(0, len(runs) - _BARS)
            redraw(self.bars, training_curves.seconds_per_epoch(runs[first:], names[first:], first))

    def close(self) -> None:
        """Take all widgets off the page."""
        close_all(self.widget)


def panel_picture(runs: Sequence[Run]) -> str:
    """Return the curves of the runs as a picture, and their table beneath it (HTML)."""
    figure = training_curves.curves(runs)
    return picture(figure_svg(figure), alternative_text(figure)) + runs_table(runs)


def _button(text: str, icon: str, tooltip: str, **options: Any) -> widgets.Button:
    return widgets.Button(description=text, icon=icon, tooltip=tooltip, layout=_LAYOUT(width="96px"), **options)


def _figure(figure: widgets.Box, flex: str) -> widgets.Box:
    height = f"{figure_layout.layout()['height'] + 4}px"
    return widgets.Box([figure], layout=_LAYOUT(flex=flex, min_width="0", height=height, display="block"))
