"""Pipeline schedules: which pass of which microbatch each rank computes next, and whether such an order can run.

A schedule is a list of `Pass` for each rank. Each stage (some layers of the network) belongs to one rank. The notation
is PyTorch's: 1F0 is the forward pass of microbatch 0 through stage 1.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from notebook_ranks.shared.checks import positive_int, whole_number

__all__ = [
    "PASS_KINDS",
    "Pass",
    "check_schedule",
    "compare_with_1f1b",
    "gpipe",
    "needs",
    "one_f_one_b",
    "parse_passes",
    "pass_order",
]

PASS_KINDS = {
    "F": "forward pass",
    "B": "backward pass",
    "I": "gradient of the input",
    "W": "gradient of the weights",
}


class Pass(NamedTuple):
    """One microbatch through one stage: `kind` is one of PASS_KINDS.

    A backward pass B is I (the gradient that the stage before waits for) and W (that of the weights, which nobody waits
    for) in one.
    """

    kind: str
    stage: int
    microbatch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.microbatch}"


def gpipe(stage: int, num_stages: int, num_microbatches: int) -> list[Pass]:
    """Return the passes of one stage: all forward, then all backward (Huang et al. 2019, arXiv:1811.06965).

    Example:
        >>> print(*gpipe(stage=1, num_stages=2, num_microbatches=3))
        1F0 1F1 1F2 1B0 1B1 1B2
    """
    return [Pass(kind, stage, i) for kind in "FB" for i in range(num_microbatches)]


def one_f_one_b(stage: int, num_stages: int, num_microbatches: int) -> list[Pass]:
    """Return the passes of one stage: some forward, then backward and forward in turn (1F1B).

    A stage begins with as many forward passes as there are stages from it on (Harlap et al. 2018, arXiv:1806.03377;
    with the pause between two minibatches PipeDream-Flush, Narayanan et al. 2020, arXiv:2006.09503).

    Example:
        >>> print(*one_f_one_b(stage=0, num_stages=2, num_microbatches=3))
        0F0 0F1 0B0 0F2 0B1 0B2
    """
    ahead = min(num_stages - stage, num_microbatches)
    passes = [Pass("F", stage, i) for i in range(ahead)]
    for i in range(num_microbatches):
        passes.append(Pass("B", stage, i))
        if ahead + i < num_microbatches:
            passes.append(Pass("F", stage, ahead + i))
    return passes


def compare_with_1f1b(written: Callable[[int, int, int], list[Pass] | None]) -> str:
    """Return where a learner's rule for the passes of a stage differs from `one_f_one_b`, as a text.

    Example:
        >>> compare_with_1f1b(one_f_one_b)
        'equal for all sizes'
    """
    wrong = []
    for k, m in ((2, 4), (3, 2), (4, 8)):  # stages and microbatches, also fewer microbatches than stages
        for stage in range(k):
            mine = written(stage, k, m)
            if mine is None:
                return f"Not yet: {written.__name__} returns None. Fill it in, then run both cells again."
            if mine != one_f_one_b(stage, k, m):
                wrong.append(f"stage {stage} of {k}, {m} microbatches: not 1F1B: {' '.join(map(str, mine))}")
    return "\n".join(wrong) or "equal for all sizes"


def parse_passes(text: str, stage: int | None = None) -> list[Pass]:
    """Return the passes that a text lists, such as "0F0 0F1 0B0"; "F0" means `stage`, if there is one.

    Raises:
        ValueError: if a word is no pass.

    Example:
        >>> parse_passes("F0 B0", stage=1)
        [Pass(kind='F', stage=1, microbatch=0), Pass(kind='B', stage=1, microbatch=0)]
    """
    passes = []
    for word in text.replace(",", " ").split():
        found = re.fullmatch(r"(\d{0,3})([FBIW])(\d{1,3})", word.upper(), re.ASCII)
        if not found or not (found[1] or stage is not None):
            example = "0F0 (stage 0, forward pass of microbatch 0)" if stage is None else "F0 or B0"
            raise ValueError(f"{word!r} is no pass. Write passes like {example}; the letters are {', '.join('FBIW')}.")
        passes.append(Pass(found[2], int(found[1] or stage or 0), int(found[3])))
    return passes


def needs(done: Pass, num_stages: int) -> list[Pass]:
    """Return the passes that must have ended before `done` can begin; where one is "B", I will do as well."""
    kind, stage, i = done
    if kind == "F":
        return [Pass("F", stage - 1, i)] if stage > 0 else []
    if kind == "W":
        return [Pass("I", stage, i)]
    return [Pass("F", stage, i), *([Pass("B", stage + 1, i)] if stage < num_stages - 1 else [])]


def _pass_name(one: Pass) -> str:
    return f"{one} (the {PASS_KINDS[one.kind]} of microbatch {one.microbatch} through stage {one.stage})"


def pass_order(schedule: Sequence[Sequence[Pass]], num_stages: int) -> Iterator[tuple[int, Pass]]:
    """Yield (rank, pass), each as soon as what it needs has ended.

    Raises:
        ValueError: if a moment comes in which no rank can go on: it says what each of them waits for.
    """
    done: set[Pass] = set()
    at = [0] * len(schedule)
    while waiting := [rank for rank in range(len(schedule)) if at[rank] < len(schedule[rank])]:
        ready = [rank for rank in waiting if not _missing(schedule[rank][at[rank]], num_stages, done)]
        if not ready:
            raise ValueError(_stuck(schedule, num_stages, at, waiting, done))
        for rank in ready:
            one = schedule[rank][at[rank]]
            yield rank, one
            at[rank] += 1
            done |= {one, one._replace(kind="B")} if one.kind == "I" else {one}


def _missing(one: Pass, num_stages: int, done: set[Pass]) -> list[Pass]:
    return [other for other in needs(one, num_stages) if other not in done]


def _stuck(
    schedule: Sequence[Sequence[Pass]], num_stages: int, at: Sequence[int], waiting: Sequence[int], done: set[Pass]
) -> str:
    """Return the words for a moment in which no rank can go on."""
    words, listed = [], {one for passes in schedule for one in passes}
    for rank in waiting:
        one = schedule[rank][at[rank]]
        first = _missing(one, num_stages, done)[0]
        if first not in listed and first._replace(kind="I") in listed:
            first = first._replace(kind="I")
        if first in schedule[rank][at[rank] :]:
            return (
                f"rank {rank}, pass {at[rank] + 1}: {_pass_name(one)} needs {first} first, which comes later on the "
                "same rank. Put it before this one, after all that it needs."
            )
        if first not in listed:
            return (
                f"rank {rank}, pass {at[rank] + 1}: {_pass_name(one)} needs {first} first, which is in no rank's list."
            )
        words.append(f"rank {rank} waits with {one} for {first}")
    return f"No rank can go on: {'; '.join(words)}. Each waits for a pass that comes after one which waits itself."


def check_schedule(schedule: Sequence[Sequence[Pass]], num_stages: int, num_microbatches: int) -> None:
    """Raise ValueError, with the reason in words, unless the ranks can run the schedule to its end.

    Every stage belongs to one rank, and each microbatch goes forward and backward once through every stage; each pass
    comes after the passes that it needs, and no two ranks wait for each other.

    Args:
        schedule: the passes of each rank, in their order.
        num_stages: how many stages the network has.
        num_microbatches: how many microbatches go through it.

    Raises:
        ValueError: if the schedule cannot run, or leaves something out.
        TypeError: if a number is no whole number.

    Example:
        >>> check_schedule([gpipe(stage, 2, 4) for stage in range(2)], num_stages=2, num_microbatches=4)
    """
    positive_int("num_stages", num_stages)
    positive_int("num_microbatches", num_microbatches)
    rank_of: dict[int, int] = {}
    seen: set[Pass] = set()
    for rank, passes in enumerate(schedule):
        for number, one in enumerate(passes, 1):
            here = f"rank {rank}, pass {number}: {one}"
            if one.kind not in PASS_KINDS:
                raise ValueError(f"{here}: there is no kind {one.kind!r}, only {', '.join(PASS_KINDS)}.")
            whole_number(f"{here}: stage", one.stage, 0, num_stages - 1)
            whole_number(f"{here}: microbatch", one.microbatch, 0, num_microbatches - 1)
            if rank_of.setdefault(one.stage, rank) != rank:
                raise ValueError(
                    f"{here}: stage {one.stage} belongs to rank {rank_of[one.stage]}, which has its weights. All of "
                    "its passes go there."
                )
            if one in seen:
                raise ValueError(f"{here} comes a second time. Each microbatch goes once through each stage.")
            seen.add(one)
    for stage in range(num_stages):
        for i in range(num_microbatches):
            _check_complete(stage, i, seen)
    for _ in pass_order(schedule, num_stages):
        pass


def _check_complete(stage: int, i: int, seen: set[Pass]) -> None:
    """Raise ValueError unless a microbatch goes forward through a stage, and backward in one pass or in two."""
    here = f"stage {stage}, microbatch {i}"
    kinds = {kind for kind in PASS_KINDS if Pass(kind, stage, i) in seen}
    if "B" in kinds and kinds & {"I", "W"}:
        both = " and ".join(str(Pass(kind, stage, i)) for kind in sorted(kinds - {"F"}))
        raise ValueError(f"{here}: B is I and W in one pass, and here are {both}.")
    required = "FB" if "B" in kinds or not kinds & {"I", "W"} else "FIW"
    for kind in required:
        if kind not in kinds:
            raise ValueError(f"{here}: the {PASS_KINDS[kind]} {Pass(kind, stage, i)} is in no rank's list.")
