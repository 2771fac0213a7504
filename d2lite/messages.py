"""The entries of book/messages.md: which of them is about an error."""

import functools
import re

from d2lite.book import find_in_book

__all__ = ["entry_about"]

FEWEST_CHARS = 16  # shorter texts, such as "exitcode: 1", stand in errors of many kinds


def entry_about(message: str) -> str:
    """Return a sentence that names the entry of book/messages.md about a message; "" if it has none.

    Of several entries it is the one that has the longest text in common with the message.

    Example:
        >>> entry_about("RuntimeError: Expected to have finished reduction in the prior iteration before ...")
        'book/messages.md has an entry about `Expected to have finished reduction`.'
    """
    found = [(len(text), text) for text, pattern in _texts() if pattern.search(message)]
    return f"book/messages.md has an entry about `{max(found)[1]}`." if found else ""


@functools.cache
def _texts() -> list[tuple[str, re.Pattern[str]]]:
    """Return the texts in the headings of the page, each with the pattern of a message that has it."""
    try:
        page = find_in_book("book/messages.md").read_text(encoding="utf-8")
    except OSError:  # without the book, nothing is explained
        return []
    headings = re.findall(r"(?m)^### (.*)$", page)
    texts = {text for heading in headings for text in re.findall(r"`([^`]+)`", heading) if len(text) >= FEWEST_CHARS}
    return [(text, re.compile(".*".join(map(re.escape, text.split("..."))), re.IGNORECASE)) for text in sorted(texts)]
