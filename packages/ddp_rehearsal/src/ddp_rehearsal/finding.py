"""A finding of a rehearsal: what is wrong, on which ranks, in which step, at which line, and how to mend it."""

from dataclasses import dataclass

from ddp_rehearsal.observations import Place

__all__ = ["Finding"]


@dataclass(frozen=True)
class Finding:
    """What is wrong; `is_sure=False` makes it a note: something to look at, which may be intended.

    `kind` is "copies", "examples", "arithmetic", "devices", "files", "hang", "error" or "same" (as on one GPU). `ranks`
    is () if no rank is to blame, or it is not sure which one. `step` counts the updates from 1; 0 stands for none.
    """

    kind: str
    words: str
    repair: str
    ranks: tuple[int, ...] = ()
    step: int = 0
    place: Place | None = None
    is_sure: bool = True
