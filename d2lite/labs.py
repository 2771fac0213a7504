"""The laboratories of the chapters, book/labs, under the name d2lite.labs: what one chapter alone uses.

Python searches the folder in `__path__` for d2lite.labs.chapter_04 and the like, as it does for a package. So notebooks
of any folder, scripts and ranks import them by one name, from the copy of the book at hand.
"""

from d2lite.book import find_in_book
from notebook_ranks.shared.own_code import not_own

__all__: list[str] = []

__path__ = [str(find_in_book("book/labs"))]
not_own(__path__[0])
