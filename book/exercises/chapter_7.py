"""The exercises of chapter 7: bandwidth, checkpoints, a ring over hosts, three ways to a shorter step."""

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from d2lite.exercises import Exercise, Mistake, Unfit


def _break_even_bandwidth(compute_s: float, n_bytes: int, num_hosts: int) -> float:
    return 2 * n_bytes / compute_s


_BOTH = "Write down what a step takes on one host and on k hosts. What must be equal?"
BANDWIDTH = Exercise(
    name="7.1",
    title="From which bandwidth on are k hosts as fast as one?",
    solution=_break_even_bandwidth,
    cases=lambda: {
        f"{c} s of computing, {n:,} bytes, {k} hosts": (c, n, k)
        for c, n, k in (
            *((0.2, 500_000, 4), (0.1, 516_272, 2), (1.5, 10**8, 8), (0.02, 2_678_824, 3)),
            *((0.8, 3, 5), (3.2, 1, 16)),  # less than 10 bytes per second: rounding shows
        )
    },
    mistakes=(
        Mistake(
            lambda c, n, k: 2 * (k - 1) / k * n / c,
            "it lets the all-reduce take as long as all of the computing, and only the part that is saved is free.",
            "k hosts still compute a k-th of the minibatch each.",
        ),
        Mistake(
            lambda c, n, k: 2 * (k - 1) * n / c,
            "it lets the all-reduce take as long as the computing that remains on each host.",
            "How much shorter does the computing become on k hosts?",
        ),
        Mistake(
            lambda c, n, k: 16 * n / c,
            "it is in bits per second, and bytes per second are asked for.",
            "In which unit are the gradients given?",
        ),
        Mistake(
            lambda c, n, k: n / c,
            "it is half of what is expected.",
            "How many bytes does a host send in a ring: all gradients once, or more?",
        ),
        Mistake(
            lambda c, n, k: n / (c * (k - 1) / k),
            "it sends the gradients once, and a ring sends each part of them in two rounds.",
            "Look up what all-reduce in a ring makes each of k hosts send.",
        ),
        Mistake(
            lambda c, n, k: 2 * n / c / 1e6,
            "it is in megabytes per second, and bytes per second are asked for.",
            "Which unit is in the comment?",
        ),
        Mistake(
            lambda c, n, k: int(2 * n / c),
            "it is rounded down: with so little bandwidth k hosts are still slower than one.",
            "Must a bandwidth be a whole number of bytes per second?",
        ),
        Mistake(
            lambda c, n, k: round(2 * n / c),
            "it is rounded to a whole number.",
            "Must a bandwidth be a whole number of bytes per second?",
        ),
        Mistake(
            lambda c, n, k: 16 * n / c / 1e6,
            "it is in megabits per second, and bytes per second are asked for.",
            "Which unit is in the comment?",
        ),
        Mistake(
            lambda c, n, k: 2 * n / c / 8,
            "it is an eighth of what is expected: the gradients are given in bytes already.",
            "In which unit are the gradients given, and which one is in the comment?",
        ),
        Mistake(
            lambda c, n, k: 2 * n / (c * (k - 1) / k),
            "it lets each host send all gradients twice, and in a ring a host sends a little less.",
            "Look up what all-reduce in a ring makes each of k hosts send.",
        ),
        Mistake(
            lambda c, n, k: 2 * n * k / c,
            "it grows with the number of hosts.",
            "With more hosts, what happens to the computing that is saved, and to the bytes that a host sends?",
        ),
        Mistake(
            lambda c, n, k: c / (2 * n),
            "it is in seconds per byte.",
            "Should it grow or shrink if there are more bytes to send?",
        ),
    ),
    think=_BOTH,
)


def _seconds_between_checkpoints(save_s: float, mean_s_between_faults: float) -> float:
    return float((2 * save_s * mean_s_between_faults) ** 0.5)


def _observe_interval(answer: Callable[..., Any], save_s: float, mean_s: float) -> Any:
    """Return the interval, as a number if it is a tensor of one."""
    between_s = answer(save_s, mean_s)
    return between_s.item() if isinstance(between_s, torch.Tensor) and between_s.numel() == 1 else between_s


