"""The texts of objects of any class, such as the messages of errors: printable, and bounded in length."""

__all__ = ["printable", "text_of"]

MOST_CHARS = 1_000_000


def printable(text: str) -> str:
    """Return `text` as a plain str in which control characters and lone surrogates are escaped."""
    return "".join(c if c in "\n\t" or c.isprintable() else ascii(c)[1:-1] for c in str.__str__(text))


def text_of(thing: object) -> str:
    """Return `str(thing)` as a printable str of its first million characters, also if its `__str__` raises."""
    try:
        return printable(str(thing)[:MOST_CHARS])
    except BaseException as error:
        return f"(its __str__ raises {type(error).__name__})"
