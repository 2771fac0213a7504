"""The ranks' flight records -> which rank is guilty, of what, and which collective is the first that does not match.

Pure functions. All ranks of a group must call the same collectives in the same order. If a call hangs, the first place
where they do not is the one to look at; what comes after it is usually a consequence.
"""

import os
import re
import signal
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from d2lite.workers.flight_recorder import Collective, FlightRecord, file_label

__all__ = ["Diagnosis", "diagnose_hang", "first_mismatch"]

SLOW_S, SLOW_SHARE = 0.1, 0.5  # a rank is slow if it comes so late twice, and in this share of all cases
# whole names of functions that load or save; train_batch, load_state_dict and other names are "elsewhere"
DATA = re.compile(
    r"(__)?next(__|_data|_(mini)?batch)?|(load|get|read)_(mini)?batch|__getitems?__|(default_)?collate(_fn)?"
)
DATA_FOLDER = os.path.join("torch", "utils", "data", "")
SAVE = re.compile(r"_?((async|legacy)_)?save(_checkpoint|_model|_state|_state_dict|_pretrained)?")
Records = Mapping[int, FlightRecord]


@dataclass(frozen=True)
class Diagnosis:
    """What the records say: the `cause` is one of `CAUSES`, "elsewhere", "unknown" or "" (nothing is wrong).

    `rank` is the guilty rank, None if there is none. `number` and `group` are the first collective that does not match.
    `words` says it, with the doubt if there is one. `is_sure` is False if the records also fit a different rank or a
    different cause; `rank_is_sure` is False if they also fit a different rank. "save" and "data" are read from the
    names of the functions on the rank's stack.
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


def first_mismatch(records: Records) -> tuple[str, int] | None:
    """Return (group, number) of the first collective that not all ranks of its group have called alike; else None.

    A rank that gave no record is not compared. Two calls that agree do not match either if they are at different lines
    and each rank calls both lines: then one rank has left out a call.
    """
    found: list[tuple[bool, float, str, int]] = []  # a group that was used before comes before a new one
    for group, members in _members(records).items():
        calls = {rank: _of_group(records[rank], group) for rank in members if not records[rank].missing}
        lasts = [max(of, default=0) for of in calls.values()]
        firsts = [min(of) for of in calls.values() if of]
        differs = len(set(lasts)) > 1
        for number in range(max(firsts, default=1), max(lasts, default=0) + 1):
            here = {rank: of[number] for rank, of in calls.items() if number in of}
            apart = not _all_agree(here) or len(here) < len(calls) or (_out_of_phase(here, calls, number))
            if apart and (differs or not _all_agree(here) or _any_mismatch(calls, number)):
                is_new = number == max(firsts, default=1)
                found.append((is_new, min(c.at_s for c in here.values()), group, number))
                break
    return min(found)[2:] if found else None


def diagnose_hang(records: Records) -> Diagnosis:
    """Return the guilty rank and its cause, from the records of all ranks of a call that has failed or has ended.

    Made for one fault on one rank. With two ranks it may remain open which of two different calls is the wrong one:
    then the steps before decide, and without such steps `is_sure` is False. `is_sure` is also False in three other
    cases. One line calls both collectives, and a rank left one out or swapped them. Several ranks did not reach a
    collective. Or a rank gave no record, although its process has neither ended nor stopped.

    Raises:
        ValueError: Without records.
    """
    if not records:
        raise ValueError("records: expected those of at least one rank, got none. Take error.records of a failed call.")
    missing = [rank for rank, record in sorted(records.items()) if record.missing]
    for rank in missing:
        if records[rank].state == "died":
            return _ended(records, rank)
    for rank in missing:
        if records[rank].state == "silent":
            doubt = " It may also be a rank that has ended." if _any(records, "died") else ""
            words = f"rank {rank}: its process is stopped, or does not get its turn. {_waiting(records, rank)}".strip()
            return Diagnosis("stopped", rank, words + doubt, is_sure=not doubt, rank_is_sure=not doubt)
    where = first_mismatch(records)
    if not missing:
        return _without_mismatch(records) if where is None else _at(records, *where)
    unseen = "; ".join(f"rank {rank} gave no record: {records[rank].missing}" for rank in missing)
    if where is None:
        return Diagnosis("unknown", None, f"{unseen}.", is_sure=False, rank_is_sure=False)
    found = _at(records, *where)
    return replace(found, words=f"{found.words} But {unseen}.", is_sure=False, rank_is_sure=False)


def _ended(records: Records, rank: int) -> Diagnosis:
    """Return the diagnosis of a rank whose process has ended, and which gave no record."""
    waiting = _waiting(records, rank)
    if records[rank].exitcode != -signal.SIGABRT:
        return Diagnosis("dead", rank, f"rank {rank}: its process has ended. {waiting}".strip())
    words = (
        f"rank {rank}: its process was aborted and gave no record. Usually the ranks' collectives differ, and it may "
        f"also be a different rank that called the wrong one. {waiting}"
    )
    return Diagnosis("dead", rank, words.strip(), is_sure=False, rank_is_sure=False)


def _any(records: Records, state: str) -> bool:
    return any(record.state == state for record in records.values())


def _at(records: Records, group: str, number: int) -> Diagnosis:
    """Return the diagnosis of a mismatch."""
    members = [rank for rank in _members(records)[group] if not records[rank].missing]
    calls = {rank: _of_group(records[rank], group) for rank in members}
    here = {rank: calls[rank].get(number) for rank in members}
    expected = _expected(calls, number)
    if (late := _late(records, here, expected)) is not None:
        guilty, is_sure, doubt = late
    else:
        if expected is None and (seen := _seen_longest_ago(here, calls, number)) is not None:
            guilty, is_sure = _guilty(here, seen)[0], _guilty(here, None)[1]
        else:
            guilty, is_sure = _guilty(here, expected)
        num_others = len(members) - 1
        other = f"rank {next(rank for rank in members if rank != guilty)}" if num_others == 1 else "a different rank"
        doubt = "" if is_sure else f" It may also be {other}: too few steps come before to decide."
    others = [rank for rank in members if rank != guilty]
    theirs = next((here[rank] for rank in others if here[rank] is not None), None)
    own = here[guilty]
    if own is None:
        return _absent(records, group, number, guilty, theirs, doubt)
    if theirs is None:
        words = f"rank {guilty} called {_call(own)}, and no other rank did.{doubt}"
        return Diagnosis("extra", guilty, words, group, number, is_sure, is_sure)
    cause, more = _compare(own, theirs, [calls[rank] for rank in others], number)
    if cause == "missing" and own.place == theirs.place and is_sure:
        doubt = " It may also have called the two in a different order: one line calls both."
    them = f"rank {others[0]}" if len(others) == 1 else "the others"
    words = f"rank {guilty} called {_call(own)}; {them} called {_call(theirs)}: {more}.{doubt}"
    return Diagnosis(cause, guilty, words, group, number, not doubt, is_sure)


def _late(
    records: Records, here: Mapping[int, Collective | None], expected: Collective | None
) -> tuple[int, bool, str] | None:
    """Return (rank, whether it is sure, the doubt as a sentence) if ranks that still run did not reach a collective.

    Otherwise return None. A rank that waits for them is not accused, even if it is the only one there. A rank that
    waits in a different collective does not count as running.
    """
    absent = [rank for rank, call in sorted(here.items()) if call is None]
    running = [rank for rank in absent if records[rank].state == "running" and not records[rank].waits_in]
    called = {rank: call for rank, call in here.items() if call is not None}
    if not running or not _all_agree(called):
        return None
    one = next(iter(called.values()))
    if len(absent) > 1:
        rest = ", ".join(f"rank {rank}" for rank in absent if rank != running[0])
        return running[0], False, f" It may also be {rest}: several ranks are not there."
    if len(called) == 1 and expected is not None and _kind(expected) != _kind(one):
        return running[0], False, f" It may also be rank {next(iter(called))}: that call came in no step before."
    return running[0], True, ""


def _compare(
    own: Collective, theirs: Collective, others: Sequence[Mapping[int, Collective]], number: int
) -> tuple[str, str]:
    """Return (cause, words) for two calls that differ."""
    after = _after(theirs, others, number)  # what the others call next, as in the steps before
    known = {c.place for of in others for c in of.values()}
    if after is not None and own.agrees(after) and own.place == after.place:
        return "missing", "it left out a collective"
    if after is not None and own.agrees(after):
        return "order", "it calls the two in a different order"
    if own.place not in known:
        return "extra", "no other rank calls a collective at that line"
    if own.name == theirs.name and own.dtype != theirs.dtype:
        return "dtype", f"{own.dtype} is not {theirs.dtype}"
    if own.name == theirs.name and own.sizes != theirs.sizes:
        return "size", "the sizes differ"
    if own.place != theirs.place:
        return "missing", "it left out a collective"
    return "unknown", "they are not the same collective"


def _absent(
    records: Records,
    group: str,
    number: int,
    guilty: int,
    theirs: Collective | None,
    doubt: str,
) -> Diagnosis:
    """Return the diagnosis of a rank that never called the collective in which others wait; `doubt` is a sentence."""
    record, is_sure = records[guilty], not doubt
    them = _call(theirs) if theirs is not None else "a collective"
    last = record.collectives[-1] if record.collectives else None
    if last is not None and theirs is not None and last.group != group and last.agrees(theirs):
        alone = not any(last.number in _of_group(other, last.group) for r, other in records.items() if r != guilty)
        if alone:
            words = f"rank {guilty} called {_call(last)} in group {last.group}; the others called it in group {group}."
            return Diagnosis("group", guilty, words + doubt, group, number, is_sure, is_sure)
    ended = {"done": "ended", "error": "raised an error", "died": "was aborted"}.get(record.state)
    if ended is not None:
        why = "." if record.state == "died" else ": it left out a collective."
        words = f"rank {guilty} {ended} without {them}, in which others wait{why}"
        cause = "dead" if record.state == "died" else "missing"
        return Diagnosis(cause, guilty, words + doubt, group, number, is_sure, is_sure)
    at = next((f"in {name}, {_file(file)} line {line}" for file, line, name in record.frames[::-1]), "elsewhere")
    saves = any(SAVE.fullmatch(name) for _, _, name in record.frames)
    loads = any(DATA.fullmatch(name) or DATA_FOLDER in file for file, _, name in record.frames)
    cause, what = ("save", "is saving") if saves else ("data", "waits for its data") if loads else ("elsewhere", "is")
    comma = "" if cause == "elsewhere" else ","
    words = f"rank {guilty} did not reach {them}: it {what}{comma} {at}.{doubt}"
    return Diagnosis(cause, guilty, words, group, number, is_sure, is_sure)


def _without_mismatch(records: Records) -> Diagnosis:
    """Return the diagnosis of records that agree: a rank may be slow."""
    ranks = [rank for rank, record in records.items() if record.collectives]
    late: Counter[int] = Counter()
    worst = 0.0
    keys = {(c.group, c.number) for rank in ranks for c in records[rank].collectives}
    for group, number in keys:
        times = {r: c.at_s for r in ranks if (c := _of_group(records[r], group).get(number)) is not None}
        last = max(times, key=lambda r: times[r])
        gap = times[last] - max((at_s for rank, at_s in times.items() if rank != last), default=times[last])
        if gap >= SLOW_S:
            late[last] += 1
            worst = max(worst, gap)
    for rank, times_late in late.most_common(1):
        if times_late >= 2 and times_late > SLOW_SHARE * sum(late.values()):
            words = f"rank {rank} came last to {times_late} of {len(keys)} collectives, up to {worst:.2f} s after the"
            return Diagnosis("slow", rank, f"{words} others. Nothing hangs: one slow rank slows all ranks down.")
    return Diagnosis("", None, "all ranks called the same collectives, and none was late again and again.")


def _guilty(here: Mapping[int, Collective | None], expected: Collective | None) -> tuple[int, bool]:
    """Return the rank that differs from the others, by majority, else by what was expected; and whether it is sure."""
    kinds = {rank: _kind(call) for rank, call in here.items()}
    common = Counter(kinds.values()).most_common()
    if len(common) > 1 and common[0][1] > common[1][1]:
        return next(rank for rank in sorted(here) if kinds[rank] != common[0][0]), True
    if expected is not None and _kind(expected) in kinds.values():
        return next(rank for rank in sorted(here) if kinds[rank] != _kind(expected)), True
    absent = [rank for rank, call in here.items() if call is None]
    if expected is not None and absent:  # nobody called what was expected: who waits has called one more
        return next(rank for rank in sorted(here) if here[rank] is not None), True
    return (absent or sorted(here))[-1], False


def _expected(calls: Mapping[int, Mapping[int, Collective]], number: int) -> Collective | None:
    """Return what should come as collective `number`, if the steps before go on; None if nothing like it came before.

    It is what followed the longest sequence of calls that the last ones repeat.
    """
    before = [c for n, c in sorted(next(iter(calls.values())).items()) if n < number] if calls else []
    for length in range(len(before) - 1, 0, -1):
        tail = [_kind(c) for c in before[-length:]]
        for start in range(len(before) - length - 1, -1, -1):
            if [_kind(c) for c in before[start : start + length]] == tail:
                return before[start + length]
    return None


def _seen_longest_ago(
    here: Mapping[int, Collective | None], calls: Mapping[int, Mapping[int, Collective]], number: int
) -> Collective | None:
    """Return the call of `here` that was last made longest ago: the first one of a step, it seems."""
    before = [_kind(c) for n, c in sorted(next(iter(calls.values())).items()) if n < number]
    seen = [call for call in here.values() if call is not None and _kind(call) in before]
    return max(seen, key=lambda call: before[::-1].index(_kind(call)), default=None)


def _after(call: Collective, others: Sequence[Mapping[int, Collective]], number: int) -> Collective | None:
    """Return what followed the last earlier call like `call` on the other ranks; None if there was none."""
    for of in others:
        if number + 1 in of:
            return of[number + 1]
        for n in sorted((n for n in of if n < number), reverse=True):
            if _kind(of[n]) == _kind(call) and n + 1 in of:
                return of[n + 1]
    return None


def _members(records: Records) -> dict[str, list[int]]:
    """Return {group: the ranks of it that are in the records}."""
    members: dict[str, set[int]] = {}
    for rank, record in records.items():
        for group, ranks in (record.groups or {}).items():
            members.setdefault(group, set()).update(r for r in ranks if r in records)
        for call in record.collectives:
            members.setdefault(call.group, set()).add(rank)
    return {group: sorted(ranks) for group, ranks in members.items()}


def _of_group(record: FlightRecord, group: str) -> dict[int, Collective]:
    return {call.number: call for call in record.collectives if call.group == group}


def _all_agree(here: Mapping[int, Collective]) -> bool:
    calls = list(here.values())
    return all(call.agrees(calls[0]) for call in calls)


def _any_mismatch(calls: Mapping[int, Mapping[int, Collective]], number: int) -> bool:
    """Return whether any collective from `number` on is not the same on all ranks."""
    numbers = {n for of in calls.values() for n in of if n >= number}
    return any(not _all_agree({rank: of[n] for rank, of in calls.items() if n in of}) for n in numbers)


def _out_of_phase(here: Mapping[int, Collective], calls: Mapping[int, Mapping[int, Collective]], number: int) -> bool:
    """Return whether ranks are at different lines here, and every rank calls each of these lines at some time."""
    lines = {call.place for call in here.values()}
    if len(lines) < 2:
        return False
    return all(all(line in {c.place for c in calls[rank].values()} for rank in here) for line in lines)


def _kind(call: Collective | None) -> tuple[object, ...]:
    return () if call is None else (call.name, call.sizes, call.dtype, call.place)


def _call(call: Collective) -> str:
    return f"{call} ({_file(call.file)} line {call.line}, in {call.function})"


def _file(file: str) -> str:
    """Return "Cell In[3]" for a cell, else the name of the file without its folders."""
    name = file_label(file)
    return os.path.basename(file) if name.startswith("File ") else name


def _waiting(records: Records, lost: int) -> str:
    """Say in which collective the others wait for a rank that gave no record."""
    calls = {rank: record.collectives[-1] for rank, record in records.items() if record.collectives and rank != lost}
    if not calls:
        return ""
    rank = min(calls)
    return f"rank {rank} waits in {_call(calls[rank])}."
