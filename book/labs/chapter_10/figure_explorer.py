"""Any figure that follows controls: a function computes the figure from the values of the controls."""

from collections.abc import Callable, Mapping
from typing import Any

import ipywidgets as widgets
from plotly.basedatatypes import BaseFigure

from d2lite.widgets.explorer import Explorer
from d2lite.widgets.plotly_widget import PlotlyWidget
from d2lite.widgets.style import CLASS, sheet

__all__ = ["FigureExplorer"]


class FigureExplorer(Explorer):
    """Show `draw(**values)` under the controls, and draw it again whenever one of them changes.

    Args:
        draw: takes the values of the controls by name, and returns a plotly figure.
        **controls: ipywidgets by name, in the order in which they are shown.

    `controls` holds the controls: set their `value` by hand or in code. `figure` is the figure that is shown.

    Raises:
        TypeError: if `draw` returns something other than a plotly figure, or a control is no widget with a value.
    """

    def __init__(self, draw: Callable[..., BaseFigure], /, **controls: widgets.Widget) -> None:
        for name, control in controls.items():
            if not hasattr(control, "value"):
                raise TypeError(f"{name}: expected a control of ipywidgets with a value, got {control!r}.")
        self.controls: Mapping[str, Any] = controls
        self._draw = draw
        self.plot = PlotlyWidget(self._drawn())
        self.summary = widgets.HTML()
        rows = [sheet(), *controls.values(), self.plot, self.summary]
        self.view = widgets.VBox(rows, layout=widgets.Layout(width="100%", overflow="hidden"))
        self.view.add_class(CLASS)
        self._follow(controls.values())

    def _drawn(self) -> BaseFigure:
        figure = self._draw(**{name: control.value for name, control in self.controls.items()})
        if not isinstance(figure, BaseFigure):
            raise TypeError(f"draw: expected a plotly figure, got {type(figure).__name__}. Return the figure.")
        return figure

    def _redraw(self) -> None:
        self.plot.show(self._drawn())
