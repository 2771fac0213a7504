"""The pattern of the explorers: a change of a control -> compute -> draw the figures and the summary again."""

import threading
from collections.abc import Iterable

from ipywidgets import Box, Widget

from d2lite.widgets.live import refresh

__all__ = ["Explorer"]


class Explorer:
    """Controls, and a view that follows them; a cell shows the view. It works the same without a browser.

    A subclass makes its controls, figures and `view` in `__init__`, then calls `_follow` with the controls. Its
    `_redraw` reads the values of the controls and sets what the view shows.
    """

    view: Box

    def _follow(self, controls: Iterable[Widget]) -> None:
        """Call `_redraw` now, and whenever the value of a control changes."""
        self._lock = threading.RLock()  # one thread may enter twice: a redraw may set a control
        for control in controls:
            control.observe(self._update, "value")
        self._update()

    def _update(self, change: object = None) -> None:
        with self._lock:  # callbacks may arrive on several threads; the last one draws the last values
            self._redraw()

    def _redraw(self) -> None:
        raise NotImplementedError

    def _ipython_display_(self) -> None:
        from IPython.display import display

        refresh(self.view)
        display(self.view)
