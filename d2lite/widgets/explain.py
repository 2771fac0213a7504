"""An exception in plain words, of a length that fits the page, whatever its message is."""

import linecache
import traceback

__all__ = ["cut", "explain", "kind_of", "message_of"]

_MOST_CAUSES = 5  # of an exception that are shown


def explain(error: BaseException) -> str:
    """Return an exception in plain words: its kind, its message, its causes, and the learner's line that raised it.

    At most 4096 characters and 40 lines. An exception whose `__str__` raises is shown without its message.
    """
    text = f"{kind_of(error)}: {message_of(error)}"
    cause, seen = error.__cause__, {id(error)}
    while cause is not None and id(cause) not in seen and len(seen) <= _MOST_CAUSES:
        text += f"\ncaused by {kind_of(cause)}: {message_of(cause)}"
        seen.add(id(cause))
        cause = cause.__cause__
    frames = traceback.extract_tb(error.__traceback__)
    mine = [f for f in frames if "ipykernel" in f.filename or f.filename.startswith("<")]
    if not (mine or frames):
        return cut(text)
    frame = (mine or frames)[-1]
    line = frame.line or linecache.getline(frame.filename, frame.lineno or 0).strip()
    place = f"in {frame.name}, line {frame.lineno}: {line}"[:300]
    return f"{cut(text, 4096 - 300, 39)}\n{place}"


def cut(text: str, most: int = 4096, lines: int = 40) -> str:
    """Return `text` cut to `most` characters and `lines` lines, the last of which says how much is left out."""
    head, room = text[:most], most - 80
    if len(text) <= most and head.count("\n") < lines:
        return text
    kept = "\n".join(head[:room].split("\n")[: lines - 1])
    return f"{kept}\n... {len(text) - len(kept):,} characters more"


def kind_of(error: BaseException) -> str:
    """Return the name of the class of an exception, at most 100 characters of it."""
    return str(type.__dict__["__name__"].__get__(type(error)))[:100]  # whatever a metaclass says


def message_of(error: BaseException) -> str:
    """Return the message of an exception; making it may run a learner's `__str__`, which may fail."""
    try:
        return str(error)
    except Exception as other:
        return f"(no message: its __str__ raised {kind_of(other)})"
