"""Sentences about what is not as on a real GPU: each is said once per process, as a warning."""

import warnings

__all__ = ["say_once"]

_said: set[str] = set()


def say_once(sentence: str) -> None:
    """Warn with this sentence (a UserWarning that begins with "pretend GPUs: "), unless this process has done so."""
    if sentence not in _said:
        _said.add(sentence)
        warnings.warn(f"pretend GPUs: {sentence}", stacklevel=3)
