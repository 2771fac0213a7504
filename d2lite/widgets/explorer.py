"""The pattern of the explorers: a change of a control computes and draws the figures and the summary again."""

import html
import re
import threading
from collections.abc import Iterable

from ipywidgets import HTML, Box, Widget
from plotly.basedatatypes import BaseFigure

from d2lite.figures.figure import picture
from d2lite.figures.svg import figure_svg
from d2lite.widgets.plotly_widget import PlotlyWidget
from d2lite.widgets.static_picture import StaticPicture
from notebook_ranks.shared.notebook import notebook_shell

__all__ = ["Explorer"]

_TAGS = re.compile("<[^<>]*>")


class Explorer:
    """Controls, and a view that follows them; a cell shows the view. It works the same without a browser.

    A subclass makes its controls, figures and `view` in `__init__`, then calls `_follow` with the controls. Its
    `_redraw` reads the values of the controls and sets what the view shows.
    """

    view: Box
    plot: PlotlyWidget
    summary: HTML

    @property
    def figure(self) -> BaseFigure:
        """The first figure, as it is shown now."""
        return self.plots[0].figure

    @property
    def plots(self) -> list[PlotlyWidget]:
        """The widgets of the figures, in their order."""
        return [self.plot]

    def _follow(self, controls: Iterable[Widget]) -> None:
        """Call `_redraw` now, and whenever the value of a control changes."""
        self._lock = threading.RLock()  # one thread may enter twice: a redraw may set a control
        for control in controls:
            control.observe(self._update, "value")
        self._static_picture = StaticPicture(self._draw_static, lambda: repr(self))
        self._update()

    def _update(self, change: object = None) -> None:
        with self._lock:  # callbacks may arrive on several threads; the last one draws the last values
            self._redraw()
            self._static_picture.update()

    def _redraw(self) -> None:
        raise NotImplementedError

    def _ipython_display_(self) -> None:
        if notebook_shell() is None:
            print(repr(self))
            return
        from IPython.display import display

        display(self.view._repr_mimebundle_() | {"text/plain": repr(self)}, raw=True)
        self._static_picture.show()

    def _draw_static(self) -> str:
        """The figures as pictures and the summary, for a page without a kernel (HTML)."""
        drawn = [picture(figure_svg(plot.figure), plot.alternative_text) for plot in self.plots]
        return "".join([*drawn, f"<p>{self.summary.value}</p>" if self.summary.value else ""])

    def __repr__(self) -> str:
        words = [plot.alternative_text for plot in self.plots]
        summary = html.unescape(_TAGS.sub("", self.summary.value))
        return "\n".join([type(self).__name__, *words, *([summary] if summary else [])])
