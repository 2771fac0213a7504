"""Numbers as text: three digits and a unit."""

__all__ = ["format_bytes"]


def format_bytes(n_bytes):
    """Return a size in three digits and a unit: 904544 -> "905 KB"."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if n_bytes >= 0.9995 * size:
            value = n_bytes / size
            return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f} {unit}"
    return f"{round(n_bytes)} B"
