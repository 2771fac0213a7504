"""The ranks' flight records -> what differs between the ranks, and where. Pure data: no cause and no sentence.

All ranks of a group must call the same collectives in the same order. If a call hangs, the first place where they do
not is the one to look at; what comes after it is usually a consequence.
"""

import linecache
import math
import os
import re
import signal
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from notebook_ranks.code_lines import Branch, after_a_loop_with, branches_around, instead_of
from notebook_ranks.flight_recorder import Collective, FlightRecord

__all__ = [
    "SENDS",
    "Condition",
    "FEWEST",
    "Evidence",
    "Pair",
    "Records",
    "aborted",
    "branch_of_a_step",
    "branches_past",
    "called_by_several",
    "first_waiting",
    "latest",
    "loads_or_saves",
    "one_way",
    "refused",
    "steps_apart",
    "where_apart",
    "whereabouts",
]

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
Records = Mapping[int, FlightRecord]


@dataclass(frozen=True)
class Call(Collective):
    """A collective with the `role` of its group: 0 for a rank's first group, 1 for its second, and so on."""

    role: int = 0

    @property
    def kind(self) -> tuple[object, ...]:
        """What calls of different steps have in common."""
        return self.name, self.sizes, self.dtype, self.place, self.role

    def agrees(self, other: Collective) -> bool:
        """Return whether both are the same collective, in groups of the same role."""
        return super().agrees(other) and (not isinstance(other, Call) or self.role == other.role)


Calls = Mapping[int, Mapping[int, Call]]  # {rank: {number: call}}


class Condition(NamedTuple):
    """A branch with its file."""

    file: str
    branch: Branch

    def decides(self, call: Collective) -> bool:
        """Return whether the branch decides whether a collective is called."""
        return any(file == self.file and line in self.branch.decides for file, line in call.place)

    @property
    def is_on_nan(self) -> bool:
        """Whether it is an `if` that asks for a NaN, or for numbers that are not finite."""
        return self.branch.words.startswith("if ") and NOT_FINITE.search(self.branch.words) is not None


@dataclass(frozen=True, kw_only=True)
class Mismatch:
    """The first collective that the ranks did not call alike.

    `here` is the call of each rank, `called` the first of them, and `absent` is {rank without a call: its whereabouts}.
    `is_one_call`: all calls that are there are alike. `calls` are those of all groups in their order, `number` is the
    place among them, and `before` are the calls before. If the ranks' orders cannot be compared, the three are of one
    group. `is_order_open`: the ranks use more than this one.
    """

    here: Mapping[int, Call | None]
    called: Call
    absent: Mapping[int, str]
    is_one_call: bool
    calls: Calls
    number: int
    before: Sequence[Call]
    is_order_open: bool