_WASTE = "Write down the share of the time that is wasted with an interval T: in saving, and after a fault."
CHECKPOINTS = Exercise(
    name="7.2",
    title="How often to save a checkpoint",
    solution=_seconds_between_checkpoints,
    cases=lambda: {
        f"saving takes {s} s, a fault every {m:,} s": (s, m)
        for s, m in ((2.0, 3600.0), (30.0, 86_400.0), (0.01, 2.0), (100.0, 100_000.0))
    },
    mistakes=(
        Mistake(
            lambda s, m: (s * m) ** 0.5,
            "a factor is missing under the root: a fault is taken to cost a complete interval.",
            "A fault comes anywhere between two checkpoints. How much of the interval is lost on average?",
        ),
        Mistake(
            lambda s, m: (s * m / 2) ** 0.5,
            "the factor under the root is upside down.",
            "Where is the derivative of save_s / T + T / (2 * mean) zero? Set the two parts of it equal.",
        ),
        Mistake(
            lambda s, m: 2 * s * m,
            "a root is missing: the unit of the result is seconds squared.",
            "Which power of T is in the derivative?",
        ),
        Mistake(lambda s, m: m / 2, "it does not depend on how long saving takes.", _WASTE),
        Mistake(lambda s, m: m, "it is the time between two faults: most of the work would be lost.", _WASTE),
        Mistake(
            lambda s, m: (2 * m / s) ** 0.5,
            "the shorter saving takes, the less often it saves; but then saving is cheap.",
            "What should become of T if saving takes four times as long?",
        ),
        Mistake(
            lambda s, m: (2 * s * m) ** 0.5 - s,
            "it is Daly's interval, which also counts the saving between two faults; the text leaves that out.",
            "In the text a fault costs half an interval and nothing else. Which interval wastes least then?",
        ),
        Mistake(
            lambda s, m: (2 * s * m) ** 0.5 + s,
            "the saving is added to the interval.",
            "Which T do you get where the derivative of the wasted share is zero?",
        ),
        Mistake(
            lambda s, m: 2 * (s * m) ** 0.5,
            "a factor stands in front of the root that belongs under it, or is too large.",
            _WASTE,
        ),
        Mistake(
            lambda s, m: (2 * s / m) ** 0.5,
            "it has no unit: it is the share of the time that is wasted.",
            "Which interval has this share?",
        ),
        Mistake(
            lambda s, m: int((2 * s * m) ** 0.5),
            "it is rounded down to whole seconds, and where faults come every two seconds that is zero.",
            "Must an interval be a whole number of seconds?",
        ),
        Mistake(
            lambda s, m: round((2 * s * m) ** 0.5),
            "it is rounded to whole seconds, which is too coarse where faults come every two seconds.",
            "Must an interval be a whole number of seconds?",
        ),
    ),
    think=_WASTE,
    observe=_observe_interval,
    near=lambda expected, got: abs(got - expected) < 0.005 * expected,  # it may be found by trying
)


def _ring_order(host_of: Sequence[int]) -> list[int]:
    return sorted(range(len(host_of)), key=host_of.__getitem__)


def _observe_ring(answer: Callable[..., Any], *host_of: int) -> int:
    """Return how often the ring goes from one host to another."""
    given, num_gpus = list(answer(list(host_of))), len(host_of)
    try:
        order = [operator.index(gpu) for gpu in given]  # whole numbers of NumPy and PyTorch as well
    except TypeError:
        raise Unfit(
            "it does not return a list of numbers of GPUs.", "A ring is one list, each GPU followed by the next."
        ) from None
    if len(order) == num_gpus + 1 and order[:1] == order[-1:]:
        raise Unfit(
            "the first GPU is there twice: a ring closes by itself.", "The last of the list sends to the first."
        )
    if sorted(order) != list(range(num_gpus)):
        raise Unfit(
            f"expected each of the GPUs 0 to {num_gpus - 1} once, got {order[:20]}.",
            "The numbers in host_of are hosts; the place in the list is the number of the GPU.",
        )
    return sum(host_of[a] != host_of[b] for a, b in zip(order, order[1:] + order[:1], strict=True))


def _in_turn(host_of: Sequence[int]) -> list[int]:
    """Return one GPU of each host, then the next of each."""
    seen: dict[int, int] = {}
    place = []
    for host in host_of:
        seen[host] = seen.get(host, 0) + 1
        place.append((seen[host], host))
    return sorted(range(len(host_of)), key=place.__getitem__)


_DRAW = "Draw the hosts as boxes with their GPUs inside. How often does the line leave a box?"
RING = Exercise(
    name="7.3",
    title="A ring that uses the slow cable as rarely as possible",
    solution=_ring_order,
    cases=lambda: {
        "two hosts with four GPUs each": (0, 0, 0, 0, 1, 1, 1, 1),
        "two hosts, their GPUs numbered in turn": (0, 1, 0, 1, 0, 1, 0, 1),
        "three hosts, without an order": (2, 0, 1, 2, 1, 0),
        "hosts with five GPUs and with one": (1, 0, 1, 1, 1, 1),
        "one host": (0, 0, 0),
        "a GPU on each of two hosts": (1, 0),
        "one GPU": (0,),
    },
    mistakes=(
        Mistake(
            lambda host_of: list(range(len(host_of))),
            "the ring goes through the GPUs by their number, wherever they are.",
            _DRAW,
        ),
        Mistake(_in_turn, "the ring goes from host to host with every step.", _DRAW),
        Mistake(
            lambda host_of: sorted(host_of),
            "it returns the numbers of the hosts, and the numbers of the GPUs are asked for.",
            "The place in host_of is the number of the GPU.",
        ),
        Mistake(
            lambda host_of: sorted(range(len(host_of)), key=lambda gpu: host_of[gpu] != host_of[0]),
            "only the GPUs of one host stand together.",
            "Draw three hosts. How often does the line leave the second one?",
        ),
        Mistake(
            lambda host_of: sorted(range(len(host_of)), key=lambda gpu: gpu % len(set(host_of))),
            "it takes the GPUs for numbered in turn, host by host.",
            "What does host_of say about GPU 1 in the first case?",
        ),
    ),
    think=_DRAW,
    observe=_observe_ring,
)


