"""Numbers and objects as text: numbers with three digits and a unit, objects printable and bounded in length."""

from collections.abc import Iterable

__all__ = ["format_bytes", "format_money", "format_number", "format_seconds", "listed", "printable", "text_of"]

MOST_CHARS = 1_000_000


def format_bytes(n_bytes: float) -> str:
    """Return a size in three digits and a unit: 904544 -> "905 KB"."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if n_bytes >= 0.9995 * size:
            value = n_bytes / size
            return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f} {unit}"
    return f"{round(n_bytes)} B"


def format_number(value: float) -> str:
    """Return a number in three digits, or in all its digits before the point: 0.12345 -> "0.123", 1234.5 -> "1,234"."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def format_money(amount: float) -> str:
    """Return an amount of money with two decimals, or two digits if it is small: 1234.5 -> "1,234.50"."""
    return f"{amount:,.2f}" if amount >= 0.1 else f"{amount:.2g}"


def format_seconds(seconds: float) -> str:
    """Return a time in three digits and a unit: 0.0128 -> "12.8 ms"."""
    for unit, size, least in (("h", 3600, 7200), ("min", 60, 120), ("s", 1, 1), ("ms", 1e-3, 1e-3)):
        if seconds >= least:
            return f"{format_number(seconds / size)} {unit}"
    return f"{1e6 * seconds:.3g} µs" if seconds > 1e-9 else "0 ms"  # differences of equal times are not quite zero


def listed(words: Iterable[object]) -> str:
    """Return words, at least one, as a list in a sentence: [0, 1, 2] -> "0, 1 and 2"."""
    *most, last = map(str, words)
    return f"{', '.join(most)} and {last}" if most else last


def printable(text: str) -> str:
    """Return `text` as a plain str in which control characters and lone surrogates are escaped."""
    return "".join(c if c in "\n\t" or c.isprintable() else ascii(c)[1:-1] for c in str.__str__(text))


def text_of(thing: object) -> str:
    """Return `str(thing)` as a printable str of its first million characters, also if its `__str__` raises."""
    try:
        return printable(str(thing)[:MOST_CHARS])
    except BaseException as error:
        return f"(its __str__ raises {type(error).__name__})"
