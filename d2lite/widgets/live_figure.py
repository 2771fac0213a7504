"""One output of a notebook: a plotly widget while it changes, a static figure afterwards.

A widget is shown only while its kernel runs, so what is saved must be static: plotly's JSON, a picture (SVG) for pages
without plotly, and text. JupyterLab's renderer of static figures does not follow updates, so a growing figure must be
a widget.
"""

import uuid
from collections.abc import Callable, Sequence
from typing import Any

from anywidget import AnyWidget
from ipywidgets import Layout, VBox, Widget
from plotly.basedatatypes import BaseFigure

from d2lite.figures.figure import Figure
from d2lite.figures.svg import figure_svg

__all__ = ["Live", "close_all", "figure_widget", "live_figure", "redraw", "refresh"]

_PLOTLY = "application/vnd.plotly.v1+json"
Bundle = dict[str, Any]  # MIME type -> data
Static = tuple[Figure, str, int]  # a figure that is complete, a line of text, the width of its picture in pixels


def _static_bundle(figure: Figure, text: str, width: int) -> Bundle:
    """Return the MIME bundle of a static figure: plotly's JSON, a picture (SVG), and the plain text that is given."""
    plotly = figure.to_dict() | {"config": {"responsive": True}}
    return {_PLOTLY: plotly, "image/svg+xml": figure_svg(figure, width), "text/plain": text}


class _Fit(AnyWidget):
    """Invisible; makes the plots next to it as wide as their boxes. Plotly itself reacts only to a new window size.

    Plotly redraws 100 ms after the last such event: figures that send more of them, in turn, would put it off for ever.
    """

    _esm = """
    export default { render({ el }) {
        const fit = () => {
            if (Date.now() - (window.d2liteFitAt ?? 0) < 600) return;
            for (const plot of el.closest(".widget-vbox")?.querySelectorAll(".js-plotly-plot") ?? [])
                if (plot._fullLayout && plot.clientWidth && Math.abs(plot._fullLayout.width - plot.clientWidth) > 1) {
                    window.d2liteFitAt = Date.now();
                    return window.dispatchEvent(new Event("resize"));
                }
        };
        const timer = setInterval(fit, 200);
        return () => clearInterval(timer);
    } };"""


def figure_widget() -> Any:
    """Return plotly's class FigureWidget, as in current_figure, loaded at the first call."""
    from d2lite.widgets.current_figure import CurrentFigure

    return CurrentFigure


def live_figure(figure: Figure) -> tuple[Any, VBox]:
    """Return (FigureWidget, box that keeps it as wide as the page allows) for a plotly figure."""
    widget = figure_widget()(figure)
    box = VBox([_Fit(layout=Layout(height="0", margin="0")), widget], layout=Layout(width="100%", overflow="hidden"))
    return widget, box


def redraw(widget: Any, figure: Figure) -> None:
    """Make a FigureWidget show `figure`, which has as many traces; in one message, so that nothing flickers."""
    with widget.drawing, widget.batch_update():
        for shown, trace in zip(widget.data, figure.data, strict=True):
            shown.update(trace.to_plotly_json())
        widget.layout.annotations = figure.layout.annotations  # an update of the layout removes none
        widget.update_layout(figure.layout.to_plotly_json())
    widget.describe()


def refresh(widget: Widget) -> None:
    """Send the complete state of all FigureWidgets inside `widget`, which is about to be shown.

    Plotly does so for a figure that is shown by itself. In a box, a page would draw a figure from the updates that it
    got before, and an update of some traces makes it forget the same properties of the others.
    """
    for child in getattr(widget, "children", ()):
        refresh(child)
    if isinstance(widget, BaseFigure):
        widget._repr_mimebundle_()


def close_all(widget: Widget) -> None:
    """Close a widget, all the widgets inside it, and their layouts and styles."""
    for other in (getattr(widget, "layout", None), getattr(widget, "style", None), *getattr(widget, "children", ())):
        if isinstance(other, Widget):
            close_all(other)
    widget.close()


class Live:
    """A figure that is shown by the first `push`, in the cell that runs, follows the later ones, and settles.

    It begins as a picture: a cell that ends immediately needs no widget, which is 5 MB for the page. The output above
    it gets the figure's words when it settles; a widget has its own.
    """

    def __init__(self, layout: dict[str, Any]) -> None:
        self.layout = layout
        self.display_id: str | None = None
        self.widget: Any = None
        self._box: VBox | None = None
        self._static = False
        figure_widget()  # modules are loaded here rather than in the loop
        Figure([{"type": "scatter", "line": {"width": 1}}], layout)

    def push(self, traces: Sequence[dict[str, Any]], make_static: Callable[[], Static]) -> None:
        """Show the traces; `make_static()` returns what pages without widgets show."""
        if self.display_id is None:
            self.display_id = uuid.uuid4().hex
            self._display({"text/html": "", "text/plain": ""}, "words", update=False)
            self._display(_without_plotly(_static_bundle(*make_static())), update=False)
        elif self.widget is None:
            self.widget, self._box = live_figure(Figure(traces, self.layout))
            self._display(self._box._repr_mimebundle_() | _without_plotly(_static_bundle(*make_static())))
        else:
            with self.widget.batch_update():
                for shown, trace in zip(self.widget.data, traces, strict=False):
                    shown.update(x=trace["x"], y=trace["y"], mode=trace["mode"])
            if len(traces) > len(self.widget.data):
                self.widget.add_traces(traces[len(self.widget.data) :])

    def settle(self, make_static: Callable[[], Static]) -> None:
        """Replace what is shown by the static figure and its words; the widget is closed once it is off the page."""
        if self.display_id is None:
            return
        figure, text, width = make_static()
        bundle = _static_bundle(figure, text, width)
        if self._static and self.widget is None:
            self._display(_without_plotly(bundle))  # the page makes a new figure only after another MIME type
        self._display(figure.words() | {"text/plain": ""}, "words")
        self._display(bundle)
        self._static = True
        if self.widget is not None:
            box = self._box

            def close_unseen(change: Any) -> None:  # closed any earlier, the page would report an error
                if not change.new:
                    close_all(box)

            self.widget.observe(close_unseen, "_view_count")
        self.widget = self._box = None

    def _display(self, bundle: Bundle, what: str = "figure", update: bool = True) -> None:
        from IPython.display import display

        display(bundle, raw=True, display_id=f"{self.display_id}-{what}", update=update)


def _without_plotly(bundle: Bundle) -> Bundle:
    """The bundle of a figure that will change: a page that reads plotly's JSON would show it and never update it."""
    return {mime: data for mime, data in bundle.items() if mime != _PLOTLY}
