"""The exercises of chapter 12: the first collective that does not match, and the ranks that the others wait for."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from d2lite.exercises import Exercise, Mistake, Unfit

Call = tuple[str, int]  # name and number of elements
Calls = Sequence[Sequence[Call]]  # of each rank


def _first_unlike(calls: Calls) -> int | None:
    for i in range(max(map(len, calls), default=0)):
        if len({mine[i] if i < len(mine) else None for mine in calls}) > 1:
            return i
    return None


def _where_all_have_one(calls: Calls) -> int | None:
    return next((i for i, here in enumerate(zip(*calls, strict=False)) if len(set(here)) > 1), None)


def _of_the_first_two(calls: Calls) -> int | None:
    return _first_unlike(calls[:2])


def _last_unlike(calls: Calls) -> int | None:
    shortest = min(map(len, calls))
    unlike = [i for i in range(max(map(len, calls))) if i >= shortest or len({mine[i] for mine in calls}) > 1]
    return unlike[-1] if unlike else None


def _names_alone(calls: Calls) -> int | None:
    return _first_unlike([[(name, 0) for name, _ in mine] for mine in calls])


def _sizes_alone(calls: Calls) -> int | None:
    return _first_unlike([[("", n) for _, n in mine] for mine in calls])


def _from_one(calls: Calls) -> int | None:
    found = _first_unlike(calls)
    return None if found is None else found + 1


def _shortest(calls: Calls) -> int | None:
    lengths = set(map(len, calls))
    return min(lengths) if len(lengths) > 1 else None


def _first_and_last(calls: Calls) -> int | None:
    return _first_unlike([calls[0], calls[-1]])


def _or_else(calls: Calls, otherwise: int) -> int:
    found = _first_unlike(calls)
    return otherwise if found is None else found


def _last_alike(calls: Calls) -> int | None:
    found = _first_unlike(calls)
    return None if found is None else found - 1


def _the_call(calls: Calls) -> Call | None:
    found = _first_unlike(calls)
    return None if found is None or found >= len(calls[0]) else calls[0][found]


_W, _B, _END = ("all_reduce", 1000), ("all_reduce", 10), ("barrier", 0)
_PAPER = "Write the calls of the ranks below each other, and go from left to right. What stands where a rank has none?"

FIRST = Exercise(
    name="12.1",
    title="The first collective that does not match",
    solution=_first_unlike,
    cases=lambda: {
        "two ranks, all alike": ([[_W, _B, _END], [_W, _B, _END]],),
        "rank 1 left out the second call": ([[_W, _B, _END, _W], [_W, _END, _W, _B]],),
        "rank 1 called nothing more": ([[_W, _B, _END, _W], [_W, _B, _END]],),
        "rank 0 of three called nothing more": ([[_W, _B], [_W, _B, _END], [_W, _B, _END]],),
        "rank 2 of three sent a different size": ([[_W, _B, _W], [_W, _B, _W], [_W, ("all_reduce", 9), _B]],),
        "rank 1 of three left out the second call": ([[_W, _B, _W], [_W, _W, _B], [_W, _B, _W]],),
        "a different collective of the same size": ([[_W, ("all_reduce", 7), _W], [_W, ("broadcast", 7), _B]],),
        "the very first": ([[_B, _W], [_W, _B]],),
        "nobody called anything": ([[], []],),
        "one rank never began": ([[], [_W]],),
    },
    mistakes=(
        Mistake(
            _where_all_have_one,
            "a collective that one rank has never called is not found.",
            "zip ends with the shortest list. What does a rank wait for that a different one never calls?",
        ),
        Mistake(
            _of_the_first_two, "only ranks 0 and 1 are compared.", "A group may have more ranks: which of them differ?"
        ),
        Mistake(
            _last_unlike,
            "it is the last place where they differ: what comes after the first one is a consequence.",
            _PAPER,
        ),
        Mistake(
            _names_alone,
            "only names are compared: an all-reduce of 9 numbers does not match one of 10.",
            "What must agree besides the name?",
        ),
        Mistake(_sizes_alone, "only sizes are compared, and not the names.", "Can a broadcast match an all-reduce?"),
        Mistake(_from_one, "it counts from 1, and the index of the lists is asked for.", _PAPER),
        Mistake(
            _shortest,
            "it only compares how many collectives the ranks have called.",
            "Two ranks can call equally many, and different ones. Compare them one by one.",
        ),
        Mistake(
            _first_and_last,
            "only the first rank and the last one are compared.",
            "A group may have more ranks: which of them differ?",
        ),
        Mistake(
            lambda calls: _or_else(calls, -1),
            "it gives -1 where all calls are alike, and the question names a different result for that.",
            "-1 is the index of the last call.",
        ),
        Mistake(
            lambda calls: _or_else(calls, max(map(len, calls))),
            "it gives the number of calls where all are alike, and the question names a different result for that.",
            "How would a reader tell whether a call is missing there?",
        ),
        Mistake(
            _last_alike,
            "it is the last place where all ranks have the same.",
            _PAPER,
        ),
        Mistake(
            _the_call,
            "it is the call of rank 0, and its index is asked for.",
            _PAPER,
        ),
        Mistake(
            lambda calls: _first_unlike(calls) is not None,
            "it says whether the ranks differ, and where is asked for.",
            _PAPER,
        ),
        Mistake(
            lambda calls: len(calls[0]),
            "it is the number of calls of rank 0.",
            _PAPER,
        ),
    ),
    think=_PAPER,
)


def _waited_for(counts: Sequence[int]) -> list[int]:
    return [rank for rank, count in enumerate(counts) if count < max(counts)]


def _observe_ranks(answer: Callable[..., Any], counts: Sequence[int]) -> Any:
    """Return what an answer gives, a generator as a list; refuse a set, which has no order."""
    found = answer(counts)
    if isinstance(found, set | frozenset):
        raise Unfit("it returns a set, and a list is asked for.", "In which order are the elements of a set?")
    return list(found) if isinstance(found, Iterator) else found


_TWO = "Rank 0 has called 7 collectives and rank 1 has called 6. Who is inside a collective, and for whom does it wait?"

WAITED_FOR = Exercise(
    name="12.2",
    title="The ranks that the others wait for",
    solution=_waited_for,
    cases=lambda: {
        "the second of two is behind": ([7, 6],),
        "the first of three is behind": ([4, 5, 5],),
        "two of four are behind, by different numbers": ([9, 7, 9, 8],),
        "one is ahead of all others": ([3, 3, 4, 3],),
        "nobody is behind": ([5, 5, 5],),
        "one rank alone": ([2],),
        "a rank never began": ([0, 12],),
        "one far behind, one a little": ([1, 8, 9],),
        "the second is further behind than the first": ([8, 7, 9],),
    },
    mistakes=(
        Mistake(
            lambda counts: [rank for rank, count in enumerate(counts) if count == max(counts)],
            "these are the ranks that wait, and those that they wait for are asked for.",
            _TWO,
        ),
        Mistake(
            lambda counts: [rank for rank, count in enumerate(counts) if count == min(counts)],
            "it is those with the fewest calls: if all have the same number nobody waits, and a rank that is behind by "
            "less is waited for, too.",
            _TWO,
        ),
        Mistake(
            lambda counts: [rank for rank, count in enumerate(counts) if count == min(counts) < max(counts)],
            "only those that are furthest behind: others are behind as well.",
            "Which ranks have not yet called the collective in which the first one waits?",
        ),
        Mistake(
            lambda counts: _waited_for(counts)[:1],
            "only the first of them is given.",
            "Several ranks may be behind.",
        ),
        Mistake(
            lambda counts: sorted(_waited_for(counts), key=counts.__getitem__),
            "the ranks are in the order of their counts, and the numbers of the ranks are to ascend.",
            "In [8, 7, 9], which two ranks are behind? Give the smaller number first.",
        ),
        Mistake(
            lambda counts: counts.index(min(counts)),
            "it is one rank, and a list of ranks is asked for.",
            "Several ranks may be behind, or none.",
        ),
        Mistake(
            lambda counts: [rank for rank, count in enumerate(counts) if count < sum(counts) / len(counts)],
            "each rank is compared with the mean, and not with the one that is furthest.",
            "Which ranks have not yet called the collective in which the first one waits?",
        ),
        Mistake(
            lambda counts: [rank for rank, count in enumerate(counts) if count < counts[0]],
            "each rank is compared with rank 0, which may be the one that is behind.",
            _TWO,
        ),
        Mistake(
            lambda counts: [count < max(counts) for count in counts],
            "it says of each rank whether it is behind, and the numbers of those that are behind are asked for.",
            "enumerate gives the number of each rank with its count.",
        ),
        Mistake(
            lambda counts: [max(counts) - count for count in counts],
            "it is by how much each rank is behind, and the numbers of the ranks are asked for.",
            "enumerate gives the number of each rank with its count.",
        ),
        Mistake(
            lambda counts: [rank for rank, count in enumerate(counts) if count == max(counts) - 1],
            "a rank that is behind by more than one collective is left out.",
            "Which ranks have not yet called the collective in which the first one waits?",
        ),
        Mistake(
            lambda counts: [rank + 1 for rank in _waited_for(counts)],
            "it counts the ranks from 1.",
            "Which number has the first rank in dist.get_rank()?",
        ),
        Mistake(
            lambda counts: _waited_for(counts)[::-1],
            "the ranks descend.",
            "In [8, 7, 9], which two ranks are behind? Give the smaller number first.",
        ),
        Mistake(
            lambda counts: len(_waited_for(counts)),
            "it is how many ranks are behind, and a list of these ranks is asked for.",
            "Which ranks would you look at first?",
        ),
        Mistake(
            lambda counts: [count for count in counts if count < max(counts)],
            "these are their counts, and the numbers of the ranks are asked for.",
            "enumerate gives the number of each rank with its count.",
        ),
    ),
    think=_TWO,
    observe=_observe_ranks,
)
