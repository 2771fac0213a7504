"""One output of a notebook: a plotly widget while it changes, a static figure afterwards.

A widget is seen only where its kernel lives, so what is saved must be static: plotly's JSON, a picture (SVG) for pages
without plotly, and text. Plotly's renderer of static figures does not follow updates, so the growing figure must not
be one.
"""

import base64
import sys
import uuid

import numpy as np
from anywidget import AnyWidget
from ipywidgets import Layout, VBox, Widget
from plotly.graph_objects import Figure

__all__ = ["Live", "close_all", "kernel", "live_figure", "static_bundle"]

_PLOTLY = "application/vnd.plotly.v1+json"


def kernel():
    """Return the IPython shell of this notebook's kernel, or None in a terminal."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return shell if hasattr(shell, "kernel") else None


def static_bundle(traces, layout, picture, text):
    """Return the MIME bundle of a static figure: plotly traces and layout, SVG text, plain text."""
    packed = [trace | {axis: _pack(trace[axis]) for axis in ("x", "y")} for trace in traces]
    return {
        _PLOTLY: {"data": packed, "layout": layout, "config": {"responsive": True}},
        "image/svg+xml": picture,
        "text/plain": text,
    }


def _pack(values):
    """An array as plotly.js reads it fastest."""
    return {"dtype": "f8", "bdata": base64.b64encode(np.asarray(values, "<f8").tobytes()).decode()}


class _Fit(AnyWidget):
    """Invisible; tells plotly of a new width beside it: by itself it heeds the window's alone."""

    _esm = """
    export default { render({ el }) {
        const fit = () => {
            for (const plot of el.closest(".widget-vbox")?.querySelectorAll(".js-plotly-plot") ?? [])
                if (plot._fullLayout && plot.clientWidth && Math.abs(plot._fullLayout.width - plot.clientWidth) > 1)
                    return window.dispatchEvent(new Event("resize"));
        };
        const timer = setInterval(fit, 200);
        return () => clearInterval(timer);
    } };"""


def live_figure(figure):
    """Return (FigureWidget, box that keeps it as wide as the page allows) for a plotly figure."""
    widget = _figure_widget()(figure)
    widget._config = {"responsive": True, "displayModeBar": False}
    box = VBox([_Fit(layout=Layout(height="0", margin="0")), widget], layout=Layout(width="100%", overflow="hidden"))
    return widget, box


def close_all(widget):
    """Close a widget, all it holds and what styles it."""
    for other in (getattr(widget, "layout", None), getattr(widget, "style", None), *getattr(widget, "children", ())):
        if isinstance(other, Widget):
            close_all(other)
    widget.close()


def _figure_widget():
    import nbformat  # noqa: F401  before FigureWidget, whose own way to it builds 38 grammars first (4 s)
    from plotly.graph_objects import FigureWidget

    return FigureWidget


class Live:
    """A figure that is shown by the first `push`, in the cell that runs, follows the later ones, and settles.

    It begins as a picture: a cell that is done at once needs no widget, which is 5 MB for the page.
    """

    def __init__(self, layout):
        self.layout, self.display_id, self.widget, self._box, self._static = layout, None, None, None, False
        _figure_widget()  # modules are loaded here rather than in the loop
        Figure([{"type": "scatter", "line": {"width": 1}}], layout)

    def push(self, traces, make_static):
        """Show the traces; `make_static()` returns the static bundle for pages without widgets."""
        if self.display_id is None:
            self._display(_without_plotly(make_static()))
        elif self.widget is None:
            self.widget, self._box = live_figure(Figure(traces, self.layout))
            self._display(self._box._repr_mimebundle_() | _without_plotly(make_static()))
        else:
            with self.widget.batch_update():
                for shown, trace in zip(self.widget.data, traces, strict=False):
                    shown.update(x=trace["x"], y=trace["y"], mode=trace["mode"])
            if len(traces) > len(self.widget.data):
                self.widget.add_traces(traces[len(self.widget.data) :])

    def settle(self, make_static):
        """Put the static figure in the place of what was shown, and end the widget once the page has let go of it."""
        if self.display_id is None:
            return
        if self._static and self.widget is None:
            self._display(_without_plotly(make_static()))  # the page makes a new figure only after another kind
        self._display(make_static())
        self._static = True
        if self.widget is not None:
            box = self._box  # closed any earlier, the page would report on a line that is cut
            self.widget.observe(lambda change: change.new or close_all(box), "_view_count")
        self.widget = self._box = None

    def _display(self, bundle):
        from IPython.display import display

        update = self.display_id is not None
        self.display_id = self.display_id or uuid.uuid4().hex
        display(bundle, raw=True, display_id=self.display_id, update=update)


def _without_plotly(bundle):
    """The bundle for what will change: a page that knows plotly's JSON would take it and stand still."""
    return {kind: data for kind, data in bundle.items() if kind != _PLOTLY}