@dataclass(frozen=True, kw_only=True)
class Suspect:
    """The rank that differs from the `others`; if not `is_sure`, it may be one of them that is wrong.

    `own` is its call and `theirs` that of the others, None if they have none.
    """

    rank: int
    is_sure: bool
    others: list[int]
    own: Call | None
    theirs: Call | None


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two calls that do not match: the suspect's `own`, and `theirs`, that of the others.

    `after` is what the others call next, or called next in a step before. `is_known`: a different rank makes the
    suspect's call at some time. `is_known_place`: a different rank makes any call in its place. `in_one_line`: both are
    in the same place, or in two branches of which only one runs. `in_two_groups`: only their groups are different.
    `is_behind_loop`: the suspect's call is in a new place after a loop, and the others are still in the loop.
    `repeats`: the suspect's call is like the last one of all ranks.
    """

    own: Call
    theirs: Call
    after: Call | None
    is_known: bool
    is_known_place: bool
    in_one_line: bool
    in_two_groups: bool
    is_behind_loop: bool
    repeats: bool


@dataclass(frozen=True)
class Evidence:
    """What the records of all ranks show. Each part is worked out when a cause asks for it."""

    records: Records

    @cached_property
    def missing(self) -> dict[int, str]:
        """{rank that gave no collectives: its state}."""
        return {rank: record.state for rank, record in sorted(self.records.items()) if record.missing}

    @cached_property
    def seen(self) -> Records:
        """The records of the other ranks."""
        return {rank: record for rank, record in self.records.items() if not record.missing}

    @cached_property
    def mismatch(self) -> Mismatch | None:
        """The first collective that does not match; None if all do."""
        return _mismatch(self.seen)

    @cached_property
    def suspect(self) -> Suspect | None:
        """The rank whose call differs at the mismatch."""
        return _suspect(self.mismatch) if self.mismatch else None

    @cached_property
    def pair(self) -> Pair | None:
        """Its call and that of the others, if both have one."""
        return _pair(self.mismatch, self.suspect) if self.mismatch and self.suspect else None


def where_apart(records: Records) -> tuple[str, int] | None:
    """Return (group, number) of the first collective that not all ranks of its group have called alike; else None."""
    found: list[tuple[bool, float, str, int]] = []  # a group that was used before comes before a new one
    for group, members in _members(records).items():
        calls = {rank: _of_group(records[rank], group) for rank in members if not records[rank].missing}
        if (number := _first_apart(calls)) is not None:
            is_new = number == max((min(of) for of in calls.values() if of), default=1)
            at_s = min(of[number].at_s for of in calls.values() if number in of)
            found.append((is_new, at_s, group, number))
    return min(found)[2:] if found else None


def _mismatch(records: Records) -> Mismatch | None:
    where = where_apart(records)
    if where is None:
        return None
    group, number = where
    calls: Calls = {rank: _of_group(records[rank], group) for rank in _members(records)[group]}
    in_order = _apart_in_order(records)
    calls, number = in_order or (calls, number)
    here = {rank: calls[rank].get(number) for rank in sorted(calls)}
    called = [call for call in here.values() if call is not None]
    return Mismatch(
        here=here,
        called=called[0],
        absent={rank: whereabouts(records[rank]) for rank, call in here.items() if call is None},
        is_one_call=_all_agree(called),
        calls=calls,
        number=number,
        before=max(([of[n] for n in sorted(of) if n < number] for of in calls.values()), key=len, default=[]),
        is_order_open=not in_order and len({call.group for of in records.values() for call in of.collectives}) > 1,
    )


def _suspect(m: Mismatch) -> Suspect:
    rank, is_sure = _different(m.here, m.before)
    others = [other for other in m.here if other != rank]
    theirs = next((call for other in others if (call := m.here[other]) is not None), None)
    return Suspect(rank=rank, is_sure=is_sure, others=others, own=m.here[rank], theirs=theirs)


def _pair(m: Mismatch, suspect: Suspect) -> Pair | None:
    own, theirs, others = suspect.own, suspect.theirs, [m.calls[rank] for rank in suspect.others]
    if own is None or theirs is None:
        return None
    calls = [call for of in others for call in of.values()]
    nexts = [of[m.number + 1] for of in others if m.number + 1 in of]
    is_known_place = own.place in {call.place for call in calls}
    is_instead = own.file == theirs.file and instead_of(own.file, own.line, theirs.line)
    return Pair(
        own=own,
        theirs=theirs,
        after=nexts[0] if nexts else _followed(theirs, m.before),
        is_known=own.kind in {call.kind for call in calls},
        is_known_place=is_known_place,
        in_one_line=own.place == theirs.place or is_instead,
        in_two_groups=own.role != theirs.role and replace(own, role=theirs.role).agrees(theirs),
        is_behind_loop=not is_known_place and _after_the_loop(theirs, own),
        repeats=bool(m.before) and own.kind == m.before[-1].kind,
    )


def whereabouts(record: FlightRecord) -> str:
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
    if loads_or_saves(record):
        return "elsewhere" if record.state == "running" else "raised"
    for file, line, _ in record.frames[-1:]:
        if any(folder in file for folder in OF_TORCH) or WAITS.search(linecache.getline(file, line)):
            return "communicates"
    return "raised" if record.state == "error" else "elsewhere"


def loads_or_saves(record: FlightRecord) -> str:
    """Return "save" or "data" if the functions on a rank's stack save or load, else ""."""
    if any(SAVE.fullmatch(name) for _, _, name in record.frames):
        return "save"
    return "data" if any(DATA.fullmatch(name) or DATA_FOLDER in file for file, _, name in record.frames) else ""


