"""The ranks' flight records -> which rank is guilty or only slow, and the first collective that does not match.

Pure functions. `RankHandle.given_up` decides when a rank counts as silent. `failures.py` names a rank whose own report
settles the matter, and asks here otherwise. All ranks of a group must call the same collectives in the same order. If a
call hangs, the first place where they do not is the one to look at; what comes after it is usually a consequence. A
false accusation is worse than none: where the records fit two stories, the diagnosis is not sure.
"""

import linecache
import math
import os
import re
import signal
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace

from notebook_ranks.code_lines import Branch, after_a_loop_with, branches_around, instead_of
from notebook_ranks.flight_recorder import Collective, FlightRecord, file_label
from notebook_ranks.shared.format import listed

__all__ = ["Diagnosis", "diagnose_hang", "first_mismatch"]

SLOW_S, SLOW_SHARE = 0.1, 0.5  # a rank is slow if it comes so late to this share of the calls of one line, at least,
MOST_CHANCE, FEWEST = 0.005, 10  # if chance is so rarely the reason, and among so many collectives
# whole names of functions that load or save; train_batch, load_state_dict and other names are "elsewhere"
DATA = re.compile(
    r"(__)?next(__|_data|_(mini)?batch)?|(load|get|read)_(mini)?batch|__getitems?__|(default_)?collate(_fn)?"
)
DATA_FOLDER = os.path.join("torch", "utils", "data", "")
SAVE = re.compile(r"_?((async|legacy)_)?save(_checkpoint|_model|_state|_state_dict|_pretrained)?")
# where a rank may wait for a different one without being in a collective
SENDS, RECEIVES = {"send", "send_object_list"}, {"recv", "recv_object_list"}
POINT_TO_POINT = SENDS | RECEIVES | {"isend", "irecv", "batch_isend_irecv"}
WAITS = re.compile(r"\.(wait|synchronize|backward|result)\(")
NOT_FINITE = re.compile(r"(?<![a-z])is_?(nan|inf|finite)(?![a-z])|found_inf")  # in the condition of an `if`
OF_TORCH = tuple(os.path.join("torch", folder, "") for folder in ("distributed", "autograd"))
# what gloo and NCCL say on a rank that waited too long, or whose peer has gone
WAITED = re.compile(r"time[d-]? ?out|closed|reset by peer|broken pipe|read error|write error|remote", re.IGNORECASE)
NOT_RECORDED = "the recorder does not show src, dst, the splits of an all-to-all, and what is sent from rank to rank"
Records = Mapping[int, FlightRecord]


@dataclass(frozen=True)
class Diagnosis:
    """What the records say: the `cause` is one of `CAUSES`, "error", "elsewhere", "unknown" or "" (nothing is wrong).

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


@dataclass(frozen=True)
class _Call(Collective):
    """A collective with the `role` of its group: 0 for a rank's first group, 1 for its second, and so on."""

    role: int = 0

    @property
    def kind(self) -> tuple[object, ...]:
        return self.name, self.sizes, self.dtype, self.place, self.role

    def agrees(self, other: Collective) -> bool:
        return super().agrees(other) and (not isinstance(other, _Call) or self.role == other.role)


Calls = Mapping[int, Mapping[int, _Call]]  # {rank: {number: call}}


def first_mismatch(records: Records) -> tuple[str, int] | None:
    """Return (group, number) of the first collective that not all ranks of its group have called alike; else None.

    A rank that gave no record is not compared. Two calls that agree do not match either if they are at different lines
    and one rank has left out a call, or made an additional one, so that the ranks are out of step from there on.
    """
    found: list[tuple[bool, float, str, int]] = []  # a group that was used before comes before a new one
    for group, members in _members(records).items():
        calls = {rank: _of_group(records[rank], group) for rank in members if not records[rank].missing}
        if (number := _first_apart(calls)) is not None:
            is_new = number == max((min(of) for of in calls.values() if of), default=1)
            at_s = min(of[number].at_s for of in calls.values() if number in of)
            found.append((is_new, at_s, group, number))
    return min(found)[2:] if found else None


