"""What was computed or sent, by whom, when and how many bytes: plain records that figures are drawn from."""

from dataclasses import dataclass

__all__ = ["Event"]


@dataclass(frozen=True)
class Event:
    """One span on the lane of `rank`: `kind` says what it was ("forward", "all_reduce", ...), `name` which one.

    Times are seconds since the start of the step on that rank's own clock; `n_bytes` is what was sent, 0 for computing.
    """

    rank: int
    kind: str
    name: str
    start_s: float
    end_s: float
    n_bytes: int = 0
