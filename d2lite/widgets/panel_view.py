"""What a panel looks like: buttons, progress, two figures and a table; it draws runs and knows no training.

Sizes are fixed, and room is kept for what comes later, so that nothing jumps. Only what has changed is sent.
"""

import html

from ipywidgets import widgets

from d2lite.figures import runs as figures
from d2lite.figures.table import table
from d2lite.training.run import legends
from d2lite.widgets.live import close_all, live_figure

__all__ = ["View"]

_BARS = 8  # runs in the figure of seconds; the table holds all
_CSS = """<style>
.d2lite .widget-html, .d2lite .widget-html-content { height: auto; line-height: 1.4; margin: 0; }
.d2lite .widget-html-content { color: var(--jp-ui-font-color1, inherit); }
.d2lite .js-plotly-plot text { fill: var(--jp-ui-font-color1, #797979) !important; }
.d2lite .js-plotly-plot .hoverlayer text { fill: #fff !important; }
.d2lite table { border-collapse: collapse; font-size: 13px; width: 100%; }
.d2lite th, .d2lite td { text-align: left; padding: 3px 10px 3px 0; vertical-align: bottom; }
.d2lite tr { border-bottom: 1px solid var(--jp-border-color2, #888); background: none !important; }
.d2lite thead th { font-weight: 600; position: sticky; top: 0; background: var(--jp-layout-color0, Canvas); }
.d2lite tbody th, .d2lite td { font-weight: 400; white-space: nowrap; }
.d2lite .newest { flex-direction: column-reverse; } /* scrolled to its end */
.d2lite .newest > * { margin-bottom: auto; }
.d2lite pre { margin: 0; font-size: 12px; white-space: pre-wrap; color: inherit; background: none; }
.d2lite pre.problem { border-left: 4px solid #D55E00; padding-left: 8px; }
</style>"""
_LAYOUT = widgets.Layout


class View:
    """The widgets of a panel; `widget` holds them all, `train`, `stop`, `clear` and `save` are its buttons."""

    def __init__(self, inputs):
        self.train = _button("Train", "play", "Start a run with these settings", button_style="primary")
        self.stop = _button("Stop", "stop", "End the run after the step it is at", disabled=True)
        self.clear = _button("Clear", "eraser", "Forget all runs")
        self.save = _button("Save", "save", "Write all runs to a JSON file")
        self.labels, self.status, self.table, self.messages = (widgets.HTML() for _ in range(4))
        self.progress = widgets.FloatProgress(max=1.0, layout=_LAYOUT(width="100%", height="10px", margin="4px 0"))
        self.curves, curves = live_figure(figures.curves([]))
        self.bars, bars = live_figure(figures.seconds_per_epoch([]))
        self._shape = self._axes = self._bar_values = None
        parts = [
            widgets.HTML(_CSS, layout=_LAYOUT(height="0", margin="0")),
            _row(inputs),
            _row([self.train, self.stop, self.clear, self.save]),
            _fixed(self.labels, "44px"),
            self.progress,
            _fixed(self.status, "24px"),
            _row([_figure(curves, "2 1 420px"), _figure(bars, "1 1 280px")]),
            _fixed(self.table, "152px", newest=True),
            _fixed(self.messages, "84px", newest=True),
        ]
        self.widget = widgets.VBox(parts, layout=_LAYOUT(width="100%", overflow="hidden"))
        self.widget.add_class("d2lite")
        self.draw([])

    def running(self, is_running):
        """Enable the buttons that make sense now."""
        self.train.disabled = self.clear.disabled = is_running
        self.stop.disabled = not is_running

    def say(self, status, fraction=None):
        """Show the status line, and the progress (0..1) if given."""
        self.status.value = html.escape(status)
        if fraction is not None:
            self.progress.value = fraction

    def label(self, devices, dataset):
        """Show what trains, or would train, and on which data."""
        self.labels.value = f"Devices: <b>{html.escape(devices)}</b><br>Data: <b>{html.escape(dataset)}</b>"

    def show_messages(self, printed="", problem=""):
        """Show the last lines that were printed, and a problem in plain words beneath them."""
        last = "\n".join(printed.splitlines()[-20:])
        parts = [("printed", last), ("problem", problem)]
        self.messages.value = "".join(f'<pre class="{kind}">{html.escape(text)}</pre>' for kind, text in parts if text)

    def draw(self, runs):
        """Draw the runs: curves, bars and table."""
        names = legends(runs)
        self._draw_curves(runs, names)
        self._draw_bars(runs, names)
        self.table.value = table(runs)

    def _draw_curves(self, runs, names):
        traces, axes = figures.curve_traces(runs, names), figures.axes(runs)
        shape = [(t["name"], t["line"], t["mode"]) for t in traces]
        with self.curves.batch_update():
            if axes != self._axes:
                title, xaxis, yaxis = self._axes = axes
                self.curves.update_layout(title_text=title, xaxis=xaxis, yaxis=yaxis)
            if shape == self._shape:
                for shown, trace in zip(self.curves.data, traces, strict=True):
                    if len(shown.x) != len(trace["x"]) or len(trace["x"]) == figures.MAX_POINTS:
                        shown.x, shown.y = trace["x"], trace["y"]
        if shape != self._shape:
            self.curves.data = ()
            self.curves.add_traces(traces)
            self._shape = shape

    def _draw_bars(self, runs, names):
        values = [(name, tuple(run.seconds)) for run, name in zip(runs, names, strict=True)]
        if values != self._bar_values:
            self._bar_values, first = values, max(0, len(runs) - _BARS)
            new = figures.seconds_per_epoch(runs[first:], names[first:], first)
            with self.bars.batch_update():
                self.bars.data[0].update(new.data[0].to_plotly_json())
                self.bars.layout.xaxis.range = new.layout.xaxis.range

    def close(self):
        """Take all widgets off the page."""
        close_all(self.widget)


def _button(text, icon, tooltip, **options):
    return widgets.Button(description=text, icon=icon, tooltip=tooltip, layout=_LAYOUT(width="96px"), **options)


def _row(children):
    return widgets.Box(children, layout=_LAYOUT(display="flex", flex_flow="row wrap"))


def _fixed(child, height, newest=False):
    """A box of that height; with `newest` it shows the end of what is too long for it."""
    box = widgets.Box([child], layout=_LAYOUT(height=height, overflow="auto", flex="0 0 auto"))
    if newest:
        box.add_class("newest")
    else:
        box.layout.display = "block"
    return box


def _figure(figure, flex):
    height = f"{figures.layout()['height'] + 4}px"
    return widgets.Box([figure], layout=_LAYOUT(flex=flex, min_width="0", height=height, display="block"))
