"""The exercises of chapter 8: waiting and sending, the border of two devices, the slowest rank, buckets on a link."""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any

from d2lite.exercises import Exercise, Mistake


def _wait_and_sending(arrivals_s: Sequence[float], end_s: float) -> list[tuple[float, float]]:
    last = max(arrivals_s)
    return [(last - arrival, end_s - last) for arrival in arrivals_s]


def _pairs(wait: Any, sending: Any) -> Any:
    """Return an answer from wait(arrival, first, last, end) and sending(...)."""

    def answer(arrivals_s: Sequence[float], end_s: float) -> list[tuple[float, float]]:
        first, last = min(arrivals_s), max(arrivals_s)
        return [(wait(a, first, last, end_s), sending(a, first, last, end_s)) for a in arrivals_s]

    return answer


def _observe_pairs(answer: Callable[..., Any], arrivals_s: Sequence[float], end_s: float) -> Any:
    """Return the pairs in a list, also if they come in an array, a tensor or a generator."""
    pairs = answer(arrivals_s, end_s)
    if hasattr(pairs, "tolist"):
        return pairs.tolist()
    return list(pairs) if isinstance(pairs, Iterator) else pairs


_AXIS = (
    "Draw a time axis for three ranks that are ready at 3, 5 and 4.5 s. From when on does the time count as sending?"
)
WAIT = Exercise(
    name="8.1",
    title="Waiting and sending in an all-reduce",
    solution=_wait_and_sending,
    cases=lambda: {
        "three ranks": ([3.0, 5.0, 4.5], 6.0),
        "one rank": ([1.0], 2.0),
        "two ranks that are ready at the same time": ([0.25, 0.25], 0.75),
        "the last rank first in the list": ([9.0, 1.0, 2.0, 8.5], 9.5),
        "sending takes no time": ([0.0, 2.0], 2.0),
    },
    mistakes=(
        Mistake(
            _pairs(lambda a, first, last, end: last - a, lambda a, first, last, end: end - a),
            "the sending of a rank begins when it is ready itself, so the time of waiting counts twice.",
            _AXIS,
        ),
        Mistake(
            _pairs(lambda a, first, last, end: end - a, lambda a, first, last, end: end - last),
            "the waiting ends with the all-reduce, so the time of sending counts twice.",
            _AXIS,
        ),
        Mistake(
            _pairs(lambda a, first, last, end: a - first, lambda a, first, last, end: end - last),
            "it gives how much later a rank is than the first one: the rank that is late seems to wait longest.",
            _AXIS,
        ),
        Mistake(
            lambda arrivals, end: [pair[::-1] for pair in _wait_and_sending(arrivals, end)],
            "the two numbers of a pair are in the wrong order.",
            "First the seconds a rank waited, then those in which it took part.",
        ),
        Mistake(
            lambda arrivals, end: [number for pair in _wait_and_sending(arrivals, end) for number in pair],
            "it is a flat list, and one pair for each rank is asked for.",
            "A pair is written with parentheses: (a, b).",
        ),
        Mistake(
            lambda arrivals, end: list(zip(*_wait_and_sending(arrivals, end), strict=True)),
            "it is one list of waits and one of sendings, and one pair for each rank is asked for.",
            "What belongs to one rank belongs together.",
        ),
        Mistake(
            lambda arrivals, end: _wait_and_sending(sorted(arrivals), end),
            "the pairs are not in the order of the ranks.",
            "The first pair belongs to rank 0, whenever rank 0 was ready.",
        ),
        Mistake(
            lambda arrivals, end: [max(arrivals) - arrival for arrival in arrivals],
            "it is the waiting alone, and a pair for each rank is asked for.",
            "A pair is written with parentheses: (a, b).",
        ),
        Mistake(
            lambda arrivals, end: [(wait, sent / len(arrivals)) for wait, sent in _wait_and_sending(arrivals, end)],
            "the time of sending is divided among the ranks, and all of them send at the same time.",
            _AXIS,
        ),
        Mistake(
            _pairs(lambda a, first, last, end: last - a, lambda a, first, last, end: end - first),
            "the sending begins when the first rank is ready, and by the convention it begins with the last one.",
            _AXIS,
        ),
        Mistake(
            _pairs(lambda a, first, last, end: last, lambda a, first, last, end: end),
            "these are times of day, and durations are asked for.",
            "How long does it take from one point of the axis to another one?",
        ),
        Mistake(
            _pairs(lambda a, first, last, end: a - last, lambda a, first, last, end: end - last),
            "the waiting is negative.",
            "Which of the two comes later, and what is subtracted from what?",
        ),
    ),
    think=_AXIS,
    observe=_observe_pairs,
)


