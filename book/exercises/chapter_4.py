"""The exercises of chapter 4: the butterfly, where tree and ring are equally fast, sums on many devices."""

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from d2lite.collectives import Move, Schedule
from d2lite.costs import Link, find_link
from d2lite.exercises import Exercise, Mistake, PretendDevices, PretendTensor, Unfit
from d2lite.labs.chapter_04 import assign_owners

_STEPS = "Expected a list of steps, each a list of Move(src, dst, chunk)."


def _steps(k: int, partner: Callable[[int, int], int], num_steps: int | None = None) -> Schedule:
    steps = k.bit_length() - 1 if num_steps is None else num_steps
    return [[Move(i, partner(i, s), 0) for i in range(k)] for s in range(steps)]


def _butterfly(k: int) -> Schedule:
    return _steps(k, lambda i, s: i ^ 2**s)


@dataclass(frozen=True, repr=False)
class _Steps:
    """Steps between k devices, shown by what they do: a message must not hold the right steps."""

    k: int
    moves: list[list[tuple[int, int, int]]]

    def __repr__(self) -> str:
        held = [{device} for device in range(self.k)]
        for step in self.moves:
            before = [set(have) for have in held]
            for src, dst, _ in step:
                held[dst] |= before[src]
        sizes = ", ".join(str(len(step)) for step in self.moves) or "none"
        had = ", ".join(str(len(have)) for have in held)
        return f"moves in each step: {sizes}; devices whose contributions device 0, 1, ... has at the end: {had}"


def _observe_steps(answer: Callable[..., Any], k: int) -> Any:
    """Return the steps of an answer; the order of the moves in a step does not matter."""
    steps = answer(k)
    if not isinstance(steps, Iterable) or isinstance(steps, (str, dict, torch.Tensor)):
        return steps
    steps = [_listed(step) for step in steps]
    if steps and all(_is_move(step) for step in steps):
        raise Unfit(
            f"it returns one flat list of {len(steps)} moves. {_STEPS}",
            "Moves that are made at the same time are one step: a list of their own.",
        )
    for step in steps:
        if not isinstance(step, list) or not all(_is_move(move) for move in step):
            raise Unfit(f"a step is not a list of moves. {_STEPS}", "Move(0, 1, 0) is a move, [Move(0, 1, 0)] a step.")
        if wrong := [tuple(move) for move in step if not (0 <= move[0] < k and 0 <= move[1] < k)]:
            raise Unfit(
                f"the move {wrong[0]} names a device that is not there: there are {k}, from 0 on.",
                "How many steps are there for k devices, and which is the last?",
            )
    moves = [[(operator.index(src), operator.index(dst), operator.index(c)) for src, dst, c in step] for step in steps]
    return _Steps(k, [sorted(step) for step in moves])


