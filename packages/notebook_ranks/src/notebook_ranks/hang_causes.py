"""One function for each cause of a hang: evidence -> a diagnosis, or None if it is not this cause. Pure functions.

`CAUSES` has them in their order: the first one that finds something counts. A new cause is a function and its entry in
`CAUSES`; its sentences are in `hang_words`. A false accusation is worse than none: where the evidence fits two stories,
the diagnosis tells one and has the other as a doubt.
"""

import linecache
from collections.abc import Callable
from dataclasses import dataclass, replace

from notebook_ranks.flight_recorder import Collective
from notebook_ranks.hang_evidence import (
    FEWEST,
    SENDS,
    Evidence,
    Pair,
    aborted,
    branch_of_a_step,
    branches_past,
    called_by_several,
    first_waiting,
    latest,
    loads_or_saves,
    one_way,
    refused,
    steps_apart,
    whereabouts,
)
from notebook_ranks.hang_words import (
    Fact,
    OtherCause,
    OtherRank,
    Sentence,
    common_place,
    in_words,
    places,
    them,
    without_record,
)
from notebook_ranks.shared.format import listed

__all__ = ["CAUSES", "Diagnosis"]


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """What the records say: the `cause` is the name of a function of `CAUSES`, or "unknown", or "" (nothing is wrong).

    `rank` is the guilty rank, None if there is none. `number` and `group` are the first collective that does not match.
    `words` says it, with the doubt if there is one. `is_sure` is False if the records also fit a different rank or a
    different cause; `rank_is_sure` is False if they also fit a different rank. "error" is an exception of the rank's
    own code. "save" and "data" are read from the names of the functions on the rank's stack, and "branch" from the
    conditions in the source.
    """

    cause: str
    rank: int | None
    words: str
    group: str = ""
    number: int = 0
    is_sure: bool = True
    rank_is_sure: bool = True

    def __str__(self) -> str:
        return self.words


# ranks without a record


def dead(e: Evidence) -> Diagnosis | None:
    """Find a rank whose process has ended. If it was aborted, a different rank may have sent it the wrong thing."""
    ranks = sorted((r for r, state in e.missing.items() if state == "died"), key=lambda r: aborted(e.records[r]))
    if not ranks:
        return None
    others = [rank for rank in ranks[1:] if not aborted(e.records[rank])]
    said: list[Sentence] = [Fact.DEAD, OtherRank.ENDED] if others else [Fact.DEAD]
    if aborted(e.records[ranks[0]]):
        said = [Fact.ABORTED, OtherRank.ABORTED]
    waiting = first_waiting(e.records)
    return _diagnosis(e, "dead", ranks[0], *said, Fact.WAITS if waiting else None, others=others, waiting=waiting)


def stopped(e: Evidence) -> Diagnosis | None:
    """Find a rank whose process does not answer."""
    ranks = [rank for rank, state in e.missing.items() if state == "silent"]
    if not ranks:
        return None
    doubt = OtherRank.STOPPED if ranks[1:] else None
    if any(record.state == "died" for record in e.records.values()):
        doubt = OtherRank.ONE_ENDED
    waiting = first_waiting(e.records)
    said = Fact.STOPPED, Fact.WAITS if waiting else None, doubt
    return _diagnosis(e, "stopped", ranks[0], *said, others=ranks[1:], waiting=waiting)


def no_record(e: Evidence) -> Diagnosis | None:
    """Leave it open if a rank gave no record, and the others do not show which rank is wrong."""
    if not e.missing or (e.mismatch is not None and not one_way(e)):
        return None
    return _diagnosis(e, "unknown", None, OtherRank.NO_RECORD)


# ranks that did not reach the collective


def behind(e: Evidence) -> Diagnosis | None:
    """Leave it open if a rank still waits in an earlier collective, on which all agreed."""
    m = e.mismatch
    if m is None or not (ranks := [rank for rank, where in m.absent.items() if where == "waits"]):
        return None
    record = e.records[ranks[0]]
    said = Fact.STILL_WAITS if record.collectives else Fact.IS_BEHIND, OtherRank.BEHIND
    last = record.collectives[-1:]
    return _diagnosis(e, "unknown", ranks[0], *said, at=m.called, last=last, record=record, call=m.called)


