"""A still next to a widget: the picture that a page without a kernel shows, an exported or a published one.

It is an output of its own. Where widgets live, their style sheet hides it; where they do not, it is all there is.
"""

import uuid
from collections.abc import Callable
from typing import Any

from d2lite.widgets.shell import kernel

__all__ = ["Still"]


class Still:
    """The still of one widget: `make()` returns it as HTML, and `text()` in words for a page without HTML."""

    def __init__(self, make: Callable[[], str], text: Callable[[], str]) -> None:
        self._make, self._text = make, text
        self._ids: list[str] = []  # of the outputs that show it
        self._last: dict[str, Any] = {}

    def show(self) -> None:
        """Put the still on the page, in a notebook; a terminal has none."""
        if kernel() is not None:
            self._ids = [*self._ids[-7:], uuid.uuid4().hex]
            self._last = self._bundle()
            self._display(self._ids[-1], update=False)

    def update(self) -> None:
        """Make the stills that are on pages show the state of now."""
        if self._ids and kernel() is not None:
            bundle = self._bundle()
            if bundle != self._last:
                self._last = bundle
                for name in self._ids:
                    self._display(name, update=True)

    def _display(self, name: str, update: bool) -> None:
        from IPython.display import display

        display(self._last, raw=True, display_id=name, update=update)

    def _bundle(self) -> dict[str, Any]:
        return {"text/html": f'<div class="d2lite-still">{self._make()}</div>', "text/plain": self._text()}
