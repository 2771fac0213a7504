"""Pages that explain messages: a package that has some says so here, and reports of failures ask for them."""

from collections.abc import Callable

__all__ = ["explain_by", "explanation_of"]

_explains: list[Callable[[str], str]] = []


def explain_by(function: Callable[[str], str]) -> None:
    """Ask `function(message)` for a sentence about where a message is explained; "" says that it does not know."""
    if function not in _explains:
        _explains.append(function)


def explanation_of(message: str) -> str:
    """Return a sentence about where a message is explained, or ""."""
    return next(filter(None, (explains(message) for explains in _explains)), "")
