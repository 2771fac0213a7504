"""The ranks' flight records -> which rank is guilty or only slow, and the first collective that does not match.

Pure functions. `RankHandle.given_up` decides when a rank counts as silent. `failures.py` names a rank whose own report
settles the matter, and asks here otherwise. `hang_evidence` has what differs between the ranks, `hang_causes` one
function for each cause, and `hang_words` the sentences.
"""

from notebook_ranks.hang_causes import CAUSES, Diagnosis
from notebook_ranks.hang_evidence import Evidence, Records, where_apart

__all__ = ["Diagnosis", "diagnose_hang", "first_mismatch"]


def first_mismatch(records: Records) -> tuple[str, int] | None:
    """Return (group, number) of the first collective that not all ranks of its group have called alike; else None.

    A rank that gave no record is not compared. Equal calls from different lines are a mismatch too, when one rank has
    skipped or added a call: from there on the ranks are one call apart.
    """
    return where_apart(records)


def diagnose_hang(records: Records) -> Diagnosis:
    """Return the guilty rank and its cause, from the records of all ranks of a call that has failed or has ended.

    Made for one fault on one rank. With three ranks or more it is the rank that differs from all others. With two
    ranks the steps before decide; if nothing like it came before, or if one rank has left a loop earlier than the
    other, it remains open which of them is wrong, and `rank_is_sure` is False. "send" names no rank: several ranks wait
    in a send and none receives, or the reverse.

    `rank_is_sure` is also False when:

    - several ranks did not reach a collective;
    - a rank waits in a send, a receive, a `wait` or a backward pass;
    - all calls agree in a job that failed;
    - a rank gave no record, although its process has neither ended nor stopped.

    Raises:
        ValueError: Without records.
    """
    if not records:
        raise ValueError("records: expected those of at least one rank, got none. Take error.records of a failed call.")
    evidence = Evidence(records)
    return next(found for cause in CAUSES if (found := cause(evidence)) is not None)
