"""The exercises of chapter 3: names without a prefix, a sum of means, devices of unequal speed, sixteen GPUs."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import torch

from d2lite.exercises import Exercise, Mistake, Unfit

State = dict[str, int]


def _observe_state(answer: Callable[..., Any], state: State, prefix: str) -> dict[str, Any]:
    """Return what an answer gives; if it changed the dictionary that it was given, that one as well."""
    before = dict(state)
    returned = answer(state, prefix)
    return returned if state == before else {"returned": returned, "given": state}


def _in_place(state: State, prefix: str) -> State:
    for name in list(state):
        state[name.removeprefix(prefix)] = state.pop(name)
    return state


def _in_place_without_return(state: State, prefix: str) -> None:
    _in_place(state, prefix)


def _repeated(name: str, prefix: str) -> str:
    while name.startswith(prefix):
        name = name.removeprefix(prefix)
    return name


_NAMES = "Look at one name that has the prefix, one that has it twice, and one that does not have it."

PREFIX = Exercise(
    name="3.1",
    title="Names of saved weights without the prefix of a wrapper",
    solution=lambda state, prefix: {name.removeprefix(prefix): value for name, value in state.items()},
    cases=lambda: {
        "names with and without module.": (
            {"module.conv.weight": 1, "linear.bias": 2, "module.module.x": 3},
            "module.",
        ),
        "no names": ({}, "module."),
        "no prefix": ({"conv.weight": 1, "modules.bias": 2}, "module."),
        "the prefix inside a name": ({"net.module.x": 1, "module.mean": 2, "submodule.y": 3}, "module."),
        "another prefix": ({"net.conv.weight": 1, "module.bias": 2}, "net."),
    },
    observe=_observe_state,
    mistakes=(
        Mistake(
            _in_place,
            "the dictionary that it was given is changed: whoever passed it on still needs it.",
            "A new dictionary is asked for. Which lines write into the old one?",
        ),
        Mistake(
            _in_place_without_return,
            "the dictionary that it was given is changed, and nothing is returned.",
            "A new dictionary is asked for. Which lines write into the old one?",
        ),
        Mistake(
            lambda state, prefix: {name.replace(prefix, ""): value for name, value in state.items()},
            "the prefix is also removed inside of names.",
            _NAMES,
        ),
        Mistake(
            lambda state, prefix: {name.replace(prefix, "", 1): value for name, value in state.items()},
            "the prefix is removed where it first occurs, and that may be inside of a name.",
            "Where in a name may a prefix stand?",
        ),
        Mistake(
            lambda state, prefix: {name.split(prefix)[-1]: value for name, value in state.items()},
            "everything up to the last place of the prefix is removed.",
            _NAMES,
        ),
        Mistake(
            lambda state, prefix: {name.split(prefix, 1)[-1]: value for name, value in state.items()},
            "everything up to the first place of the prefix is removed, and that may be inside of a name.",
            "Where in a name may a prefix stand?",
        ),
        Mistake(
            lambda state, prefix: {name.partition(prefix)[2]: value for name, value in state.items()},
            "partition gives an empty text for names that do not have the prefix.",
            "What are the three parts of a text in which partition finds nothing?",
        ),
        Mistake(
            lambda state, prefix: {name[7:]: value for name, value in state.items()},
            "seven letters are removed from every name.",
            _NAMES,
        ),
        Mistake(
            lambda state, prefix: {name[7:] if name.startswith(prefix) else name: v for name, v in state.items()},
            "seven letters are removed, whatever the prefix is.",
            "How many letters has the prefix if somebody calls it with another one?",
        ),
        Mistake(
            lambda state, prefix: {re.sub(f"^{prefix}", "", name): value for name, value in state.items()},
            "the point of the prefix stands for any letter in a regular expression.",
            "Does the name modules.bias have the prefix?",
        ),
        Mistake(
            lambda state, prefix: {re.sub(prefix, "", name): value for name, value in state.items()},
            "the prefix is removed everywhere, and its point stands for any letter in a regular expression.",
            _NAMES,
        ),
        Mistake(
            lambda state, prefix: {_repeated(name, prefix): value for name, value in state.items()},
            "the prefix is removed more than once.",
            "A network may itself have a layer of the name module. What must be left of module.module.x?",
        ),
        Mistake(
            lambda state, prefix: {name[len(prefix) :]: value for name, value in state.items()},
            "names that do not have the prefix are cut as well.",
            _NAMES,
        ),
        Mistake(
            lambda state, prefix: {name.lstrip(prefix): value for name, value in state.items()},
            "letters are removed one by one, as long as they occur in the prefix: lstrip takes a set of letters.",
            "A prefix is a text and not a set of letters. Which method of str takes one off?",
        ),
        Mistake(
            lambda state, prefix: {
                name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)
            },
            "names that do not have the prefix are left out.",
            _NAMES,
        ),
        Mistake(
            lambda state, prefix: {name.removeprefix("module."): value for name, value in state.items()},
            "the argument prefix is not used.",
            "Which prefix is removed if somebody calls it with another one?",
        ),
        Mistake(
            lambda state, prefix: {name.split(".", 1)[-1]: value for name, value in state.items()},
            "everything up to the first point is removed, whether it is the prefix or not.",
            _NAMES,
        ),
        Mistake(
            lambda state, prefix: [name.removeprefix(prefix) for name in state],
            "it returns the names alone, and a dictionary with their values is asked for.",
            "state.items() gives the names with their values.",
        ),
    ),
    think=_NAMES,
)

_HALVES = "Write the mean over 8 numbers as a mean over two halves, then over four quarters."

DIVIDE = Exercise(
    name="3.2",
    title="By which number is a sum of means to be divided?",
    solution=lambda num_replicas, batch_size: num_replicas,
    cases=lambda: {
        f"{k} replicas, minibatches of {n}": (k, n) for k, n in ((4, 128), (2, 128), (1, 64), (8, 256), (3, 99))
    },
    mistakes=(
        Mistake(
            lambda k, n: n,
            "it is the size of the minibatch: each shard has already divided by its own size.",
            _HALVES,
        ),
        Mistake(
            lambda k, n: n / k,
            "it is the size of a shard: each shard has already divided by it.",
            _HALVES,
        ),
        Mistake(
            lambda k, n: k * n,
            "it counts the size of the minibatch as well: each shard has already divided by its own size.",
            _HALVES,
        ),
        Mistake(
            lambda k, n: k / n,
            "this is a factor between a shard and the minibatch: each shard has already divided by its own size.",
            _HALVES,
        ),
        Mistake(
            lambda k, n: 1 / k,
            "it is the number to multiply by, and the one to divide by is asked for.",
            "Divide a sum by one half: does it become larger or smaller?",
        ),
        Mistake(
            lambda k, n: k * k,
            "it is divided by the number of replicas twice.",
            _HALVES,
        ),
        Mistake(
            lambda k, n: 1,
            "nothing is divided: the sum of the means is too large.",
            _HALVES,
        ),
    ),
    think=_HALVES,
)

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
    shards = _as_tensors(answer(X, y, devices, list(speeds)))
    shapes = [[X.shape[1:]] * len(speeds), [y.shape[1:]] * len(speeds)]
    if [[shard.shape[1:] for shard in part] for part in shards] != shapes:
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


def _as_tensors(shards: Any) -> list[list[torch.Tensor]]:
    """Return what an answer gives as two lists of tensors: its lists may be generators, and its shards NumPy's."""
    try:
        return [[torch.as_tensor(shard) for shard in part] for part in shards]
    except (TypeError, ValueError, RuntimeError):
        return []