def diagnose_hang(records: Records) -> Diagnosis:
    """Return the guilty rank and its cause, from the records of all ranks of a call that has failed or has ended.

    Made for one fault on one rank. With three ranks or more it is the rank that differs from all others. With two
    ranks the steps before decide; if nothing like it came before, or if one rank has left a loop earlier than the
    other, it remains open which of them is wrong, and `rank_is_sure` is False. It also is if several ranks did not
    reach a collective, if a rank waits in a send, a receive, a `wait` or a backward pass, if all calls agree in a job
    that failed, and if a rank gave no record, although its process has neither ended nor stopped. "send" names no rank:
    several ranks wait in a send and none receives, or the reverse.

    Raises:
        ValueError: Without records.
    """
    if not records:
        raise ValueError("records: expected those of at least one rank, got none. Take error.records of a failed call.")
    missing = [rank for rank, record in sorted(records.items()) if record.missing]
    died = [rank for rank in missing if records[rank].state == "died"]
    if died:
        return _ended(records, sorted(died, key=lambda rank: _aborted(records[rank])))
    silent = [rank for rank in missing if records[rank].state == "silent"]
    if silent:
        return _silent(records, silent)
    found = _compared(records)
    if not missing:
        return found
    unseen = "; ".join(f"rank {rank} gave no record: {records[rank].missing}" for rank in missing)
    if not found.number or found.rank is None:
        return Diagnosis("unknown", None, f"{unseen}.", is_sure=False, rank_is_sure=False)
    return replace(found, words=f"{found.words} But {unseen}.", is_sure=False, rank_is_sure=False)


def _ended(records: Records, ranks: Sequence[int]) -> Diagnosis:
    """Return the diagnosis of ranks whose processes have ended, and which gave no record: those not aborted first."""
    rank, waiting = ranks[0], _waiting(records)
    if _aborted(records[rank]):
        words = (
            f"rank {rank}: its process was aborted and gave no record. Usually the ranks' collectives differ, and it "
            f"may also be a different rank that called the wrong one. {waiting}"
        )
        return Diagnosis("dead", rank, words.strip(), is_sure=False, rank_is_sure=False)
    also = [f"rank {other}" for other in ranks[1:] if not _aborted(records[other])]
    doubt = f" So has {', '.join(also)}: which one ended first is not known." if also else ""
    words = f"rank {rank}: its process has ended.{doubt} {waiting}".strip()
    return Diagnosis("dead", rank, words, is_sure=not also, rank_is_sure=not also)


def _aborted(record: FlightRecord) -> bool:
    return record.exitcode == -signal.SIGABRT


def _silent(records: Records, ranks: Sequence[int]) -> Diagnosis:
    """Return the diagnosis of ranks that do not answer."""
    doubt = ""
    if any(record.state == "died" for record in records.values()):
        doubt = " It may also be a rank that has ended."
    elif len(ranks) > 1:
        doubt = f" It may also be {', '.join(f'rank {rank}' for rank in ranks[1:])}."
    words = f"rank {ranks[0]}: its process is stopped, or does not get its turn. {_waiting(records)}".strip()
    return Diagnosis("stopped", ranks[0], words + doubt, is_sure=not doubt, rank_is_sure=not doubt)


def _compared(records: Records) -> Diagnosis:
    """Return the diagnosis from the calls of the ranks that gave a record."""
    seen = {rank: record for rank, record in records.items() if not record.missing}
    where = first_mismatch(seen)
    if where is None:
        return _without_mismatch(seen)
    in_order = _in_order(seen)
    if in_order is not None and (place := _first_apart(in_order)) is not None:
        return _at(seen, in_order, place)
    group, number = where
    calls = {rank: _of_group(seen[rank], group) for rank in _members(seen)[group]}
    found = _at(seen, calls, number)
    if len({call.group for record in seen.values() for call in record.collectives}) > 1 and found.rank_is_sure:
        if _whereabouts(seen[found.rank or 0]) not in ("elsewhere", "raised"):  # the fault may be in a different group
            doubt = " It may also be a different rank: the ranks use several groups."
            return replace(found, words=found.words + doubt, is_sure=False, rank_is_sure=False)
    return found


def _in_order(records: Records) -> Calls | None:
    """Return {rank: {place in its sequence: call}} over all groups; None if the ranks' sequences cannot be compared.

    They can if the recorders begin with the same calls, and if a rank is stuck at the first place where they differ:
    then all ranks do the same with groups of their own, such as those of their hosts.
    """
    for group, members in _members(records).items():
        firsts = {min(of) for rank in members if (of := _of_group(records[rank], group))}
        if len(firsts) > 1:
            return None
    calls: dict[int, dict[int, _Call]] = {}
    for rank, record in records.items():
        names = {call.group for call in record.collectives}
        names |= {name for name, ranks in (record.groups or {}).items() if rank in ranks}
        roles = {name: role for role, name in enumerate(sorted(names, key=lambda name: (len(name), name)))}
        calls[rank] = {i: _call(c, roles[c.group]) for i, c in enumerate(record.collectives, 1)}
    number = _first_apart(calls)
    return calls if number is None or any(len(of) <= number for of in calls.values()) else None