def send(e: Evidence) -> Diagnosis | None:
    """Find ranks that all wait in a send, or all in a receive: which of them is wrong is not recorded."""
    ranks = one_way(e)
    if not ranks:
        return None
    all_send = e.records[ranks[0]].waits_in in SENDS
    said = (Fact.SENDS, OtherRank.NO_RECEIVE) if all_send else (Fact.RECEIVES, OtherRank.NO_SEND)
    where = common_place({rank: e.records[rank] for rank in ranks})
    at = e.mismatch.called if e.mismatch else None
    return _diagnosis(e, "send", None, *said, at=at, ranks=listed(ranks), places=where)


def held_up(e: Evidence) -> Diagnosis | None:
    """Leave it open if a rank waits for a different one in a send, a receive, a `wait` or a backward pass."""
    m = e.mismatch
    if m is None or not (ranks := [rank for rank, where in m.absent.items() if where == "communicates"]):
        return None
    said, record = (Fact.ELSEWHERE, OtherRank.HELD_UP), e.records[ranks[0]]
    return _diagnosis(e, "unknown", ranks[0], *said, at=m.called, record=record, call=m.called)


def error(e: Evidence) -> Diagnosis | None:
    """Find a rank that raised an error of its own."""
    if e.mismatch is not None:
        return _not_there(e, "error", Fact.RAISED_BEFORE)
    raised = [rank for rank, record in e.seen.items() if whereabouts(record) == "raised"]
    if len(raised) != 1:
        return None
    return _diagnosis(e, "error", raised[0], Fact.RAISED, record=e.seen[raised[0]])


def save(e: Evidence) -> Diagnosis | None:
    """Find a rank that is saving."""
    return _not_there(e, "save", Fact.SAVES)


def data(e: Evidence) -> Diagnosis | None:
    """Find a rank that waits for its data."""
    return _not_there(e, "data", Fact.LOADS)


def elsewhere(e: Evidence) -> Diagnosis | None:
    """Find a rank that is somewhere else in its code."""
    return _not_there(e, "elsewhere", Fact.ELSEWHERE)


def _not_there(e: Evidence, cause: str, said: Fact) -> Diagnosis | None:
    """Return the diagnosis of a rank that is not in the collective in which all others wait, if that is the cause."""
    m = e.mismatch
    away = [r for r, where in m.absent.items() if where in ("elsewhere", "raised")] if m and m.is_one_call else []
    if m is None or not away:
        return None
    record = e.records[away[0]]
    if cause != ("error" if record.state == "error" else loads_or_saves(record) or "elsewhere"):
        return None
    callers = [rank for rank, call in m.here.items() if call is not None]
    doubt, others = None, [rank for rank in m.absent if rank != away[0]]
    is_new = bool(m.before) and m.called.kind not in {call.kind for call in m.before}
    refusing = [rank for rank in callers if refused(e.records[rank])]
    if others:
        doubt = OtherRank.NOT_THERE
    elif len(callers) == 1 and is_new and not loads_or_saves(record):
        doubt, others = OtherRank.NEW_CALL, callers
    elif refusing and m.absent[away[0]] == "elsewhere":  # nobody has waited for a time-out
        doubt, others = OtherRank.REFUSED, refusing[:1]
    return _diagnosis(e, cause, away[0], said, doubt, at=m.called, others=others, record=record, call=m.called)


# a rank whose call differs