def _rules(speeds: Sequence[float]) -> dict[str, list[float]]:
    """Return the shares that wrong rules give."""
    return {
        "equal": [1.0] * len(speeds),
        "inverse": [1 / speed for speed in speeds],
        "fastest only": [float(speed == max(speeds)) for speed in speeds],
        "sorted": sorted(speeds, reverse=True),
        "squares": [speed**2 for speed in speeds],
    }


def _check_shards(X: torch.Tensor, y: torch.Tensor, shards: Sequence[Sequence[torch.Tensor]]) -> None:
    found = torch.cat([shard.reshape(-1) for shard in shards[1]]).tolist()
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


def _rest_to_first(X: torch.Tensor, y: torch.Tensor, speeds: Sequence[float]) -> Shards:
    sizes = [int(len(X) * speed / sum(speeds)) for speed in speeds]
    sizes[0] += len(X) - sum(sizes)
    return list(X.split(sizes)), list(y.split(sizes))


def _rest_lost(X: torch.Tensor, y: torch.Tensor, speeds: Sequence[float]) -> Shards:
    return _slices(X, y, [int(len(X) * speed / sum(speeds)) for speed in speeds])


def _rounded(n: int, speeds: Sequence[float]) -> list[int]:
    return [round(n * speed / sum(speeds)) for speed in speeds]