def _at(records: Records, calls: Calls, number: int) -> Diagnosis:
    """Return the diagnosis of a mismatch."""
    here = {rank: calls[rank].get(number) for rank in sorted(calls)}
    absent = [rank for rank, call in here.items() if call is None]
    called = [call for call in here.values() if call is not None]
    states = {rank: _whereabouts(records[rank]) for rank in absent}
    before = _before(calls, number)
    one = called[0]
    for rank in absent:
        if states[rank] == "waits":
            last = records[rank].collectives[-1:]
            where = f"still waits in {_told(last[0])}" if last else f"is {_place(records[rank])}"
            words = (
                f"rank {rank} {where}, and a different rank has called {_told(one)}. Compare what the ranks give to "
                f"the first of the two calls: {NOT_RECORDED}."
            )
            return Diagnosis("unknown", rank, words, one.group, one.number, False, False)
    for rank in absent:
        if states[rank] == "communicates":
            if all(call.agrees(one) for call in called) and (found := _one_way(records, absent)):
                return replace(found, group=one.group, number=one.number)
            words = (
                f"rank {rank} did not reach {_told(one)}: it is {_place(records[rank])}. It may wait there for a "
                "different rank, which is then the guilty one."
            )
            return Diagnosis("unknown", rank, words, one.group, one.number, False, False)
    running = [rank for rank in absent if states[rank] in ("elsewhere", "raised")]
    if running and all(call.agrees(one) for call in called):
        guilty, is_sure, doubt = running[0], True, ""
        if len(absent) > 1:
            rest = ", ".join(f"rank {rank}" for rank in absent if rank != guilty)
            is_sure, doubt = False, f" It may also be {rest}: several ranks are not there."
        elif len(called) == 1 and before and not _is_busy(records[guilty]) and one.kind not in {c.kind for c in before}:
            caller = next(rank for rank in here if rank != guilty)
            is_sure, doubt = False, f" It may also be rank {caller}: that call came in no step before."
        refused = [r for r, call in here.items() if call is not None and _refused(records[r])]
        if is_sure and refused and states[guilty] == "elsewhere":  # nobody has waited for a time-out
            is_sure, doubt = False, f" It may also be rank {refused[0]}, whose call raised an error at once."
        return _not_there(records[guilty], one, is_sure, doubt)
    guilty, is_sure = _guilty(here, calls, number)
    others = [rank for rank in here if rank != guilty]
    theirs = next((call for rank in others if (call := here[rank]) is not None), None)
    own = here[guilty]
    uneven = _uneven(own, theirs, before)
    if uneven:
        return _different_steps(here, guilty, uneven == "fewer", is_sure and len(here) > 2, before)
    doubt = ""
    if not is_sure:
        other = f"rank {others[0]}" if len(others) == 1 else "a different rank"
        doubt = f" It may also be {other}: " + (
            "too few steps come before to decide." if len(others) == 1 else "the others do not agree either."
        )
    if own is None:
        return _returned(records[guilty], theirs, is_sure, doubt)
    at = own.group if theirs is None else theirs.group, number if theirs is None else theirs.number
    if theirs is None:
        words = f"rank {guilty} called {_told(own)}, and no other rank did.{doubt}"
        return Diagnosis("extra", guilty, words, *at, is_sure, is_sure)
    cause, more, open_cause = _compare(guilty, own, theirs, [calls[rank] for rank in others], number, before)
    them = f"rank {others[0]}" if len(others) == 1 else "the others"
    if cause == "group":
        told = f"{_told(own)} in group {own.group}; {them} called it in group {theirs.group}"
        return Diagnosis(cause, guilty, f"rank {guilty} called {told}.{doubt}", *at, is_sure, is_sure)
    words = f"rank {guilty} called {_told(own)}; {them} called {_told(theirs)}: {more}.{doubt or open_cause}"
    return Diagnosis(cause, guilty, words, *at, is_sure and not open_cause, is_sure)


def _whereabouts(record: FlightRecord) -> str:
    """Return whether a rank "waits" in a collective, "communicates", has "returned" or "raised", or is "elsewhere".

    A rank communicates if it is in a send or a receive, waits for a collective that it began before, or is in a
    backward pass, in which DistributedDataParallel waits.
    """
    if record.state == "done":
        return "returned"
    if record.waits_in:
        return "communicates" if record.waits_in in POINT_TO_POINT else "waits"
    if record.state == "died" or (record.state == "error" and not record.frames):
        return "waits"
    if _is_busy(record):
        return "elsewhere" if record.state == "running" else "raised"
    for file, line, _ in record.frames[-1:]:
        if any(folder in file for folder in OF_TORCH) or WAITS.search(linecache.getline(file, line)):
            return "communicates"
    return "raised" if record.state == "error" else "elsewhere"