def uneven(e: Evidence) -> Diagnosis | None:
    """Find a rank that has taken fewer or more steps of a loop than the others."""
    m, suspect = e.mismatch, e.suspect
    if m is None or suspect is None or (apart := steps_apart(m, suspect)) is None:
        return None
    rank, others, (inner, outer, fewer) = suspect.rank, suspect.others, apart
    if len(others) == 1 and not fewer:
        (rank,), others, fewer = others, [rank], True
    said: list[Sentence] = [Fact.FEWER if fewer else Fact.MORE]
    if outer is None:
        said = [Fact.FEWER_AT_END if fewer else Fact.MORE_AT_END]
    if len(others) == 1:
        said.append(OtherRank.MINIBATCHES if outer else OtherRank.MINIBATCHES_AT_END)
    elif not suspect.is_sure:
        said.append(OtherRank.STEPS_DIFFER)
    elif not fewer and outer:  # who begins the next epoch without the call after the loop makes the same calls
        said.append(OtherCause.LEFT_OUT_OUTER)
    skips = branch_of_a_step(inner, m.before)
    if skips is not None:
        said.append(OtherCause.BRANCH if fewer else OtherCause.BRANCH_OF_OTHERS)
    return _diagnosis(e, "uneven", rank, *said, at=inner, them=them(others), inner=inner, outer=outer, branch=skips)


def branch(e: Evidence) -> Diagnosis | None:
    """Find a rank that left out calls at a branch on a NaN, which each rank takes alone."""
    m, pair = e.mismatch, e.pair
    if m is None or pair is None or pair.own.place == pair.theirs.place:
        return None
    found, other = branches_past(pair, m.before)
    doubt = OtherCause.OTHER_BRANCH if other else OtherCause.TWICE if pair.repeats else None
    return _of_suspect(e, "branch", Fact.BRANCH, doubt, branch=found, other=other) if found else None


def order(e: Evidence) -> Diagnosis | None:
    """Find a rank that calls two collectives in a different order."""
    new = _new_call(e)
    if new is None or new.after is None or not new.own.agrees(new.after):
        return None
    if new.in_two_groups and new.own.place == new.theirs.place:
        return None  # `group` says so
    return _of_suspect(e, "order", Fact.ORDER, None if new.in_one_line else OtherCause.EXTRA)


def dtype(e: Evidence) -> Diagnosis | None:
    """Find a tensor of a different type."""
    new = _new_call(e)
    if new is None or not new.in_one_line or new.own.name != new.theirs.name or new.own.dtype == new.theirs.dtype:
        return None
    return _of_suspect(e, "dtype", Fact.DTYPE, None if new.after else OtherCause.ORDER)


def size(e: Evidence) -> Diagnosis | None:
    """Find a tensor of a different size."""
    new = _new_call(e)
    if new is None or not new.in_one_line or new.own.name != new.theirs.name or new.own.sizes == new.theirs.sizes:
        return None
    return _of_suspect(e, "size", Fact.SIZE, None if new.after else OtherCause.ORDER)


def group(e: Evidence) -> Diagnosis | None:
    """Find a collective that was called in a different group."""
    new = _new_call(e)
    return _of_suspect(e, "group", Fact.GROUP) if new and new.in_two_groups else None


def extra(e: Evidence) -> Diagnosis | None:
    """Find a call that no other rank makes."""
    if e.suspect is not None and e.suspect.theirs is None:
        return _of_suspect(e, "extra", Fact.ALONE)
    new = _new_call(e)
    if new is None or new.in_one_line or new.is_known_place or new.is_behind_loop:
        return None
    has_source = bool(linecache.getline(new.own.file, new.own.line))
    is_beside = has_source and new.own.file == new.theirs.file
    return _of_suspect(e, "extra", Fact.EXTRA, None if is_beside else OtherCause.IN_PLACE)


def missing(e: Evidence) -> Diagnosis | None:
    """Find a rank that left out a collective: it has ended, or is in one that the others call, too."""
    pair = e.pair
    if pair is None:
        return _of_suspect(e, "missing", Fact.ENDED) if e.suspect and e.suspect.own is None else None
    if pair.is_known:
        twice = OtherCause.TWICE if pair.repeats else None
        doubt = OtherCause.ORDER_AT_ONE_LINE if pair.own.place == pair.theirs.place else twice
        return _of_suspect(e, "missing", Fact.LEFT_OUT, doubt)
    if pair.in_one_line:
        return None
    if pair.is_behind_loop:
        return _of_suspect(e, "missing", Fact.LEFT_LOOP)
    return _of_suspect(e, "missing", Fact.LEFT_OUT, OtherCause.NEW_KIND)