def aborted(record: FlightRecord) -> bool:
    """Return whether a process was aborted: it ended itself, as gloo does if it receives more than it expects."""
    return record.exitcode == -signal.SIGABRT


def first_waiting(records: Records) -> tuple[int, Collective] | None:
    """Return the first rank that waits in a collective, and this collective; None if no rank does."""
    waiting = [rank for rank, of in sorted(records.items()) if of.collectives and whereabouts(of) == "waits"]
    return (waiting[0], records[waiting[0]].collectives[-1]) if waiting else None


def refused(record: FlightRecord) -> bool:
    """Return whether a rank's collective raised an error, and not because a different rank did not come or ended."""
    return record.state == "error" and bool(record.error) and not WAITED.search(record.error)


def one_way(e: Evidence) -> list[int]:
    """Return the ranks that all wait in a send, or all in a receive, if no other rank or earlier call can help them.

    The other ranks wait in a collective. In a job that runs, all ranks may be in a send for a moment; so one must have
    waited for too long. The source must show that no rank has begun the opposite call before, without waiting for it.
    """
    ranks = sorted(e.seen) if e.mismatch is None else list(e.mismatch.absent)
    if e.mismatch and not (e.mismatch.is_one_call and "communicates" in e.mismatch.absent.values()):
        return []
    inside, others = [e.seen[rank] for rank in ranks], [x for rank, x in e.seen.items() if rank not in ranks]
    names = {record.waits_in for record in inside}
    if len(ranks) < 2 or not (names <= SENDS or names <= RECEIVES):
        return []
    if any(whereabouts(other) != "waits" or not other.waits_in for other in others):
        return []
    if all(record.state == "running" for record in inside) or any(map(refused, e.seen.values())):
        return []
    return [] if any(_may_begin("irecv" if names <= SENDS else "isend", record) for record in inside) else ranks


def _may_begin(name: str, record: FlightRecord) -> bool:
    """Return whether the source of the functions on a rank's stack contains a name, or is not at hand."""
    files = {file for file, _, _ in record.frames if f"{os.sep}torch{os.sep}" not in file}
    sources = ["".join(linecache.getlines(file)) for file in files]
    return not sources or any(not source or name in source for source in sources)


# the rank that differs


def _different(here: Mapping[int, Call | None], before: Sequence[Call]) -> tuple[int, bool]:
    """Return the rank that differs from all others, or from the steps before; and whether it is sure."""
    kinds = {rank: () if call is None else call.kind for rank, call in here.items()}
    (most, num_most), *rest = Counter(kinds.values()).most_common()
    if rest and num_most > rest[0][1]:
        different = [rank for rank in kinds if kinds[rank] != most]
        return different[0], len(different) == 1
    expected, always = _expected(before)
    if expected is not None and expected.kind in kinds.values():
        suspect = next(rank for rank in kinds if kinds[rank] != expected.kind)
        return suspect, always and len(kinds) == 2 and _decided(here[suspect], expected, before)
    seen = [call for call in before[::-1] if call.kind in kinds.values()]  # the first one of a step, it seems
    if expected is None and seen:
        oldest = list(dict.fromkeys(call.kind for call in seen))[-1]
        return next(rank for rank in kinds if kinds[rank] != oldest), False
    absent = [rank for rank, call in here.items() if call is None]
    if expected is not None and absent:  # nobody called what was expected: who waits may have called one more
        return next(rank for rank in here if rank not in absent), False
    return (absent or sorted(here))[-1], False


def _decided(own: Call | None, expected: Call, before: Sequence[Call]) -> bool:
    """Return whether the call of one of two ranks is wrong, if the other rank's was `expected`.

    A call from a new line may be one that the other rank has left out; and one that leaves a loop decides nothing.
    """
    if own is None or own.kind in {call.kind for call in before}:
        return True
    if own.place == expected.place:
        return True  # the size or the type of all steps before is different
    after = _followed(expected, before)
    return after is not None and own.agrees(after) and after.sizes not in ((), ((1,),), ((),))


def _expected(before: Sequence[Call]) -> tuple[Call | None, bool]:
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