def _one_way(records: Records, ranks: Sequence[int]) -> Diagnosis | None:
    """Return the diagnosis of `ranks` that all wait in a send, or all in a receive; None if it may be something else.

    The other ranks wait in a collective. In a job that runs, all ranks may be in a send for a moment; so one must have
    waited for too long. It is None if the code may have begun the opposite call before, without waiting for it.
    """
    inside, others = [records[rank] for rank in ranks], [x for rank, x in records.items() if rank not in ranks]
    names = {record.waits_in for record in inside}
    if len(ranks) < 2 or not (names <= SENDS or names <= RECEIVES):
        return None
    if any(_whereabouts(other) != "waits" or not other.waits_in for other in others):
        return None
    if all(record.state == "running" for record in inside) or any(map(_refused, records.values())):
        return None
    mine, opposite, call, why = (
        ("send", "receive", "isend", "With gloo a send ends only when its receive has begun.")
        if names <= SENDS
        else ("receive", "send", "irecv", "A receive ends only when its tensor has come.")
    )
    if any(_may_begin("irecv" if names <= SENDS else "isend", record) for record in inside):
        return None
    who = listed(ranks)
    places = [_place(record) for record in inside]
    there = ", ".join(f"rank {rank} is {place}" for rank, place in zip(ranks, places, strict=True))
    if len(set(places)) == 1:
        there = f"{'both' if len(ranks) == 2 else 'all'} are {places[0]}"
    words = (
        f"ranks {who} wait in a {mine}, and no rank is in a {opposite}. {why} If two ranks {mine} first, let one "
        f"{opposite} first, or use {call} or batch_isend_irecv. A rank may also have left out a {opposite}. Which rank "
        f"is wrong is not recorded: {there}."
    )
    return Diagnosis("send", None, words, is_sure=False, rank_is_sure=False)


def _may_begin(name: str, record: FlightRecord) -> bool:
    """Return whether the source of the functions on a rank's stack contains a name, or is not at hand."""
    files = {file for file, _, _ in record.frames if f"{os.sep}torch{os.sep}" not in file}
    sources = ["".join(linecache.getlines(file)) for file in files]
    return not sources or any(not source or name in source for source in sources)


def _refused(record: FlightRecord) -> bool:
    """Return whether a rank's collective raised an error, and not because a different rank did not come or ended."""
    return record.state == "error" and bool(record.error) and not WAITED.search(record.error)


def _is_busy(record: FlightRecord) -> str:
    """Return "save" or "data" if the functions on a rank's stack save or load, else ""."""
    if any(SAVE.fullmatch(name) for _, _, name in record.frames):
        return "save"
    return "data" if any(DATA.fullmatch(name) or DATA_FOLDER in file for file, _, name in record.frames) else ""


def _guilty(here: Mapping[int, _Call | None], calls: Calls, number: int) -> tuple[int, bool]:
    """Return the rank that differs from all others, or from the steps before; and whether it is sure."""
    kinds = {rank: () if call is None else call.kind for rank, call in here.items()}
    (most, num_most), *rest = Counter(kinds.values()).most_common()
    if rest and num_most > rest[0][1]:
        different = [rank for rank in kinds if kinds[rank] != most]
        return different[0], len(different) == 1
    before = _before(calls, number)
    expected, always = _expected(before)
    if expected is not None and expected.kind in kinds.values():
        guilty = next(rank for rank in kinds if kinds[rank] != expected.kind)
        return guilty, always and len(kinds) == 2 and _decided(here[guilty], expected, before)
    seen = [call for call in before[::-1] if call.kind in kinds.values()]  # the first one of a step, it seems
    if expected is None and seen:
        oldest = list(dict.fromkeys(call.kind for call in seen))[-1]
        return next(rank for rank in kinds if kinds[rank] != oldest), False
    absent = [rank for rank, call in here.items() if call is None]
    if expected is not None and absent:  # nobody called what was expected: who waits may have called one more
        return next(rank for rank in here if rank not in absent), False
    return (absent or sorted(here))[-1], False