def _smallest_minibatch(overhead_s: float, s_per_example: float, all_reduce_s: float) -> int:
    return max(2, math.ceil(2 * all_reduce_s / s_per_example))


_TWO_TIMES = "Write down the time of a step on one device and on two, for b examples. What do they have in common?"
MINIBATCH = Exercise(
    name="8.2",
    title="From which minibatch on are two devices not slower than one?",
    solution=_smallest_minibatch,
    cases=lambda: {  # powers of two: exact in binary numbers
        f"overhead {o} s, {c} s per example, all-reduce {a} s": (o, c, a)
        for o, c, a in (
            (0.5, 0.25, 0.8),
            (0.25, 0.125, 0.75),
            (0.0, 1.0, 0.5),
            (2.0, 1.0, 0.125),
            (0.5, 2**-40, 1.0),
            (0.0, 0.5, 7.1),
            (1.0, 0.5, 1.7),
        )
    },  # fmt: skip
    mistakes=(
        Mistake(
            lambda o, c, a: max(2, math.ceil(a / c)),
            "it compares the all-reduce with all of the computing, and two devices save only a part of it.",
            _TWO_TIMES,
        ),
        Mistake(
            lambda o, c, a: max(2, math.ceil(2 * (a + o) / c)),
            "it counts the overhead, and two devices have the same overhead as one.",
            _TWO_TIMES,
        ),
        Mistake(
            lambda o, c, a: max(2, math.floor(2 * a / c) + 1),
            "it asks for faster, and not slower is enough: where both take as long, it is one too many.",
            "What does the smallest b with >= look like, and what the one with >?",
        ),
        Mistake(
            lambda o, c, a: max(2, math.floor(2 * a / c)),
            "it is rounded down: with so few examples two devices are still slower.",
            "Put your result into both times and compare.",
        ),
        Mistake(
            lambda o, c, a: max(2, round(2 * a / c)),
            "it is rounded to the nearest whole number: with so few examples two devices may still be slower.",
            "Put your result into both times and compare.",
        ),
        Mistake(
            lambda o, c, a: 2 * math.ceil(a / c),
            "it is always even, and two devices take exact halves of an odd minibatch, too.",
            "Half of 5 examples counts as 2.5. Is one example fewer than your result enough?",
        ),
        Mistake(
            lambda o, c, a: math.ceil(2 * a / c),
            "one example cannot be divided between two devices.",
            "What is the smallest minibatch of which each device gets something?",
        ),
        Mistake(
            lambda o, c, a: max(2, 2 * a / c),
            "it is not a whole number.",
            "A minibatch has whole examples. In which direction must it be rounded?",
        ),
        Mistake(
            lambda o, c, a: max(2, math.ceil(2 * (a - o) / c)),
            "it lets the overhead pay for a part of the all-reduce, and two devices have the overhead, too.",
            _TWO_TIMES,
        ),
        Mistake(
            lambda o, c, a: max(2, math.ceil(4 * a / c)),
            "it is about twice too large: the all-reduce or what is saved counts twice.",
            _TWO_TIMES,
        ),
        Mistake(
            lambda o, c, a: max(2, math.ceil((o + a) / c)),
            "it counts the overhead, and compares with all of the computing.",
            _TWO_TIMES,
        ),
    ),
    think=_TWO_TIMES,
)


def _slowest_of(k: int, low: float, high: float) -> float:
    return low + (high - low) * k / (k + 1)


