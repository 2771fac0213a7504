"""The words of a diagnosis: its facts, and its doubts about the cause or the rank. Data become words here alone."""

import os
import string
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Any

from notebook_ranks.flight_recorder import Collective, FlightRecord, file_label
from notebook_ranks.hang_evidence import Condition, Records

__all__ = [
    "Fact",
    "OtherCause",
    "OtherRank",
    "Sentence",
    "common_place",
    "in_words",
    "places",
    "them",
    "without_record",
]

CALLED = "rank {rank} called {own}; {them} called {theirs}: "
NOT_REACHED = "rank {rank} did not reach {call}: it "
TOOK_FEWER = "rank {rank} took fewer steps than {them}: it "
TOOK_MORE = "rank {rank} took more steps than {them}: it "
HAD_FEWER = "Rank {rank} had fewer minibatches or left out a step, or {them} had more minibatches"
WRONG_RANK = "Which rank is wrong is not recorded: {places}."
INPUTS = "the recorder does not show src, dst, the splits of an all-to-all, and what is sent from rank to rank"


class Fact(Enum):
    """What the records show; the words in braces are the names of data."""

    DEAD = "rank {rank}: its process has ended."
    ABORTED = "rank {rank}: its process was aborted and gave no record."
    STOPPED = "rank {rank}: its process is stopped, or does not get its turn."
    WAITS = "rank {waiting[0]} waits in {waiting[1]}."
    STILL_WAITS = "rank {rank} still waits in {last[0]}, and a different rank has called {call}."
    IS_BEHIND = "rank {rank} is {record}, and a different rank has called {call}."
    SENDS = (
        "ranks {ranks} wait in a send, and no rank is in a receive. With gloo a send ends only when its receive has "
        "begun. If two ranks send first, let one receive first, or use isend or batch_isend_irecv."
    )
    RECEIVES = (
        "ranks {ranks} wait in a receive, and no rank is in a send. A receive ends only when its tensor has come. If "
        "two ranks receive first, let one send first, or use irecv or batch_isend_irecv."
    )
    RAISED = "rank {rank} raised an error {record}. All ranks called the same collectives."
    RAISED_BEFORE = "rank {rank} raised an error {record}, without {call}, in which others wait."
    SAVES = NOT_REACHED + "is saving, {record}."
    LOADS = NOT_REACHED + "waits for its data, {record}."
    ELSEWHERE = NOT_REACHED + "is {record}."
    FEWER = TOOK_FEWER + "went on to {outer}, and {them} called {inner} once more."
    FEWER_AT_END = TOOK_FEWER + "returned, and {them} called {inner} once more."
    MORE = TOOK_MORE + "called {inner} once more, and {them} went on to {outer}."
    MORE_AT_END = TOOK_MORE + "called {inner} once more, and {them} returned."
    BRANCH = CALLED + "at {branch} rank {rank} went a way of its own."
    ORDER = CALLED + "rank {rank} calls the two in a different order."
    DTYPE = CALLED + "{own.dtype} is not {theirs.dtype}."
    SIZE = CALLED + "the sizes differ."
    GROUP = "rank {rank} called {own} in group {own.group}; {them} called it in group {theirs.group}."
    EXTRA = CALLED + "no other rank calls a collective at that line."
    ALONE = "rank {rank} called {own}, and no other rank did."
    LEFT_OUT = CALLED + "rank {rank} left out a collective."
    LEFT_LOOP = CALLED + "rank {rank} left the loop in the middle of a step."
    ENDED = "rank {rank} ended without {theirs}, in which others wait: it left out a collective."
    NOT_THE_SAME = CALLED + "they are not the same collective."
    PLACES = "{places}."
    SLOW = (
        "rank {rank} came last to {times} of {of} collectives, up to {most_s:.2f} s after the others. Nothing hangs: "
        "one slow rank slows all ranks down."
    )
    NOTHING = "all ranks called the same collectives, and none was late again and again."
    TOO_FEW = "all ranks called the same collectives. {of} are too few to say whether one of the ranks is slow."