def _decided(own: _Call | None, expected: _Call, before: Sequence[_Call]) -> bool:
    """Return whether the call of one of two ranks is wrong, if the other rank's was `expected`.

    A call from a new line may be one that the other rank has left out; and one that leaves a loop decides nothing.
    """
    if own is None or own.kind in {call.kind for call in before}:
        return True
    if own.place == expected.place:
        return True  # the size or the type of all steps before is different
    after = _followed(expected, before)
    return after is not None and own.agrees(after) and after.sizes not in ((), ((1,),), ((),))


def _before(calls: Calls, number: int) -> list[_Call]:
    """Return what came before, from the rank with the longest memory."""
    return max(([of[n] for n in sorted(of) if n < number] for of in calls.values()), key=len, default=[])


def _expected(before: Sequence[_Call]) -> tuple[_Call | None, bool]:
    """Return (what should come next if the steps before go on, whether it always came after a call like the last one).

    It is what followed the longest sequence of calls that the last ones repeat; None if nothing like it came before.
    """
    kinds = [call.kind for call in before]
    longest, expected = 0, None
    for end in range(len(before) - 2, -1, -1):
        length = 0
        while length <= end and kinds[end - length] == kinds[-1 - length]:
            length += 1
        if length > longest:
            longest, expected = length, before[end + 1]
    if expected is None:
        return None, False
    followers = {kinds[i + 1] for i in range(len(kinds) - 1) if kinds[i] == kinds[-1]}
    return expected, len(followers) == 1 and expected.kind != kinds[-1]


def _followed(call: _Call, before: Sequence[_Call]) -> _Call | None:
    """Return what followed the last call like `call`; None if there was none."""
    return next(
        (after for one, after in zip(before[-2::-1], before[::-1], strict=False) if one.kind == call.kind), None
    )


def _uneven(own: _Call | None, theirs: _Call | None, before: Sequence[_Call]) -> str:
    """Return "fewer" if `own` comes after the loop in which `theirs` is, "more" for the reverse; else "".

    None stands for a rank that has returned.
    """
    if theirs is not None and _once_more(theirs, own, before):
        return "fewer"
    return "more" if own is not None and _once_more(own, theirs, before) else ""


def _once_more(inner: _Call, outer: _Call | None, before: Sequence[_Call]) -> bool:
    """Return whether `inner` begins a step of a loop once more, and `outer` is a call after that loop, or none."""
    since = before
    if outer is not None:
        last = max((i for i, call in enumerate(before) if call.place == outer.place), default=-1)
        since = before[last + 1 :]
    if inner.kind not in {call.kind for call in since}:
        return False
    now, last_place = _fork(inner, before[-1])
    if now[1] > last_place[1]:  # further down in the step, not at its beginning
        return False
    return outer is None or _after_the_loop(inner, outer)


def _after_the_loop(inner: _Call, outer: _Call) -> bool:
    """Return whether `inner` is in a loop, itself or by its callers, and `outer` comes after that loop."""
    (file, line), (_, line_after) = _fork(inner, outer)
    deeper = [at for at in inner.place[::-1] if at not in outer.place]
    return after_a_loop_with(file, line, line_after) or (
        line < line_after and any(_in_a_loop(*at) for at in deeper if at != (file, line))
    )


def _in_a_loop(file: str, line: int) -> bool:
    return after_a_loop_with(file, line, 1 << 60)


def _fork(one: Collective, other: Collective) -> tuple[tuple[str, int], tuple[str, int]]:
    """Return the outermost place in which the callers of two calls differ, one for each call."""
    places = list(zip(one.place[::-1], other.place[::-1], strict=False))
    return next(((a, b) for a, b in places if a != b), places[-1])


def _not_finite_branch(theirs: _Call, own: _Call, before: Sequence[_Call]) -> tuple[str, str] | None:
    """Return (a branch on a NaN at which a rank has left out calls of the others, the doubt); None without one.

    The branch decides all calls that the rank has left out, and not the rank's own call. It does not decide the last
    call before either: the rank has come to the branch after that call. In doubt, something else decides the same.
    """
    since = max((i for i, call in enumerate(before) if call.kind == theirs.kind), default=len(before))
    step = [call.kind for call in before[since + 1 :]]
    end = since + 1 + step.index(own.kind) if own.kind in step else since + 1
    left_out, passed = [theirs, *before[since + 1 : end]], [own, *before[-1:]]
    names = {call.name for call in (theirs, own, *before)}
    found, others = list[str](), list[str]()
    for file, line in theirs.place:
        if (file, line) in own.place:
            continue
        for branch in branches_around(file, line):
            if all(_in_lines(call, file, branch.decides) for call in left_out) and not any(
                _in_lines(call, file, branch.decides) for call in passed
            ):
                is_not_finite = _is_not_finite(branch)
                if is_not_finite or not branch.instead & names:  # with such a call the rank would be in that one
                    (found if is_not_finite else others).append(_condition(file, branch))
    if not found:
        return None
    twice = " It may also have called this one twice." if before and own.kind == before[-1].kind else ""
    return found[0], f" It may also be {others[0]}." if others else twice