_POINTS = "Throw two points on a line between 0 and 1, a few times. Where is the larger one on average?"
SLOWEST = Exercise(
    name="8.3",
    title="The slowest of k ranks",
    solution=_slowest_of,
    cases=lambda: {
        f"{k} ranks between {low} and {high} s": (k, low, high)
        for k, low, high in ((1, 2.0, 4.0), (2, 0.0, 1.0), (8, 0.05, 0.06), (100, 1.0, 3.0), (3, 0.5, 0.5))
    },
    mistakes=(
        Mistake(
            lambda k, low, high: high,
            "it is the largest time that is possible. With few ranks it is hardly ever reached.",
            _POINTS,
        ),
        Mistake(
            lambda k, low, high: (low + high) / 2,
            "it is the mean of one rank, whatever k is.",
            _POINTS,
        ),
        Mistake(
            lambda k, low, high: high * k / (k + 1),
            "it leaves the lower end out: no rank is faster than low.",
            "What if low and high are equal?",
        ),
        Mistake(
            lambda k, low, high: (high - low) * k / (k + 1),
            "it is the time above low, and the complete time is asked for.",
            "What if low and high are equal?",
        ),
        Mistake(
            lambda k, low, high: low + (high - low) * (k - 1) / k,
            "for one rank it gives the lowest time, and one rank takes the middle on average.",
            _POINTS,
        ),
        Mistake(
            lambda k, low, high: low + (high - low) / (k + 1),
            "it is the fastest of the k ranks, and the slowest is asked for.",
            _POINTS,
        ),
        Mistake(
            lambda k, low, high: low + (high - low) * (1 - 0.5**k),
            "it is right for one rank only: each further rank halves what is left.",
            _POINTS,
        ),
        Mistake(
            lambda k, low, high: low + (high - low) * (k - 1) / (k + 1),
            "it is how far the slowest is from the fastest, added to low.",
            _POINTS,
        ),
        Mistake(
            lambda k, low, high: k * (low + high) / 2,
            "it is the sum of the times of all ranks, and they compute at the same time.",
            "What if low and high are equal?",
        ),
    ),
    think=_POINTS,
)


def _last_sent(ready_s: Sequence[float], send_s: Sequence[float]) -> float:
    free = 0.0
    for ready, seconds in zip(ready_s, send_s, strict=True):
        free = max(free, ready) + seconds
    return free


_LINK = "Draw the link as a time axis and put one bucket after the other on it."
BUCKETS = Exercise(
    name="8.4",
    title="Buckets on a link that carries one at a time",
    solution=_last_sent,
    cases=lambda: {
        "the second is ready while the first is sent": ([1.0, 2.0], [3.0, 1.0]),
        "the link is idle before the second": ([1.0, 9.0], [3.0, 1.0]),
        "one bucket": ([2.0], [0.5]),
        "the link is idle, then busy": ([1.0, 8.0, 8.5, 9.0], [2.0, 3.0, 0.5, 2.0]),
        "all are ready at once": ([4.0, 4.0, 4.0], [1.0, 2.0, 0.5]),
        "a later bucket is ready first, and has to wait": ([5.0, 1.0], [1.0, 1.0]),
        "the link is idle before the third": ([1.0, 2.0, 20.0, 21.0], [3.0, 1.0, 2.0, 4.0]),
        "the link is idle three times": ([0.0, 5.0, 10.0, 30.0, 31.0], [1.0, 1.0, 1.0, 4.0, 2.0]),
    },
    mistakes=(
        Mistake(
            lambda ready, send: ready[-1] + send[-1],
            "the last bucket is sent as soon as it is ready, even while the link carries a different one.",
            _LINK,
        ),
        Mistake(
            lambda ready, send: max(r + s for r, s in zip(ready, send, strict=True)),
            "every bucket is sent as soon as it is ready, several at a time.",
            _LINK,
        ),
        Mistake(
            lambda ready, send: ready[0] + sum(send),
            "the link never waits: a bucket is sent before its gradients are ready.",
            _LINK,
        ),
        Mistake(
            lambda ready, send: max(ready) + sum(send),
            "nothing is sent before all gradients are ready: that is a step without overlap.",
            _LINK,
        ),
        Mistake(
            lambda ready, send: sum(ready) + sum(send),
            "the times at which the buckets are ready are added up; all of them count from the same start.",
            _LINK,
        ),
        Mistake(
            lambda ready, send: sum(send),
            "it is the time of sending alone, as if all gradients were there at the start.",
            _LINK,
        ),
        Mistake(
            lambda ready, send: list(
                accumulate(zip(ready, send, strict=True), lambda f, b: max(f, b[0]) + b[1], initial=0.0)
            ),
            "it gives a list, and one time is asked for: when has the last bucket been sent?",
            "Which element of the list is the answer?",
        ),
        Mistake(
            lambda ready, send: max(ready[i] + sum(send[i:]) for i in range(min(2, len(ready)))),
            "the link waits for the first and the second bucket only; it may be idle again later.",
            _LINK,
        ),
        Mistake(
            lambda ready, send: _last_sent(*zip(*sorted(zip(ready, send, strict=True)), strict=True)),
            "the buckets are sent in the order in which they are ready, and the link takes them in the given order.",
            "What does the link do while bucket 0 is not ready, but bucket 1 is?",
        ),
    ),
    think=_LINK,
)