def _slices(X: torch.Tensor, y: torch.Tensor, sizes: Sequence[int]) -> Shards:
    ends = [sum(sizes[:i]) for i in range(len(sizes) + 1)]
    cuts = list(zip(ends, ends[1:], strict=False))
    return [X[a:b] for a, b in cuts], [y[a:b] for a, b in cuts]


def _by_rule(rule: str) -> Callable[..., Shards]:
    return lambda X, y, devices, speeds: _cut(X, y, _rules(speeds)[rule])


_TIME = "A replica needs (its examples / its speed) seconds. When do all of them end at the same moment?"

UNEQUAL = Exercise(
    name="3.3",
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
            (59, (1.0, 9.0, 10.0, 10.0, 10.0)),
            (7, (0.5, 1.5)),
            (10, (1.0, 1.0, 1.0)),
            (5, (1.0, 1.0)),
            (7, (1.0, 1.0)),
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
            "Compute the seconds of each device for 59 examples and five speeds. Which one ends last?",
        ),
        Mistake(
            lambda X, y, devices, speeds: _rest_to_first(X, y, speeds),
            "what rounding leaves over all goes to the first device, which may be the slowest.",
            "Compute the seconds of each device for 59 examples and five speeds. Which one ends last?",
        ),
        Mistake(
            lambda X, y, devices, speeds: _rest_lost(X, y, speeds),
            "shares are rounded down, and what is left over is in no shard.",
            "Rounded shares need not add up to the minibatch. Who gets the rest?",
        ),
        Mistake(
            lambda X, y, devices, speeds: _slices(X, y, _rounded(len(X), speeds)),
            "each share is rounded on its own, and where the sizes do not add up, examples are in no shard.",
            "Three devices of equal speed and 10 examples: how many does each get, and how many is that together?",
        ),
        Mistake(
            lambda X, y, devices, speeds: (
                list(X.split(_rounded(len(X), speeds))),
                list(y.split(_rounded(len(X), speeds))),
            ),
            "each share is rounded on its own, and split refuses sizes that do not add up to the minibatch.",
            "Three devices of equal speed and 10 examples: how many does each get, and how many is that together?",
        ),
        Mistake(
            lambda X, y, devices, speeds: _slices(X, y, [int(speed) for speed in speeds]),
            "a speed is taken for a number of examples: it does not depend on the minibatch.",
            "Which fraction of 90 examples does a device get that does half of the work?",
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

GPUS = 16
CHANGES = ("larger minibatch", "faster network", "less overhead")


def _step(batch_size: int, example_s: float, sending_s: float, overhead_s: float) -> dict[str, float]:
    """Return the seconds of each part of a step."""
    return {"overhead": overhead_s, "computing": batch_size / GPUS * example_s, "sending": sending_s}


def _longest(batch_size: int, example_s: float, sending_s: float, overhead_s: float) -> str:
    parts = _step(batch_size, example_s, sending_s, overhead_s)
    return max(parts, key=lambda name: parts[name])


def _steps(batch_size: int, example_s: float, sending_s: float, overhead_s: float) -> dict[str, float]:
    """Return the seconds of a step with each of the changes."""
    changed = {
        "larger minibatch": _step(2 * batch_size, example_s, sending_s, overhead_s),
        "faster network": _step(batch_size, example_s, sending_s / 4, overhead_s),
        "less overhead": _step(batch_size, example_s, sending_s, overhead_s / 10),
    }
    return {name: sum(parts.values()) for name, parts in changed.items()}


def _epochs(*setup: float) -> dict[str, float]:
    """Return the seconds of an epoch with each of the changes, times a number of examples that is the same for all."""
    steps = _steps(*setup)  # type: ignore[arg-type]
    return steps | {"larger minibatch": steps["larger minibatch"] / 2}


def _computes_no_more(batch_size: int, example_s: float, sending_s: float, overhead_s: float) -> dict[str, float]:
    """Return the same, wrong: a minibatch twice as large is computed in the time of the small one."""
    epochs, parts = _epochs(batch_size, example_s, sending_s, overhead_s), _step(batch_size, example_s, sending_s, 0)
    return epochs | {"larger minibatch": epochs["larger minibatch"] - parts["computing"] / 2}


def _best(seconds: dict[str, float]) -> str:
    return min(seconds, key=lambda name: seconds[name])


_SHARE = "batch_size counts the examples of all GPUs together. How many are left for each?"
_LONGEST = "Write down the three parts of a step in milliseconds. How many examples does one GPU compute?"
_CHANGE = "Write down the seconds of an epoch with each of the changes. How many steps does it have?"
_FIX = dict(zip(("computing", "sending", "overhead"), CHANGES, strict=True))  # the change that fits a part by its name

SIXTEEN = Exercise(
    name="3.4",
    title="Sixteen GPUs: what is left for each, what takes longest, and what to change first",
    solution=lambda batch_size, example_s, sending_s, overhead_s: (
        batch_size / GPUS,
        _longest(batch_size, example_s, sending_s, overhead_s),
        _best(_epochs(batch_size, example_s, sending_s, overhead_s)),
    ),
    cases=lambda: {
        f"{n} examples of {1e3 * example_s:g} ms, sending {1e3 * sending_s:g} ms, overhead {1e3 * overhead_s:g} ms": (
            n,
            example_s,
            sending_s,
            overhead_s,
        )
        for n, example_s, sending_s, overhead_s in (
            (256, 2e-4, 36e-3, 1e-3),
            (256, 2e-4, 3.6e-3, 2.5e-3),
            (256, 2e-4, 0.9e-3, 4e-3),
            (1024, 2e-4, 3.6e-3, 1e-3),
            (512, 2e-4, 3e-3, 3e-3),
            (1024, 2e-4, 0.9e-3, 5e-3),
            (192, 2e-4, 3e-3, 3.5e-3),
        )
    },
    mistakes=(
        Mistake(
            lambda n, *setup: (n, "", ""),
            "the number of examples is the complete minibatch, and the part of each GPU is asked for.",
            _SHARE,
            part=lambda answer: answer[0],
        ),
        Mistake(
            lambda n, *setup: (n * GPUS, "", ""),
            "the number of examples is larger than the minibatch.",
            _SHARE,
            part=lambda answer: answer[0],
        ),
        Mistake(
            lambda *setup: (0, "computing", ""),
            "it says that computing takes longest in every case: is it the computing of one GPU?",
            _LONGEST,
            part=lambda answer: answer[1],
        ),
        Mistake(
            lambda *setup: (0, "sending", ""),
            "it says that sending takes longest in every case.",
            _LONGEST,
            part=lambda answer: answer[1],
        ),
        Mistake(
            lambda *setup: (0, "", _best(_steps(*setup))),
            "the change with the shortest step is chosen: steps of different minibatches cannot be compared.",
            "How many steps does an epoch have with each of the changes?",
            part=lambda answer: answer[2],
        ),
        Mistake(
            lambda *setup: (0, "", _FIX[_longest(*setup)]),
            "the change is chosen by the longest part alone, and a change may shorten two parts.",
            _CHANGE,
            part=lambda answer: answer[2],
        ),
        Mistake(
            lambda *setup: (0, "", _best(_computes_no_more(*setup))),
            "the computing of a minibatch twice as large is taken to be as long as before.",
            "How many examples does each GPU compute then, and how long does that take?",
            part=lambda answer: answer[2],
        ),
        Mistake(
            lambda *setup: (0, "", max(CHANGES, key=lambda name: _epochs(*setup)[name])),
            "the change with the longest epoch is chosen.",
            _CHANGE,
            part=lambda answer: answer[2],
        ),
        Mistake(
            lambda *setup: (0, "", "faster network"),
            "a faster network is chosen in every case.",
            _CHANGE,
            part=lambda answer: answer[2],
        ),
        Mistake(
            lambda *setup: (0, "", "larger minibatch"),
            "a larger minibatch is chosen in every case.",
            _CHANGE,
            part=lambda answer: answer[2],
        ),
    ),
    think="Three answers are asked for: a number, the name of a part, and the name of a change. " + _LONGEST,
)