def _followed(call: Call, before: Sequence[Call]) -> Call | None:
    """Return what followed the last call like `call`; None if there was none."""
    pairs = zip(before[-2::-1], before[::-1], strict=False)
    return next((after for one, after in pairs if one.kind == call.kind), None)


# loops and branches


def steps_apart(m: Mismatch, suspect: Suspect) -> tuple[Call, Call | None, bool] | None:
    """Return (a call in a loop, the call after the loop, whether the suspect has taken fewer steps); None without one.

    Some ranks make the first call once more while others make the second; it is None if they have returned.
    """
    for inner, outer in ((suspect.theirs, suspect.own), (suspect.own, suspect.theirs)):
        if inner is not None and _once_more(inner, outer, m.before):
            return inner, outer, inner is suspect.theirs
    return None


def _once_more(inner: Call, outer: Call | None, before: Sequence[Call]) -> bool:
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


def _after_the_loop(inner: Call, outer: Call) -> bool:
    """Return whether `inner` is in a loop, itself or by its callers, and `outer` comes after that loop."""
    (file, line), (_, line_after) = _fork(inner, outer)
    deeper = [at for at in inner.place[::-1] if at not in outer.place]
    return after_a_loop_with(file, line, line_after) or (
        line < line_after and any(after_a_loop_with(*at, 1 << 60) for at in deeper if at != (file, line))
    )


def _fork(one: Collective, other: Collective) -> tuple[tuple[str, int], tuple[str, int]]:
    """Return the outermost place in which the callers of two calls differ, one for each call."""
    places = list(zip(one.place[::-1], other.place[::-1], strict=False))
    return next(((a, b) for a, b in places if a != b), places[-1])


def branches_past(pair: Pair, before: Sequence[Call]) -> tuple[Condition | None, Condition | None]:
    """Return (a branch on a NaN at which the suspect has left out calls of the others, a different such branch).

    Such a branch decides all calls that the rank has left out, and not the rank's own call. It does not decide the last
    call before either: the rank has come to the branch after that call.
    """
    own, theirs = pair.own, pair.theirs
    since = _end_of_last(theirs, before)
    step = [call.kind for call in before[since + 1 :]]
    end = since + 1 + step.index(own.kind) if own.kind in step else since + 1
    left_out, passed = [theirs, *before[since + 1 : end]], [own, *before[-1:]]
    names = {call.name for call in (theirs, own, *before)}
    found, others = list[Condition](), list[Condition]()
    for at in _branches_around(theirs):
        if all(map(at.decides, left_out)) and not any(map(at.decides, passed)):
            if at.is_on_nan:
                found.append(at)
            elif not at.branch.instead & names:  # with such a call the rank would be in that one
                others.append(at)
    return found[0] if found else None, others[0] if others else None


def branch_of_a_step(inner: Call, before: Sequence[Call]) -> Condition | None:
    """Return a branch on a NaN that decides all calls of a step; None without one.

    A rank that leaves out such a step calls the same collectives as one with a minibatch fewer.
    """
    step = before[_end_of_last(inner, before) :]
    return next((at for at in _branches_around(inner) if at.is_on_nan and all(map(at.decides, step))), None)


def _branches_around(call: Call) -> Iterator[Condition]:
    return (Condition(file, branch) for file, line in call.place for branch in branches_around(file, line))


def _end_of_last(call: Call, before: Sequence[Call]) -> int:
    """Return where the last call like `call` is, the length of `before` if there is none."""
    return max((i for i, one in enumerate(before) if one.kind == call.kind), default=len(before))


# lateness