def not_the_same(e: Evidence) -> Diagnosis | None:
    """Leave the cause open if two ranks called different collectives at one line."""
    return _of_suspect(e, "unknown", Fact.NOT_THE_SAME, OtherCause.UNKNOWN) if e.pair else None


def _new_call(e: Evidence) -> Pair | None:
    """Return the pair of calls if no other rank makes the suspect's at any time."""
    return None if e.pair is None or e.pair.is_known else e.pair


def _of_suspect(e: Evidence, cause: str, said: Fact, doubt: OtherCause | None = None, **more: object) -> Diagnosis:
    """Return the diagnosis of the rank whose call differs; a doubt about the rank comes before one about the cause."""
    m, suspect = e.mismatch, e.suspect
    assert m is not None and suspect is not None
    open_rank = OtherRank.FEW_STEPS if len(suspect.others) == 1 else OtherRank.OTHERS_DIFFER
    more |= {"own": suspect.own, "theirs": suspect.theirs, "them": them(suspect.others)}
    at = suspect.theirs or (replace(suspect.own, number=m.number) if suspect.own else None)
    return _diagnosis(e, cause, suspect.rank, said, doubt if suspect.is_sure else open_rank, at=at, **more)


# ranks that called the same collectives


def agree(e: Evidence) -> Diagnosis | None:
    """Leave it open if the job failed, although all collectives agree."""
    if e.mismatch or not any(record.state in ("error", "died", "silent") for record in e.seen.values()):
        return None
    shown = {rank: record for rank, record in e.seen.items() if record.frames and record.state != "done"}
    said = OtherRank.AGREE, Fact.PLACES if shown else None
    return _diagnosis(e, "unknown", None, *said, places=places(shown, "; "))


def slow(e: Evidence) -> Diagnosis | None:
    """Find a rank that comes late again and again."""
    if (found := latest(e.seen)) is None:
        return None
    rank, times, of, most_s = found
    return _diagnosis(e, "slow", rank, Fact.SLOW, times=times, of=of, most_s=most_s)


def nothing(e: Evidence) -> Diagnosis | None:
    """Say that nothing is wrong, and if there were too few calls, that they do not show which rank is slow."""
    of = len(called_by_several(e.seen))
    return _diagnosis(e, "", None, Fact.NOTHING if of >= FEWEST or of == 0 else Fact.TOO_FEW, of=of)


def _diagnosis(
    e: Evidence, cause: str, rank: int | None, *said: Sentence | None, at: Collective | None = None, **more: object
) -> Diagnosis:
    """Return the diagnosis in these sentences. Whether it is sure follows from the doubts among them."""
    told = [sentence for sentence in said if sentence is not None]
    if at and rank is not None and e.mismatch:
        is_open = any(isinstance(sentence, OtherRank) for sentence in told)
        if e.mismatch.is_order_open and not is_open and whereabouts(e.records[rank]) not in ("elsewhere", "raised"):
            told.append(OtherRank.SEVERAL_GROUPS)  # the fault may be in a different group
        if e.missing:
            told.append(OtherRank.BUT_NO_RECORD)
    return Diagnosis(
        cause=cause,
        rank=rank,
        words=in_words(told, rank=rank, missing=without_record(e.records), **more),
        group=at.group if at else "",
        number=at.number if at else 0,
        is_sure=all(isinstance(sentence, Fact) for sentence in told),
        rank_is_sure=not any(isinstance(sentence, OtherRank) for sentence in told),
    )


CAUSES: tuple[Callable[[Evidence], Diagnosis | None], ...] = (
    dead,
    stopped,
    no_record,
    behind,
    send,
    held_up,
    error,
    save,
    data,
    elsewhere,
    uneven,
    branch,
    order,
    dtype,
    size,
    group,
    extra,
    missing,
    not_the_same,
    agree,
    slow,
    nothing,
)