def _in_lines(call: Collective, file: str, lines: range) -> bool:
    return any(of == file and at in lines for of, at in call.place)


def _whole_step_branch(inner: _Call, before: Sequence[_Call]) -> str:
    """Return a branch on a NaN that decides all calls of a step; "" without one.

    A rank that leaves out such a step calls the same collectives as one with a minibatch fewer.
    """
    since = max((i for i, call in enumerate(before) if call.kind == inner.kind), default=len(before))
    for file, line in inner.place:
        for branch in branches_around(file, line):
            whole = all(_in_lines(call, file, branch.decides) for call in before[since:])
            if whole and _is_not_finite(branch):
                return _condition(file, branch)
    return ""


def _is_not_finite(branch: Branch) -> bool:
    return branch.words.startswith("if ") and NOT_FINITE.search(branch.words) is not None


def _condition(file: str, branch: Branch) -> str:
    return f"`{branch.words}` ({_file(file)} line {branch.line})"


def _different_steps(
    here: Mapping[int, _Call | None], guilty: int, fewer: bool, is_sure: bool, before: Sequence[_Call]
) -> Diagnosis:
    """Return the diagnosis of a rank that has taken fewer or more steps of a loop than the others."""
    others = [rank for rank in here if rank != guilty]
    if len(here) == 2 and not fewer:
        guilty, others, fewer = others[0], [guilty], True
    own, theirs = here[guilty], next((here[rank] for rank in others if here[rank] is not None), None)
    them = f"rank {others[0]}" if len(others) == 1 else "the others"
    inner, outer = (theirs, own) if fewer else (own, theirs)
    if inner is None:
        raise AssertionError("one of the ranks has called a collective of the loop")
    left = "returned" if outer is None else f"went on to {_told(outer)}"
    again = f"called {_told(inner)} once more"
    first, second = (f"{left}, and {them} {again}", "fewer") if fewer else (f"{again}, and {them} {left}", "more")
    words = f"rank {guilty} took {second} steps than {them}: it {first}."
    # who begins the next epoch without the call after the loop makes the same calls
    skipped = "" if outer is None else f" It may also have left out the {outer.name} after the loop."
    if len(here) == 2:
        words += f" Rank {guilty} had fewer minibatches or left out a step, or {them} had more minibatches"
        words += "." if outer is None else f" or left out the {outer.name} after the loop."
    elif not is_sure:
        words += " It may also be a different rank: several have different numbers of steps."
    elif not fewer:
        words += skipped
    branch = _whole_step_branch(inner, before)
    if branch:
        who = f"Rank {guilty}" if fewer else "One of the others"
        words += f" {who} may also have left out a step at {branch}."
    certain = is_sure and (fewer or not skipped) and not branch
    return Diagnosis("uneven", guilty, words, inner.group, inner.number, certain, is_sure)


def _compare(
    rank: int, own: _Call, theirs: _Call, others: Sequence[Mapping[int, _Call]], number: int, before: Sequence[_Call]
) -> tuple[str, str, str]:
    """Return (cause, words, the doubt about the cause as a sentence) for the call of a rank that differs."""
    elsewhere = [call for of in others for n, call in of.items()]
    known, places = {call.kind for call in elsewhere}, {call.place for call in elsewhere}
    nexts = [of[number + 1] for of in others if number + 1 in of]
    after = nexts[0] if nexts else _followed(theirs, before)
    left_out = f"rank {rank} left out a collective"
    if own.place != theirs.place and (branch := _not_finite_branch(theirs, own, before)):
        return "branch", f"at {branch[0]} rank {rank} went a way of its own", branch[1]
    if own.kind in known:
        if own.place == theirs.place:
            return "missing", left_out, " It may also have called the two in a different order: one line calls both."
        if before and own.kind == before[-1].kind:
            return "missing", left_out, " It may also have called this one twice."
        return "missing", left_out, ""
    is_other_group = own.role != theirs.role and replace(own, role=theirs.role).agrees(theirs)
    if own.place == theirs.place and is_other_group:
        return "group", "", ""
    instead = own.file == theirs.file and instead_of(own.file, own.line, theirs.line)
    if own.place == theirs.place or instead:
        if after is not None and own.agrees(after):
            return "order", f"rank {rank} calls the two in a different order", ""
        doubt = "" if after is not None else " It may also have called two in a different order: no step comes before."
        if own.name == theirs.name and own.dtype != theirs.dtype:
            return "dtype", f"{own.dtype} is not {theirs.dtype}", doubt
        if own.name == theirs.name and own.sizes != theirs.sizes:
            return "size", "the sizes differ", doubt
        if is_other_group:
            return "group", "", ""
        return "unknown", "they are not the same collective", " The records show no cause."
    if after is not None and own.agrees(after):
        doubt = " It may also be an additional call of the same size."
        return "order", f"rank {rank} calls the two in a different order", doubt
    if is_other_group:
        return "group", "", ""
    if own.place not in places and _after_the_loop(theirs, own):
        return "missing", f"rank {rank} left the loop in the middle of a step", ""
    if own.place not in places:
        extra = "no other rank calls a collective at that line"
        has_source = bool(linecache.getline(own.file, own.line))
        doubt = "" if has_source and own.file == theirs.file else " It may also stand for the call of the others."
        return "extra", extra, doubt
    return "missing", left_out, " Its size or type is new as well."


