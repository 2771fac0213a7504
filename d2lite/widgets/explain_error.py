"""Exceptions in plain words. Their length fits the page, however long the message of the exception is."""

import traceback

from notebook_ranks.shared.format import text_of
from notebook_ranks.shared.own_code import is_own_code

__all__ = ["truncate", "explain_error", "exception_name"]

_MOST_CAUSES = 5  # of an exception that are shown


def explain_error(error: BaseException) -> str:
    """Return an exception in plain words: its kind, its message, its causes, and the learner's line that raised it.

    The learner's line is the innermost one in a cell or in a file that is no library's; without one, the innermost of
    all. At most 4096 characters and 40 lines. An exception whose `__str__` raises is shown without its message.
    """
    text = f"{exception_name(error)}: {text_of(error)}"
    cause, seen = error.__cause__, {id(error)}
    while cause is not None and id(cause) not in seen and len(seen) <= _MOST_CAUSES:
        text += f"\ncaused by {exception_name(cause)}: {text_of(cause)}"
        seen.add(id(cause))
        cause = cause.__cause__
    frames = traceback.extract_tb(error.__traceback__)
    mine = [frame for frame in frames if is_own_code(frame.filename)]
    if not frames:
        return truncate(text)
    frame = (mine or frames)[-1]
    place = f"in {frame.name}, line {frame.lineno}: {frame.line}"[:300]
    return f"{truncate(text, 4096 - 301, 39)}\n{place}"


def truncate(text: str, most: int = 4096, lines: int = 40) -> str:
    """Return `text` cut to `most` characters and `lines` lines, the last of which says how much is left out."""
    head, room = text[:most], most - 80
    if len(text) <= most and head.count("\n") < lines:
        return text
    kept = "\n".join(head[:room].split("\n")[: lines - 1])
    return f"{kept}\n... {len(text) - len(kept):,} characters more"


def exception_name(error: BaseException) -> str:
    """Return the name of the class of an exception, cut to 100 characters."""
    return str(type.__dict__["__name__"].__get__(type(error)))[:100]  # a metaclass may have a `__name__` of its own
