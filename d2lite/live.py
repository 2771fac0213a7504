"""One output of a notebook: a plotly widget while it changes, a static figure afterwards.

A widget is seen only where its kernel lives, so what is saved must be static: plotly's JSON, a picture (SVG) for pages
without plotly, and text. Plotly's renderer of static figures does not follow updates, so the growing figure must not
be one.
"""

import base64
import sys
import uuid

import numpy as np

__all__ = ["Live", "kernel", "static_bundle"]

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


class Live:
    """A figure that is shown by the first `push`, in the cell that runs, follows the later ones, and settles."""

    def __init__(self, layout):
        self.layout, self.display_id, self.widget, self._shown = layout, None, None, False
        self._open()  # slow once in a kernel: better here than in the loop

    def _open(self):
        import nbformat  # noqa: F401  before FigureWidget, whose own way to it builds 38 grammars first (4 s)
        from plotly.graph_objects import FigureWidget

        self.widget = FigureWidget([{"type": "scatter", "line": {"width": 1}}], self.layout)
        self.widget.data = ()  # the first trace of a process loads modules
        self.widget._config = {"responsive": True, "displayModeBar": False}

    def push(self, traces, make_static):
        """Show the traces; `make_static()` returns the static bundle for pages without widgets."""
        if self.widget is None:
            self._open()
        if len(traces) > len(self.widget.data):
            self.widget.add_traces(traces[len(self.widget.data) :])
        with self.widget.batch_update():
            for shown, trace in zip(self.widget.data, traces, strict=True):
                shown.update(x=trace["x"], y=trace["y"], mode=trace["mode"])
        if not self._shown:
            static = make_static()
            del static[_PLOTLY]  # a page that knows both would take it
            self._display(self.widget._repr_mimebundle_() | static)
            self._shown = True

    def settle(self, make_static):
        """Put the static figure in the widget's place, if it was shown, and end the widget."""
        if self._shown:
            self._display(make_static())
        if self.widget is not None:
            self.widget.close()
        self.widget, self._shown = None, False

    def _display(self, bundle):
        from IPython.display import display

        update = self.display_id is not None
        self.display_id = self.display_id or uuid.uuid4().hex
        display(bundle, raw=True, display_id=self.display_id, update=update)