def _returned(record: FlightRecord, theirs: _Call | None, is_sure: bool, doubt: str) -> Diagnosis:
    """Return the diagnosis of a rank that returned in the middle of a step, while others wait."""
    them = "a collective" if theirs is None else _told(theirs)
    at = ("", 0) if theirs is None else (theirs.group, theirs.number)
    words = f"rank {record.rank} ended without {them}, in which others wait: it left out a collective.{doubt}"
    return Diagnosis("missing", record.rank, words, *at, is_sure, is_sure)


def _not_there(record: FlightRecord, theirs: _Call, is_sure: bool, doubt: str) -> Diagnosis:
    """Return the diagnosis of a rank that is somewhere else or raised an error, while others wait."""
    at = theirs.group, theirs.number
    if record.state == "error":
        words = f"rank {record.rank} raised an error {_place(record)}, without {_told(theirs)}, in which others wait."
        return Diagnosis("error", record.rank, words + doubt, *at, is_sure, is_sure)
    cause = _is_busy(record) or "elsewhere"
    what = {"save": "is saving,", "data": "waits for its data,", "elsewhere": "is"}[cause]
    words = f"rank {record.rank} did not reach {_told(theirs)}: it {what} {_place(record)}.{doubt}"
    return Diagnosis(cause, record.rank, words, *at, is_sure, is_sure)


def _without_mismatch(records: Records) -> Diagnosis:
    """Return the diagnosis of records that agree: the cause is not recorded, or a rank is slow, or nothing is wrong."""
    raised = [rank for rank, record in records.items() if _whereabouts(record) == "raised"]
    if len(raised) == 1:
        words = f"rank {raised[0]} raised an error {_place(records[raised[0]])}. All ranks called the same collectives."
        return Diagnosis("error", raised[0], words)
    if found := _one_way(records, sorted(records)):
        return found
    if any(record.state in ("error", "died", "silent") for record in records.values()):
        there = [f"rank {r} is {_place(x)}" for r, x in sorted(records.items()) if x.frames and x.state != "done"]
        words = f"the collectives of all ranks agree, and the job failed: {NOT_RECORDED}. {'; '.join(there)}".strip()
        return Diagnosis("unknown", None, f"{words}." if there else words, is_sure=False, rank_is_sure=False)
    return _slow(records) or Diagnosis(
        "", None, "all ranks called the same collectives, and none was late again and again."
    )


def _slow(records: Records) -> Diagnosis | None:
    """Return the diagnosis of a rank that comes late again and again, None if there is none.

    Each rank is late now and then. One is slow if it is late to most calls of a line, and if chance would make one
    rank late so much more often than the others in one of 200 jobs.
    """
    num_ranks = sum(bool(record.collectives) for record in records.values())
    times: dict[tuple[str, int], dict[int, Collective]] = {}
    for rank, record in records.items():
        for call in record.collectives:
            times.setdefault((call.group, call.number), {})[rank] = call
    times = {key: here for key, here in times.items() if len(here) > 1}
    late: Counter[int] = Counter()
    late_at: Counter[tuple[int, object]] = Counter()
    worst = dict.fromkeys(records, 0.0)
    for here in times.values():
        last = max(here, key=lambda rank: here[rank].at_s)  # noqa: B023
        gap = here[last].at_s - max(call.at_s for rank, call in here.items() if rank != last)
        if gap >= SLOW_S:
            late[last] += 1
            late_at[last, here[last].place] += 1
            worst[last] = max(worst[last], gap)
    if len(times) < FEWEST or not late:
        return None
    rank, num_late = late.most_common(1)[0]
    num_places: Counter[object] = Counter(here[rank].place for here in times.values() if rank in here)
    always = any(n >= SLOW_SHARE * num_places[place] for (r, place), n in late_at.items() if r == rank)
    if not always or _by_chance(num_late, sum(late.values()), num_ranks) > MOST_CHANCE:
        return None
    words = f"rank {rank} came last to {num_late} of {len(times)} collectives, up to {worst[rank]:.2f} s after the"
    return Diagnosis("slow", rank, f"{words} others. Nothing hangs: one slow rank slows all ranks down.")