def _listed(value: Any) -> Any:
    """Return a list of what is in a list, a set, a generator, an array or a tensor; else the value as it is."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    return list(value) if isinstance(value, Iterable) and not isinstance(value, (str, dict)) else value


def _is_number(value: Any) -> bool:
    """Return whether `value` is a whole number, of Python, NumPy or torch."""
    return hasattr(value, "__index__") and not isinstance(value, bool)


def _is_move(move: Any) -> bool:
    move = _listed(move)
    return isinstance(move, list) and len(move) == 3 and all(map(_is_number, move))


_PARTNERS = "Write down for four devices who has whose contributions after each step."

BUTTERFLY = Exercise(
    name="4.1",
    title="The butterfly all-reduce",
    solution=_butterfly,
    cases=lambda: {f"{k} device{'s' if k > 1 else ''}": (k,) for k in (4, 2, 1, 8, 16)},
    observe=_observe_steps,
    mistakes=(
        Mistake(
            lambda k: _steps(k, lambda i, s: (i + 2**s) % k),
            "a device sends to one device and receives from another: they are no partners.",
            "If j is the partner of i, who is the partner of j?",
        ),
        Mistake(
            lambda k: _butterfly(k)[::-1],
            "the steps are in reverse order: the first partner is the neighbour.",
            "How far away is the partner in the first step, the second, the third?",
        ),
        Mistake(
            lambda k: _steps(k, lambda i, s: i ^ 1),
            "the partner is the neighbour in every step: contributions stay in pairs.",
            "How far away is the partner in the first step, the second, the third?",
        ),
        Mistake(
            lambda k: _steps(k, lambda i, s: i ^ (s + 1)),
            "the partners are one, two, three places away. The distance must double in each step.",
            _PARTNERS,
        ),
        Mistake(
            lambda k: _steps(k, lambda i, s: k - 1 - i),
            "the partner is the device at the other end in every step: contributions stay in pairs.",
            "How far away is the partner in the first step, the second, the third?",
        ),
        Mistake(
            lambda k: [[move for move in step if move.src < move.dst] for step in _butterfly(k)],
            "in each pair only one device sends: the other one receives nothing to add.",
            "Partners exchange: how many moves are there in a step of k devices?",
        ),
        Mistake(
            lambda k: [[move for move in step if move.src > move.dst] for step in _butterfly(k)],
            "in each pair only one device sends: the other one receives nothing to add.",
            "Partners exchange: how many moves are there in a step of k devices?",
        ),
        Mistake(
            lambda k: [[Move(m.src, m.dst, s) for m in step] for s, step in enumerate(_butterfly(k))],
            "the moves name several chunks, and there is one, number 0.",
            "What is the third number of a Move?",
        ),
        Mistake(
            lambda k: _butterfly(k)[:-1],
            "the last step is missing: nobody has the contributions of all.",
            "After each step twice as many contributions are held. How many steps does that take?",
        ),
        Mistake(
            lambda k: _steps(k, lambda i, s: i ^ 2 ** (s % max(1, k.bit_length() - 1)), k - 1),
            "there are more steps than needed: contributions are added a second time.",
            "After each step twice as many contributions are held. How many steps does that take?",
        ),
        Mistake(
            lambda k: [[Move(i, (i + 1) % k, 0) for i in range(k)] for _ in range(k - 1)],
            "this is a ring: everyone sends to the next device, and there are no partners.",
            _PARTNERS,
        ),
    ),
    think=_PARTNERS,
)


def _border(k: int, link: Link) -> float:
    steps = math.log2(k)
    return link.latency_s * link.bandwidth_bytes_per_s * (k - 1 - steps) / (steps - (k - 1) / k)


def _equal_times(k: int, link: Link, ring: tuple[float, float], tree: tuple[float, float]) -> float:
    """Return n at which ring[0] latencies and ring[1] n bytes take as long as those of the tree."""
    return link.latency_s * link.bandwidth_bytes_per_s * (ring[0] - tree[0]) / (tree[1] - ring[1])


_EQUATE = "Set both times equal, bring n to one side, and solve."

BORDER = Exercise(
    name="4.2",
    title="Up to how many bytes is the tree predicted to be faster than the ring?",
    solution=_border,
    cases=lambda: {
        f"{k} devices, {name}": (k, link)
        for name, link, ks in (
            ("Ethernet 25 Gb/s", find_link("Ethernet 25 Gb/s, RDMA"), (4, 8, 64)),
            ("1 ms and 100 MB/s", Link(1e-3, 1e8), (4, 16, 1024)),
            ("NVLink 3", find_link("NVLink 3 (A100, 12 links)"), (8, 32, 256)),
        )
        for k in ks
    },
    near=lambda expected, got: abs(got - expected) <= 1,  # it may be rounded to whole bytes
    mistakes=(
        Mistake(
            lambda k, link: _equal_times(k, link, (2 * (k - 1), 2 * (k - 1) / k), (math.log2(k), math.log2(k))),
            "a factor of two is missing in the time of the tree: it goes up, and down again.",
            "Both all-reduces have two halves. How many steps does each have in all?",
        ),
        Mistake(
            lambda k, link: _equal_times(k, link, (k - 1, (k - 1) / k), (2 * math.log2(k), 2 * math.log2(k))),
            "a factor of two is missing in the time of the ring: it goes round twice.",
            "Both all-reduces have two halves. How many steps does each have in all?",
        ),
        Mistake(
            lambda k, link: _border(k, link) / link.bandwidth_bytes_per_s,
            "it is a number of seconds, and bytes are asked for.",
            "latency_s is in seconds. What turns seconds into bytes?",
        ),
        Mistake(
            lambda k, link: link.latency_s / link.bandwidth_bytes_per_s * _border(k, Link(1.0, 1.0)),
            "the latency is divided by the bandwidth: look at the units.",
            "latency_s is in seconds, the bandwidth in bytes per second. What turns seconds into bytes?",
        ),
        Mistake(
            lambda k, link: _equal_times(k, link, (k, 1.0), (math.log2(k), math.log2(k))),
            "the ring is given one step too many in each half.",
            "How many steps does a chunk need until it has been at each of k devices?",
        ),
        Mistake(
            lambda k, link: _equal_times(k, link, (k - 1, (k - 1) / k), (math.log(k), math.log(k))),
            "the number of steps of the tree has another logarithm.",
            "How often can k devices be halved?",
        ),
        Mistake(
            lambda k, link: _equal_times(k, link, (k - 1, k - 1), (math.log2(k), math.log2(k))),
            "the ring is assumed to send all n bytes in each step.",
            "How large is a chunk?",
        ),
        Mistake(
            lambda k, link: -_border(k, link),
            "the number of bytes is below 0: a sign is lost.",
            _EQUATE,
        ),
    ),
    think=_EQUATE,
)


_BY_HAND = (
    "Divide gradients of 5, 5, 4, 4, 3, 3 and 3 numbers among three devices by hand, so that none has more than "
    "needed. In which order did you place them, and what did you look at before each?"
)


def _observe_owners(answer: Callable[..., Any], k: int, sizes: Sequence[int]) -> str:
    """Call an answer with gradients on k devices; raise Unfit for what is wrong, and return "right" for nothing."""
    generator = torch.Generator().manual_seed(k)
    grads = [[torch.rand(n, generator=generator, dtype=torch.float64) for n in sizes] for _ in range(k)]
    expected = [torch.stack(list(column)).sum(0) for column in zip(*grads, strict=True)]
    before = [[grad.clone() for grad in row] for row in grads]
    places = [[grad.data_ptr() for grad in row] for row in grads]
    adders = dict.fromkeys(range(len(sizes)), 0) if k == 1 else {}  # one device has nothing to add

    def watch(name: str, i: int, result: torch.Tensor, inputs: list[PretendTensor]) -> None:
        if name.strip("_") in ("copy", "setitem", "to", "detach", "clone"):
            return
        for j, total in enumerate(expected):
            if j not in adders and result.numel() == total.numel() and torch.allclose(result.reshape(-1), total):
                adders[j] = i

    pretend = PretendDevices(watch)
    owners = _listed(answer([[pretend.put(grad, i) for grad in row] for i, row in enumerate(grads)]))
    for j in range(len(sizes)):
        for i, grad in enumerate(row[j] for row in grads):
            if grad.data_ptr() != places[i][j] or not torch.allclose(grad, expected[j]):
                kept = "still its own numbers" if torch.equal(grad, before[i][j]) else "other numbers"
                raise Unfit(
                    f"gradient {j} on device {i} does not hold the sum of all devices, but {kept}.",
                    "All devices need each sum, written into the tensors that they have.",
                )
    _check_owners(owners, adders, k, sizes)
    return "right"


def _check_owners(owners: Any, adders: dict[int, int], k: int, sizes: Sequence[int]) -> None:
    """Raise Unfit unless `owners` are the devices that have added, and these have about the same work."""
    if not isinstance(owners, list) or len(owners) != len(sizes) or not all(map(_is_number, owners)):
        raise Unfit(
            "it does not return a list with one device number per gradient.",
            "Return for each gradient, in their order, the number of the device that adds it.",
        )
    names = [operator.index(owner) for owner in owners]
    for j, owner in enumerate(names):
        if j not in adders:
            raise Unfit(f"no device adds gradient {j} as a tensor.", "Add on the device that owns the gradient.")
        if adders[j] != owner:
            raise Unfit(
                f"gradient {j} is added on device {adders[j]}, and the list names device {owner}.",
                "Which device holds the result of an addition? all_reduce adds on the device of the first tensor.",
            )
    loads, ours = [0] * k, [0] * k
    for n, owner, other in zip(sizes, names, assign_owners(sizes, k), strict=True):
        loads[owner] += n
        ours[other] += n
    if max(loads) > max(ours):
        raise Unfit(
            f"the devices add {loads} numbers: device {loads.index(max(loads))} has more work than needed.",
            _BY_HAND,
        )


def _sum_on(device_tensors: list[list[torch.Tensor]], owners: Sequence[int]) -> list[int]:
    for j, owner in enumerate(owners):
        total = device_tensors[owner][j]
        for i in range(len(device_tensors)):
            if i != owner:
                total += device_tensors[i][j].to(total.device)
        for i in range(len(device_tensors)):
            if i != owner:
                device_tensors[i][j].copy_(total)
    return list(owners)


def _sum_on_owners(device_tensors: list[list[torch.Tensor]]) -> list[int]:
    return _sum_on(device_tensors, assign_owners([t.numel() for t in device_tensors[0]], len(device_tensors)))


OWNERS = Exercise(
    name="4.3",
    title="An all-reduce in which different gradients are added on different devices",
    solution=lambda device_tensors: _sum_on_owners(device_tensors),
    cases=lambda: {
        f"{k} device{'s' if k > 1 else ''}, gradients of {', '.join(map(str, sizes))} numbers": (k, sizes)
        for k, sizes in (
            (2, (3, 1, 1, 1)),
            (3, (5, 5, 4, 4, 3, 3, 3)),
            (4, (180, 20, 250, 50, 1024, 128, 10)),
            (4, (6, 2)),
            (1, (3, 4)),
        )
    },
    observe=_observe_owners,
    mistakes=(),
    think=_BY_HAND,
)
