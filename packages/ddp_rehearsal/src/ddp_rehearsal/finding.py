"""What a rehearsal found: each finding says what is wrong, where, in which step, and how to mend it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace

from ddp_rehearsal.observations import Place
from notebook_ranks.flight_recorder import FlightRecord

__all__ = ["KINDS", "Finding", "Rehearsal", "of_all_ranks", "with_allowed"]

KINDS = {
    "copies": "the ranks hold the same weights",
    "examples": "each rank trains on a part of the examples",
    "arithmetic": "gradients and updates are those that are meant",
    "devices": "each rank uses its own GPU",
    "files": "one rank writes each file",
    "hang": "all ranks call the same collectives",
    "error": "the script runs",
    "same": "the updates are those of one GPU",
    "costs": "messages and memory have not grown",
}

UNKNOWN = (
    "Not known without GPUs: speed, errors of NCCL itself, kernels that round differently, and the memory that CUDA "
    "takes."
)
# on real GPUs
NOT_LOOKED_AT = "Not looked at: speed, the memory that CUDA takes, and, with one GPU, messages between GPUs."


@dataclass(frozen=True)
class Finding:
    """What is wrong; `is_sure=False` makes it a note: something to look at, which may be intended.

    `kind` is one of `KINDS`. `ranks` is () if no rank is to blame, or it is not sure which one. `step` counts the
    updates from 1; 0 stands for none.
    """

    kind: str
    words: str
    repair: str
    _: KW_ONLY
    ranks: tuple[int, ...] = ()
    step: int = 0
    place: Place | None = None
    is_sure: bool = True


def with_allowed(found: "Rehearsal", allowed: Collection[str]) -> "Rehearsal":
    """Return a rehearsal whose findings of some kinds are notes: what the script does on purpose."""
    notes = [replace(one, is_sure=False) for one in found.findings if one.kind in allowed]
    return replace(
        found, findings=[one for one in found.findings if one.kind not in allowed], notes=[*notes, *found.notes]
    )


def of_all_ranks(found: Sequence[Finding]) -> list[Finding]:
    """Return what was found on single ranks as one finding, the first, of all of them."""
    return [replace(one, ranks=tuple(rank for of in found for rank in of.ranks)) for one in found[:1]]


@dataclass(frozen=True, kw_only=True)
class Rehearsal:
    """What a rehearsal found. `error` says why the script could not be run, "" if it could.

    `findings` are sure, `notes` are something to look at, and `facts` are sentences about the run. `records` and
    `outputs` hold the last collectives and the last lines of each rank. `same_as_one` says whether a comparison has
    shown that the updates are those of a run on one GPU; None without a comparison. `is_checked` is False if no update
    was seen, so that nothing could be compared. `costs` has what a step takes: "collectives", "bytes" that a rank
    hands to them, and "memory", the bytes of a GPU as predicted.
    """

    command: str
    gpus: int
    are_real: bool
    steps: int
    seconds: float
    findings: Sequence[Finding] = ()
    notes: Sequence[Finding] = ()
    facts: Sequence[str] = ()
    error: str = ""
    records: Mapping[int, FlightRecord] = field(default_factory=dict)
    outputs: Mapping[int, str] = field(default_factory=dict)
    same_as_one: bool | None = None
    is_checked: bool = True
    costs: Mapping[str, float] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """0 without findings; 1 with, or if runs were not shown to be the same; 2 if nothing was run, or checked."""
        if self.error or not (self.is_checked or self.findings):
            return 2
        return int(bool(self.findings) or self.same_as_one is False)

    @property
    def unknown(self) -> str:
        """The sentence about what the run did not find out."""
        return NOT_LOOKED_AT if self.are_real else UNKNOWN