def _by_chance(num: int, of: int, num_ranks: int) -> float:
    """Return how likely one of `num_ranks` equal ranks is the late one `num` times or more, of `of` times."""
    share = 1 / num_ranks
    return num_ranks * sum(math.comb(of, k) * share**k * (1 - share) ** (of - k) for k in range(num, of + 1))


def _first_apart(calls: Calls) -> int | None:
    """Return the first number that not all ranks have called alike; None if there is none."""
    lasts = [max(of, default=0) for of in calls.values()]
    firsts = [min(of) for of in calls.values() if of]
    for number in range(max(firsts, default=1), max(lasts, default=0) + 1):
        here = {rank: of[number] for rank, of in calls.items() if number in of}
        if not _all_agree(here.values()) or len(here) < len(calls):
            return number
        if _out_of_step(here, calls, number) and (len(set(lasts)) > 1 or _any_mismatch(calls, number)):
            return number
    return None


def _out_of_step(here: Mapping[int, _Call], calls: Calls, number: int) -> bool:
    """Return whether ranks are at different lines here, one of them because it left out a call or made one more.

    Then each rank calls each of these lines at some time; or one rank calls a line that no other rank calls, and the
    line of the others immediately afterwards.
    """
    lines = {call.place for call in here.values()}
    if len(lines) < 2:
        return False
    called = {rank: {call.place for call in calls[rank].values()} for rank in here}
    if all(lines <= places for places in called.values()):
        return True
    for rank, call in here.items():
        others = [other for other in here if other != rank]
        then = calls[rank].get(number + 1)
        if then is not None and not any(call.place in called[other] for other in others):
            if all(then.place == here[other].place for other in others):
                return True
    return False


def _any_mismatch(calls: Calls, number: int) -> bool:
    """Return whether any collective from `number` on is not the same on all ranks."""
    numbers = {n for of in calls.values() for n in of if n >= number}
    return any(not _all_agree(of[n] for of in calls.values() if n in of) for n in numbers)


def _all_agree(calls: Iterable[_Call]) -> bool:
    first, *rest = calls
    return all(call.agrees(first) for call in rest)


def _members(records: Records) -> dict[str, list[int]]:
    """Return {group: the ranks of it that are in the records}."""
    members: dict[str, set[int]] = {}
    for rank, record in records.items():
        for group, ranks in (record.groups or {}).items():
            members.setdefault(group, set()).update(r for r in ranks if r in records)
        for call in record.collectives:
            members.setdefault(call.group, set()).add(rank)
    return {group: sorted(ranks) for group, ranks in members.items()}


def _of_group(record: FlightRecord, group: str) -> dict[int, _Call]:
    return {call.number: _call(call) for call in record.collectives if call.group == group}


def _call(call: Collective, role: int = 0) -> _Call:
    return _Call(**{field.name: getattr(call, field.name) for field in fields(Collective)}, role=role)


def _told(call: Collective) -> str:
    return f"{call} ({_file(call.file)} line {call.line}, in {call.function})"


def _place(record: FlightRecord) -> str:
    """Return "in compute, train.py line 30" for a rank's innermost frame that is not PyTorch's."""
    frames = [frame for frame in record.frames if f"{os.sep}torch{os.sep}" not in frame[0]] or record.frames
    return next((f"in {name}, {_file(file)} line {line}" for file, line, name in frames[::-1]), "elsewhere")


def _file(file: str) -> str:
    """Return "Cell In[3]" for a cell, else the name of the file without its folders."""
    name = file_label(file)
    return os.path.basename(file) if name.startswith("File ") else name


def _waiting(records: Records) -> str:
    """Say in which collective a rank waits, if one does."""
    for rank, record in sorted(records.items()):
        if record.collectives and _whereabouts(record) == "waits":
            return f"rank {rank} waits in {_told(record.collectives[-1])}."
    return ""