def latest(records: Records) -> tuple[int, int, int, float] | None:
    """Return (rank, calls to which it came late, calls, the most seconds) of a rank that is late again and again.

    Each rank is late now and then. One is slow if it is late to most calls of a line, and if chance would make one
    rank late so much more often than the others in one of 200 jobs.
    """
    num_ranks = sum(bool(record.collectives) for record in records.values())
    shared = called_by_several(records)
    late: Counter[int] = Counter()
    late_at: Counter[tuple[int, object]] = Counter()
    worst = dict.fromkeys(records, 0.0)
    for here in shared:
        *_, second_s, last_s = sorted(call.at_s for call in here.values())
        last = next(rank for rank, call in here.items() if call.at_s == last_s)
        if last_s - second_s >= SLOW_S:
            late[last] += 1
            late_at[last, here[last].place] += 1
            worst[last] = max(worst[last], last_s - second_s)
    if len(shared) < FEWEST or not late:
        return None
    rank, num_late = late.most_common(1)[0]
    num_places: Counter[object] = Counter(here[rank].place for here in shared if rank in here)
    always = any(n >= SLOW_SHARE * num_places[place] for (r, place), n in late_at.items() if r == rank)
    if not always or _by_chance(num_late, sum(late.values()), num_ranks) > MOST_CHANCE:
        return None
    return rank, num_late, len(shared), worst[rank]


def called_by_several(records: Records) -> list[dict[int, Collective]]:
    """Return {rank: its call} of each collective that several ranks have called."""
    times: dict[tuple[str, int], dict[int, Collective]] = {}
    for rank, record in records.items():
        for call in record.collectives:
            times.setdefault((call.group, call.number), {})[rank] = call
    return [here for here in times.values() if len(here) > 1]


def _by_chance(num: int, of: int, num_ranks: int) -> float:
    """Return how likely one of `num_ranks` equal ranks is the late one `num` times or more, of `of` times."""
    share = 1 / num_ranks
    return num_ranks * sum(math.comb(of, k) * share**k * (1 - share) ** (of - k) for k in range(num, of + 1))


# the first place where the ranks are apart


def _first_apart(calls: Calls) -> int | None:
    """Return the first number that not all ranks have called alike; None if there is none."""
    lasts = [max(of, default=0) for of in calls.values()]
    firsts = [min(of) for of in calls.values() if of]
    for number in range(max(firsts, default=1), max(lasts, default=0) + 1):
        here = {rank: of[number] for rank, of in calls.items() if number in of}
        if not here:  # no recorder has kept it
            continue
        if not _all_agree(here.values()) or len(here) < len(calls):
            return number
        if _out_of_step(here, calls, number) and (len(set(lasts)) > 1 or _any_mismatch(calls, number)):
            return number
    return None


def _out_of_step(here: Mapping[int, Call], calls: Calls, number: int) -> bool:
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


def _all_agree(calls: Iterable[Call]) -> bool:
    return all(earlier.agrees(later) for earlier, later in pairwise(calls))


def _apart_in_order(records: Records) -> tuple[Calls, int] | None:
    """Return {rank: {place in its sequence over all groups: call}}, and the first place where the sequences differ.

    None if they do not, or cannot be compared. They can if the recorders begin with the same calls, and if a rank is
    stuck at the first place where they differ: then all ranks do the same with groups of their own, such as those of
    their hosts.
    """
    for group, members in _members(records).items():
        if len({min(of) for rank in members if (of := _of_group(records[rank], group))}) > 1:
            return None
    calls: dict[int, dict[int, Call]] = {}
    for rank, record in records.items():
        names = {call.group for call in record.collectives}
        names |= {name for name, ranks in (record.groups or {}).items() if rank in ranks}
        roles = {name: role for role, name in enumerate(sorted(names, key=lambda name: (len(name), name)))}
        calls[rank] = {i: _call(c, roles[c.group]) for i, c in enumerate(record.collectives, 1)}
    number = _first_apart(calls)
    return (calls, number) if number is not None and any(len(of) <= number for of in calls.values()) else None


def _members(records: Records) -> dict[str, list[int]]:
    """Return {group: the ranks of it that are in the records}."""
    members: dict[str, set[int]] = {}
    for rank, record in records.items():
        for group, ranks in (record.groups or {}).items():
            members.setdefault(group, set()).update(r for r in ranks if r in records)
        for call in record.collectives:
            members.setdefault(call.group, set()).add(rank)
    return {group: sorted(ranks) for group, ranks in members.items()}


def _of_group(record: FlightRecord, group: str) -> dict[int, Call]:
    return {call.number: _call(call) for call in record.collectives if call.group == group}


def _call(call: Collective, role: int = 0) -> Call:
    return Call(**{field.name: getattr(call, field.name) for field in fields(Collective)}, role=role)
