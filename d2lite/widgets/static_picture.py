"""A static picture beside a widget, for pages on which the widget cannot be shown: exported or published ones.

The picture is an output of its own, right after that of the widget. Where the widget is shown, its style sheet hides
the picture. Where it is not, the picture hides what stands in the widget's place: an error message, or its text.
"""

import uuid
from collections.abc import Callable
from typing import Any

from notebook_ranks.shared.notebook import notebook_shell

__all__ = ["StaticPicture"]

# hides the output before the picture unless it shows a widget of ours
_ALONE = """<style>
.jp-OutputArea-child:has(+ .jp-OutputArea-child .d2lite-static):not(:has(.d2lite)) { display: none; }
</style>"""


class StaticPicture:
    """The picture of one widget: `make()` returns it as HTML; `text()` is in words, for a page without HTML."""

    def __init__(self, make: Callable[[], str], text: Callable[[], str]) -> None:
        self._make, self._text = make, text
        self._ids: list[str] = []  # of the outputs that show it
        self._last: dict[str, Any] = {}

    def show(self) -> None:
        """Put the picture on the page; a terminal shows none."""
        if notebook_shell() is not None:
            self._ids = [*self._ids[-7:], uuid.uuid4().hex]
            self._last = self._bundle()
            self._display(self._ids[-1], update=False)

    def update(self) -> None:
        """Make the pictures that are on pages show the present state."""
        if self._ids and notebook_shell() is not None:
            bundle = self._bundle()
            if bundle != self._last:
                self._last = bundle
                for name in self._ids:
                    self._display(name, update=True)

    def _display(self, name: str, update: bool) -> None:
        from IPython.display import display

        display(self._last, raw=True, display_id=name, update=update)

    def _bundle(self) -> dict[str, Any]:
        return {"text/html": f'{_ALONE}<div class="d2lite-static">{self._make()}</div>', "text/plain": self._text()}
