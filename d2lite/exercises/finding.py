"""What a check of a learner's code has found: a name, and words."""

from dataclasses import dataclass

__all__ = ["UNKNOWN", "Finding"]

UNKNOWN = "different, cause unknown"


@dataclass(frozen=True)
class Finding:
    """The result of `check_step` or `check_replicas`: `passed`, the `name` of what was found, and the `words` on it."""

    passed: bool
    name: str
    words: str

    def __str__(self) -> str:
        return f"{self.name}: {self.words}"

    def _ipython_display_(self) -> None:
        """Show nothing: the check has printed it."""
