"""One output of a notebook: a plotly widget while it changes, a static figure afterwards.

A widget is shown only while its kernel runs, so what is saved must be static: plotly's JSON, a picture (SVG) for pages
without plotly, and text. JupyterLab's renderer of static figures does not follow updates, so a growing figure must be
a widget.
"""

import uuid
from collections.abc import Callable
from typing import Any

from ipywidgets import Widget

from d2lite.figures.figure import Figure
from d2lite.figures.figure_layout import layout
from d2lite.figures.svg import figure_svg
from d2lite.widgets.plotly_widget import PlotlyWidget

__all__ = ["Live", "close_all"]

_PLOTLY, _WIDGET = "application/vnd.plotly.v1+json", "application/vnd.jupyter.widget-view+json"
Bundle = dict[str, Any]  # MIME type -> data
Static = tuple[Figure, str, int]  # a figure that is complete, a line of text, the width of its picture in pixels


def _static_bundle(figure: Figure, text: str, width: int) -> Bundle:
    """Return the MIME bundle of a static figure: plotly's JSON, a picture (SVG), and the plain text that is given."""
    plotly = figure.to_dict() | {"config": {"responsive": True}}
    return {_PLOTLY: plotly, "image/svg+xml": figure_svg(figure, width), "text/plain": text}


def close_all(widget: Widget) -> None:
    """Close a widget, all the widgets inside it, and their layouts and styles."""
    for other in (getattr(widget, "layout", None), getattr(widget, "style", None), *getattr(widget, "children", ())):
        if isinstance(other, Widget):
            close_all(other)
    widget.close()


class Live:
    """A figure that is shown by the first `push`, in the cell that runs, follows the later ones, and settles.

    It begins as a picture: a widget needs 5 MB of code on the page, and a cell that ends immediately needs none. When
    it settles, the output above it gets the alternative text of the figure. A widget has its own.
    """

    def __init__(self) -> None:
        self.display_id: str | None = None
        self.widget: PlotlyWidget | None = None
        self._is_static = False
        Figure(
            [{"type": "scatter", "line": {"width": 1}}], layout()
        )  # loads plotly's modules, here and not in the loop

    def push(self, make_figure: Callable[[], Figure], make_static: Callable[[], Static]) -> None:
        """Show the figure as it is now; `make_static()` returns the one that pages without widgets show."""
        if self.display_id is None:
            self.display_id = uuid.uuid4().hex
            self._display({"text/html": "", "text/plain": ""}, "words", update=False)
            self._display(_without_plotly(_static_bundle(*make_static())), update=False)
        elif self.widget is None:
            self.widget = PlotlyWidget(make_figure())
            view = {"version_major": 2, "version_minor": 0, "model_id": self.widget.model_id}
            self._display({_WIDGET: view} | _without_plotly(_static_bundle(*make_static())))
        else:
            self.widget.show(make_figure())

    def settle(self, make_static: Callable[[], Static]) -> None:
        """Replace what is shown by the static figure and its words; the widget is closed once it is off the page."""
        if self.display_id is None:
            return
        figure, text, width = make_static()
        bundle = _static_bundle(figure, text, width)
        if self._is_static and self.widget is None:
            self._display(_without_plotly(bundle))  # the page makes a new figure only after another MIME type
        self._display(figure.words() | {"text/plain": ""}, "words")
        self._display(bundle)
        self._is_static = True
        if self.widget is not None:
            widget, self.widget = self.widget, None

            def close_unseen(change: Any) -> None:  # closed any earlier, the page would report an error
                if not change.new:
                    close_all(widget)

            widget.observe(close_unseen, "_view_count")

    def _display(self, bundle: Bundle, what: str = "figure", update: bool = True) -> None:
        from IPython.display import display

        display(bundle, raw=True, display_id=f"{self.display_id}-{what}", update=update)


def _without_plotly(bundle: Bundle) -> Bundle:
    """Return the bundle of a figure that will change: a page would show plotly's JSON and never update it."""
    return {mime: data for mime, data in bundle.items() if mime != _PLOTLY}