class OtherCause(Enum):
    """A doubt about the cause: what the same rank may have done as well."""

    LEFT_OUT_OUTER = "It may also have left out the {outer.name} after the loop."
    BRANCH = "Rank {rank} may also have left out a step at {branch}."
    BRANCH_OF_OTHERS = "One of the others may also have left out a step at {branch}."
    OTHER_BRANCH = "It may also be {other}."
    TWICE = "It may also have called this one twice."
    ORDER = "It may also have called two in a different order: no step comes before."
    ORDER_AT_ONE_LINE = "It may also have called the two in a different order: one line calls both."
    EXTRA = "It may also be an additional call of the same size."
    IN_PLACE = "It may also stand for the call of the others."
    NEW_KIND = "Its size or type is new as well."
    UNKNOWN = "The records show no cause."


class OtherRank(Enum):
    """A doubt about the rank: why it may be a different one."""

    ABORTED = "Usually the ranks' collectives differ, and it may also be a different rank that called the wrong one."
    ENDED = "So has {others}: which one ended first is not known."
    ONE_ENDED = "It may also be a rank that has ended."
    STOPPED = "It may also be {others}."
    BEHIND = f"Compare what the ranks give to the first of the two calls: {INPUTS}."
    HELD_UP = "It may wait there for a different rank, which is then the guilty one."
    NO_RECEIVE = "A rank may also have left out a receive. " + WRONG_RANK
    NO_SEND = "A rank may also have left out a send. " + WRONG_RANK
    NOT_THERE = "It may also be {others}: several ranks are not there."
    NEW_CALL = "It may also be {others}: that call came in no step before."
    REFUSED = "It may also be {others}, whose call raised an error at once."
    FEW_STEPS = "It may also be {them}: too few steps come before to decide."
    OTHERS_DIFFER = "It may also be a different rank: the others do not agree either."
    MINIBATCHES = HAD_FEWER + " or left out the {outer.name} after the loop."
    MINIBATCHES_AT_END = HAD_FEWER + "."
    STEPS_DIFFER = "It may also be a different rank: several have different numbers of steps."
    SEVERAL_GROUPS = "It may also be a different rank: the ranks use several groups."
    NO_RECORD = "{missing}."
    BUT_NO_RECORD = "But {missing}."
    AGREE = f"the collectives of all ranks agree, and the job failed: {INPUTS}."


Sentence = Fact | OtherCause | OtherRank


def in_words(sentences: Iterable[Sentence], **data: object) -> str:
    """Return the sentences with their data: ranks, calls, records and conditions."""
    return " ".join(_Words().vformat(sentence.value, (), data) for sentence in sentences)


class _Words(string.Formatter):
    """Says where a call, a record or a condition is, and "rank 1, rank 2" for the list [1, 2]."""

    def format_field(self, value: Any, spec: str) -> str:
        if isinstance(value, Collective):
            return f"{value} ({_file(value.file)} line {value.line}, in {value.function})"
        if isinstance(value, Condition):
            return f"`{value.branch.words}` ({_file(value.file)} line {value.branch.line})"
        if isinstance(value, FlightRecord):
            return _place(value)
        return ", ".join(f"rank {rank}" for rank in value) if isinstance(value, list) else format(value, spec)


def them(others: Sequence[int]) -> str:
    """Return "rank 1" for one rank, else "the others"."""
    return f"rank {others[0]}" if len(others) == 1 else "the others"


def places(records: Records, joint: str) -> str:
    """Return "rank 0 is in step, train.py line 3, rank 1 is in ...", with `joint` between two."""
    return joint.join(f"rank {rank} is {_place(record)}" for rank, record in sorted(records.items()))


def common_place(records: Records) -> str:
    """Return "both are in step, train.py line 3" or "all are ..." of ranks in one place, else where each is."""
    found = {_place(record) for record in records.values()}
    return places(records, ", ") if len(found) > 1 else f"{'both' if len(records) == 2 else 'all'} are {found.pop()}"


def without_record(records: Records) -> str:
    """Return "rank 1 gave no record: it did not answer in time" for each rank that gave none."""
    why = {rank: record.missing for rank, record in sorted(records.items()) if record.missing}
    return "; ".join(f"rank {rank} gave no record: {said}" for rank, said in why.items())


def _place(record: FlightRecord) -> str:
    """Return "in compute, train.py line 30" for a rank's innermost frame that is not PyTorch's."""
    frames = [frame for frame in record.frames if f"{os.sep}torch{os.sep}" not in frame[0]] or record.frames
    return next((f"in {name}, {_file(file)} line {line}" for file, line, name in frames[::-1]), "elsewhere")


def _file(file: str) -> str:
    """Return "Cell In[3]" for a cell, else the name of the file without its folders."""
    name = file_label(file)
    return os.path.basename(file) if name.startswith("File ") else name
