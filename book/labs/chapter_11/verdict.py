"""The verdict of a check on a learner's code: whether it passed, the name of what was found, and an explanation."""

from dataclasses import dataclass

__all__ = ["Verdict"]


@dataclass(frozen=True)
class Verdict:
    """The result of `check_step` or `check_replicas`: `passed`, the `name` of what was found, and `words` about it."""

    passed: bool
    name: str
    words: str

    def __str__(self) -> str:
        return f"{self.name}: {self.words}"

    def _ipython_display_(self) -> None:
        """Show nothing: the check has printed it already."""