def _three_ways(compute_s: float, n_bytes: int, bandwidth: float) -> list[float]:
    send_s = n_bytes / bandwidth
    return [compute_s + send_s / 2, compute_s + send_s / 2, compute_s + send_s / 10]


def _observe_ways(answer: Callable[..., Any], compute_s: float, n_bytes: int, bandwidth: float) -> Any:
    """Return the three numbers as a list, also if they come in an array, a tensor or a generator."""
    ways = answer(compute_s, n_bytes, bandwidth)
    if hasattr(ways, "tolist"):
        return ways.tolist()
    return list(ways) if isinstance(ways, Iterator) else ways


_SAME_WORK = "Compare the same work: the examples of one minibatch as it is now. Write down all three sums."
WAYS = Exercise(
    name="7.4",
    title="Half the bytes, half the steps, or ten times the bandwidth",
    solution=_three_ways,
    cases=lambda: {
        f"{c} s of computing, {n:,} bytes, {b:,.0f} bytes/s": (c, n, b)
        for c, n, b in (
            (0.05, 516_272, 12.5e6),
            (0.2, 2_678_824, 3.125e6),
            (0.01, 10**8, 1.25e9),
            (0.5, 4_000_000, 1e7),
        )
    },
    mistakes=(
        Mistake(
            lambda c, n, b: [c + n / b / 2, 2 * c + n / b, c + n / b / 10],
            "the second number is for twice as many examples as the others.",
            _SAME_WORK,
        ),
        Mistake(
            lambda c, n, b: [c + n / b / 2, c + n / b, c + n / b / 10],
            "the second number leaves out that twice the minibatch is twice the computing.",
            _SAME_WORK,
        ),
        Mistake(
            lambda c, n, b: [c + n / b / 2, (c + n / b) / 2, c + n / b / 10],
            "the second number halves the computing of the same examples as well.",
            _SAME_WORK,
        ),
        Mistake(
            lambda c, n, b: _three_ways(c, 8 * n, b),
            "bytes are taken for bits: the sending takes eight times as long as it should.",
            "In which units are the gradients and the bandwidth given?",
        ),
        Mistake(
            lambda c, n, b: _three_ways(c, 2 * n, b),
            "the sending takes twice as long as it should: the ring of two hosts is counted wrong.",
            "How much is 2(k-1)/k for two hosts?",
        ),
        Mistake(
            lambda c, n, b: [s - c for s in _three_ways(c, n, b)],
            "it is the sending alone, and the step computes as well.",
            _SAME_WORK,
        ),
        Mistake(
            lambda c, n, b: [max(c, s - c) for s in _three_ways(c, n, b)],
            "the sending is hidden behind the computing, and the formula of the chapter puts one after the other.",
            _SAME_WORK,
        ),
        Mistake(
            lambda c, n, b: [(c + n / b) / 2, c + n / b / 2, c + n / b / 10],
            "in the first number half the bytes also halve the computing.",
            "Which part of a step do 16-bit gradients change?",
        ),
        Mistake(
            lambda c, n, b: [c + n / b / 2, c + n / b / 2, (c + n / b) / 10],
            "in the third number ten times the bandwidth also makes the computing ten times as fast.",
            "Which part of a step does the bandwidth change?",
        ),
        Mistake(
            lambda c, n, b: [c + n / b / 2, c + n / b / 2, c + 10 * n / b],
            "in the third number the sending takes ten times as long.",
            "Does more bandwidth make the sending longer or shorter?",
        ),
        Mistake(
            lambda c, n, b: [c + n / b / 2, c + n / b / 2, c + n / b / 20],
            "in the third number the bytes are halved, too: the three are bought one by one.",
            _SAME_WORK,
        ),
        Mistake(
            lambda c, n, b: [c + n / b / 2, c / 2 + n / b, c + n / b / 10],
            "in the second number the computing is halved and the sending is not.",
            "Half the steps: what is there half of, for the same examples?",
        ),
    ),
    think=_SAME_WORK,
    observe=_observe_ways,
)
