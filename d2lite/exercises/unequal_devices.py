"""Exercise 3.4: a minibatch for devices of unequal speed; the shares are judged, not seconds."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from d2lite.exercises.exercise import Exercise, Mistake, Unfit

__all__ = ["UNEQUAL"]

NEAR = 0.05  # of the minibatch: what rounding makes of a rule

Shards = tuple[list[torch.Tensor], list[torch.Tensor]]


def _cut(X: torch.Tensor, y: torch.Tensor, shares: Sequence[float]) -> Shards:
    """Cut both where the shares, added up, end: nobody has an example more or less than its share."""
    ends = [round(len(X) * sum(shares[: i + 1]) / sum(shares)) for i in range(len(shares))]
    sizes = [end - begin for begin, end in zip([0, *ends], ends, strict=False)]
    return list(X.split(sizes)), list(y.split(sizes))


def _observe_split(answer: Callable[..., Any], n: int, speeds: Sequence[float]) -> Any:
    """Cut a minibatch by an answer, and return in words by what the sizes of the shards go; else the sizes.

    Seconds are not measured: the time of a replica is its number of examples over its speed.
    """
    X = torch.rand(n, 3, generator=torch.Generator().manual_seed(n), dtype=torch.float64)
    y, devices = torch.arange(n), [torch.device("cpu")] * len(speeds)
    shards = answer(X, y, devices, list(speeds))
    if not (isinstance(shards, Sequence) and len(shards) == 2 and all(len(part) == len(speeds) for part in shards)):
        raise Unfit("it does not return two lists, X_shards and y_shards, with one shard per device.")
    _check_shards(X, y, shards)
    sizes = [len(shard) for shard in shards[1]]
    # no replica may end later than if all ended together and the slowest had one example more
    latest = n / sum(speeds) + 1 / min(speeds)
    if all(size / speed <= latest + 1e-9 for size, speed in zip(sizes, speeds, strict=True)):
        return "by speed"
    off = {
        rule: round(max(abs(size - n * share / sum(shares)) for size, share in zip(sizes, shares, strict=True)), 6)
        for rule, shares in _rules(speeds).items()
    }
    nearest = min(off, key=lambda rule: off[rule])  # the first of several
    return nearest if off[nearest] <= max(1, NEAR * n) else sizes


def _rules(speeds: Sequence[float]) -> dict[str, list[float]]:
    """Return the shares that wrong rules give."""
    return {
        "equal": [1.0] * len(speeds),
        "inverse": [1 / speed for speed in speeds],
        "fastest only": [float(speed == max(speeds)) for speed in speeds],
        "sorted": sorted(speeds, reverse=True),
        "squares": [speed**2 for speed in speeds],
    }


def _check_shards(X: torch.Tensor, y: torch.Tensor, shards: Any) -> None:
    found = torch.cat([torch.as_tensor(shard) for shard in shards[1]]).tolist()
    if len(found) != len(set(found)):
        raise Unfit("an example is in more than one shard.", "Where does a shard begin, and where did the last end?")
    if len(found) < len(y):
        raise Unfit(
            f"{len(y) - len(found)} of {len(y)} examples are in no shard.",
            "Rounded shares need not add up to the minibatch. Who gets the rest?",
        )
    if found != y.tolist():
        raise Unfit("the order of the examples has changed.", "Shard 0 has the first examples, shard 1 the next ones.")
    if [len(part) for part in shards[0]] != [len(part) for part in shards[1]] or not torch.equal(
        X, torch.cat([*shards[0]])
    ):
        raise Unfit(
            "images and labels are not cut at the same places.",
            "An image must stay with its label. How many cuts have to be computed?",
        )


def _rest_to_last(X: torch.Tensor, y: torch.Tensor, speeds: Sequence[float]) -> Shards:
    sizes = [int(len(X) * speed / sum(speeds)) for speed in speeds[:-1]]
    sizes.append(len(X) - sum(sizes))
    return list(X.split(sizes)), list(y.split(sizes))


def _rest_lost(X: torch.Tensor, y: torch.Tensor, speeds: Sequence[float]) -> Shards:
    sizes = [int(len(X) * speed / sum(speeds)) for speed in speeds]
    ends = [sum(sizes[:i]) for i in range(len(sizes) + 1)]
    cuts = list(zip(ends, ends[1:], strict=False))
    return [X[a:b] for a, b in cuts], [y[a:b] for a, b in cuts]


def _by_rule(rule: str) -> Callable[..., Shards]:
    return lambda X, y, devices, speeds: _cut(X, y, _rules(speeds)[rule])


_TIME = "A replica needs (its examples / its speed) seconds. When do all of them end at the same moment?"

UNEQUAL = Exercise(
    name="3.4",
    title="A minibatch for devices of unequal speed",
    solution=lambda X, y, devices, speeds: _cut(X, y, speeds),
    cases=lambda: {
        f"{n} examples, speeds {', '.join(f'{speed:g}' for speed in speeds)}": (n, speeds)
        for n, speeds in (
            (90, (2.0, 1.0)),
            (100, (1.0, 3.0)),
            (64, (5.0, 5.0)),
            (101, (4.0, 2.0, 1.0)),
            (59, (10.0, 10.0, 10.0, 9.0, 1.0)),
            (7, (0.5, 1.5)),
            (12, (30.0,)),
        )
    },
    observe=_observe_split,
    mistakes=(
        Mistake(
            _by_rule("equal"),
            "all shards are equally large: the fast device waits for the slow one.",
            _TIME,
        ),
        Mistake(
            _by_rule("inverse"),
            "the slow device gets the larger shard.",
            "A speed is in examples per second. Is a device with a larger number faster or slower?",
        ),
        Mistake(
            _by_rule("fastest only"),
            "only the fastest device gets examples.",
            _TIME,
        ),
        Mistake(
            _by_rule("sorted"),
            "the shares are sorted: shard i is for device i, whether it is fast or slow.",
            "Which shard goes to which device?",
        ),
        Mistake(
            lambda X, y, devices, speeds: _rest_to_last(X, y, speeds),
            "what rounding leaves over all goes to the last device, which may be the slowest.",
            "Round the places of the cuts instead of the sizes, or give the rest to the devices one by one.",
        ),
        Mistake(
            lambda X, y, devices, speeds: _rest_lost(X, y, speeds),
            "shares are rounded down, and what is left over is in no shard.",
            "Rounded shares need not add up to the minibatch. Who gets the rest?",
        ),
        Mistake(
            lambda X, y, devices, speeds: (_cut(X, y, speeds)[0], _cut(X, y, [1] * len(speeds))[1]),
            "the images are cut by speed and the labels are not: images and labels no longer belong together.",
            "An image must stay with its label. How many cuts have to be computed?",
        ),
        Mistake(
            _by_rule("squares"),
            "the faster device gets too much: its share grows with the square of its speed.",
            _TIME,
        ),
    ),
    think=_TIME,
)
