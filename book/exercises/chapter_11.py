"""The exercises of chapter 11: the weight of a shard, a distance between replicas, three bugs without a name."""

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import torch

from d2lite.exercises import Exercise, Mistake, Unfit

Params = Sequence[Sequence[torch.Tensor]]


def _factor(n_i: int, n: int, k: int, op: str) -> float:
    return n_i / n * (k if op == "mean" else 1)


_SHARDS = "Take 3 examples, shards of 2 and 1. Which weight has each example in the mean over all three?"

FACTOR = Exercise(
    name="11.1",
    title="The factor of a shard's mean loss, so that k devices equal one",
    solution=_factor,
    cases=lambda: {
        f"{n_i} of {n} examples, {k} devices, all-reduce with {op}": (n_i, n, k, op)
        for n_i, n, k, op in (
            (4, 8, 2, "sum"), (4, 8, 2, "mean"), (3, 5, 2, "sum"), (3, 5, 2, "mean"), (1, 7, 4, "mean"),
            (5, 5, 1, "sum"), (5, 5, 1, "mean"), (33, 100, 3, "sum"),
        )
    },
    mistakes=(
        Mistake(
            lambda n_i, n, k, op: 1,
            "nothing is weighted: with the mean over replicas this is the mean of means, with the sum k times as much.",
            _SHARDS,
        ),
        Mistake(
            lambda n_i, n, k, op: 1 / k if op == "sum" else 1,
            "each shard counts as much as every other one, whatever its number of examples.",
            _SHARDS,
        ),
        Mistake(lambda n_i, n, k, op: 1 / k, "each shard counts the same, and op is not used.", _SHARDS),
        Mistake(
            lambda n_i, n, k, op: n_i / n,
            "it is right for a sum. An all-reduce with mean divides by k as well.",
            "What must be done to a number that is going to be divided by k?",
        ),
        Mistake(
            lambda n_i, n, k, op: k * n_i / n,
            "it is right for a mean over replicas. A sum does not divide by k.",
            "Add the factors of all shards. What must their sum be if gradients are added?",
        ),
        Mistake(
            lambda n_i, n, k, op: n_i / n / (k if op == "mean" else 1),
            "for the mean it divides by k, and the all-reduce divides by k once more.",
            "What must be done to a number that is going to be divided by k?",
        ),
        Mistake(
            lambda n_i, n, k, op: n / n_i * (k if op == "mean" else 1),
            "the share is upside down: a small shard gets a large factor.",
            _SHARDS,
        ),
        Mistake(
            lambda n_i, n, k, op: n_i / n * (k if op == "sum" else 1),
            "the two kinds of all-reduce are the wrong way round.",
            "Which of the two divides by k by itself?",
        ),
        Mistake(
            lambda n_i, n, k, op: k if op == "mean" else 1,
            "it makes up for what the all-reduce does, and each shard counts as much as every other one.",
            _SHARDS,
        ),
        Mistake(
            lambda n_i, n, k, op: n_i / n / k,
            "it divides by k, for either kind of all-reduce.",
            "Add the factors of all shards. What must their sum be if gradients are added?",
        ),
        Mistake(
            lambda n_i, n, k, op: n_i * (k if op == "mean" else 1),
            "the two kinds of all-reduce are told apart, and nothing divides by the number of all examples.",
            _SHARDS,
        ),
        Mistake(
            lambda n_i, n, k, op: n_i / k,
            "the examples of the shard are divided by the number of devices.",
            _SHARDS,
        ),
        Mistake(
            lambda n_i, n, k, op: 1 / n,
            "it divides by all examples, as is right for a sum of losses. Each replica has a mean.",
            _SHARDS,
        ),
        Mistake(
            lambda n_i, n, k, op: n_i,
            "this makes a sum over examples out of the mean, and nothing divides by the number of examples.",
            _SHARDS,
        ),
    ),
    think=_SHARDS,
)  # fmt: skip


def _observe_drift(answer: Callable[..., Any], device_params: Params) -> Any:
    """Return the number that an answer gives, as a float; refuse changed parameters."""
    before = [[p.clone() for p in params] for params in device_params]
    try:
        found = answer(device_params)
    except Exception as error:
        if len(device_params) > 1:
            raise
        raise Unfit(
            f"it raised {type(error).__name__} for a single replica.",
            "With one device there is no difference to look at. What should a function return then? What does max() do "
            "with an empty list?",
        ) from None
    if any(
        not torch.equal(p, q) for a, b in zip(before, device_params, strict=True) for p, q in zip(a, b, strict=True)
    ):
        raise Unfit("it changes the parameters, which are only to be compared.", "Which operation writes in place?")
    return float(found.detach()) if isinstance(found, torch.Tensor) and found.numel() == 1 else found


def _apart(device_params: Params) -> list[list[torch.Tensor]]:
    """The differences of each replica's parameters to those of replica 0."""
    return [[q - p for p, q in zip(device_params[0], params, strict=True)] for params in device_params[1:]]


def _largest(parts: Sequence[torch.Tensor]) -> float:
    return max((float(part.abs().max()) for part in parts), default=0.0)


def _drift(device_params: Params) -> float:
    return _largest([part for replica in _apart(device_params) for part in replica])


def _drift_cases() -> dict[str, Any]:
    def tensors(*replicas: Sequence[Sequence[float]]) -> tuple[list[list[torch.Tensor]]]:
        return ([[torch.tensor(values) for values in params] for params in replicas],)

    return {
        "two copies": tensors([[1.0, 2.0], [3.0]], [[1.0, 2.0], [3.0]]),
        "one element is larger": tensors([[1.0, 2.0], [3.0]], [[1.0, 2.5], [3.0]]),
        "one element is smaller": tensors([[1.0, 2.0], [3.0]], [[1.0, 2.0], [2.0]]),
        "the third replica": tensors([[1.0], [2.0, 0.0]], [[1.0], [2.25, 0.0]], [[1.0], [2.0, -4.0]]),
        "several elements": tensors([[0.0, 0.0, 0.0]], [[1.0, -2.0, 1.5]]),
        "replicas on both sides of replica 0": tensors([[0.0]], [[1.0]], [[-1.0]]),
        "the first of three others": tensors([[0.0], [1.0]], [[3.0], [1.0]], [[0.5], [1.0]], [[1.0], [1.0]]),
        "each a step further": tensors([[0.0]], [[1.0]], [[2.0]]),
        "large elements, small differences": tensors([[100.0, -7.0]], [[100.5, -7.25]]),
        "only one replica": tensors([[5.0], [6.0]]),
    }


_ELEMENTS = "Write down the differences of all elements of all replicas to replica 0. Which one is asked for?"

DRIFT = Exercise(
    name="11.2",
    title="The largest difference of an element between replicas",
    solution=_drift,
    cases=_drift_cases,
    observe=_observe_drift,
    mistakes=(
        Mistake(
            lambda dp: max((float(part.max()) for replica in _apart(dp) for part in replica), default=0.0),
            "an element that is smaller than that of replica 0 does not count: the sign is missing.",
            "Is a difference of -4 larger or smaller than one of 1?",
        ),
        Mistake(
            lambda dp: _largest(_apart(dp)[0] if len(dp) > 1 else []),
            "only replica 1 is compared; the others may be apart.",
            _ELEMENTS,
        ),
        Mistake(
            lambda dp: _largest([replica[0] for replica in _apart(dp)]),
            "only the first parameter is compared.",
            _ELEMENTS,
        ),
        Mistake(
            lambda dp: max((float(part.abs().mean()) for replica in _apart(dp) for part in replica), default=0.0),
            "it is the mean over a parameter: one wrong element among a million is not seen.",
            "The largest difference is asked for, and not the usual one.",
        ),
        Mistake(
            lambda dp: sum(float(part.abs().sum()) for replica in _apart(dp) for part in replica),
            "it is the sum of all differences, and the largest one is asked for.",
            _ELEMENTS,
        ),
        Mistake(
            lambda dp: max((float(part.norm()) for replica in _apart(dp) for part in replica), default=0.0),
            "it is a norm over a parameter, and the largest element of the difference is asked for.",
            _ELEMENTS,
        ),
        Mistake(
            lambda dp: max((_drift([one, other]) for one in dp for other in dp), default=0.0),
            "it is the largest difference of any two replicas, and the difference to replica 0 is asked for.",
            "One replica is at 1, one at -1, replica 0 at 0. How far is each from replica 0?",
        ),
        Mistake(
            lambda dp: _drift([dp[0], dp[-1]]),
            "only the last replica is compared; the others may be apart.",
            _ELEMENTS,
        ),
        Mistake(
            lambda dp: max((_drift([one, other]) for one, other in zip(dp, dp[1:], strict=False)), default=0.0),
            "each replica is compared with the one before it, and not with replica 0.",
            "Replicas at 0, 1 and 2: how far is the last one from replica 0?",
        ),
        Mistake(
            lambda dp: _largest([p.max() - q.max() for params in dp for p, q in zip(dp[0], params, strict=True)]),
            "it compares the largest elements of two parameters, which may stand at different places.",
            "[1, 2] and [2, 1] have the same largest element. Are they equal?",
        ),
        Mistake(
            lambda dp: _largest([p.sum() - q.sum() for params in dp for p, q in zip(dp[0], params, strict=True)]),
            "it compares sums, in which differences of opposite sign cancel.",
            "[1, 2] and [2, 1] have the same sum. Are they equal?",
        ),
        Mistake(
            lambda dp: _largest([replica[-1] for replica in _apart(dp)]),
            "only the last parameter is compared.",
            _ELEMENTS,
        ),
        Mistake(
            lambda dp: sum(_largest(replica) for replica in _apart(dp)),
            "it adds up the largest difference of each replica.",
            _ELEMENTS,
        ),
        Mistake(
            lambda dp: _largest([part**2 for replica in _apart(dp) for part in replica]),
            "the difference is squared.",
            "Replica 0 has 1 and replica 1 has 1.5. How far are they apart?",
        ),
        Mistake(
            lambda dp: _largest(
                [p - torch.stack(same).mean(0) for same in zip(*dp, strict=True) for p in same],
            ),
            "each replica is compared with the mean of all, and not with replica 0.",
            _ELEMENTS,
        ),
        Mistake(
            lambda dp: _drift(dp) > 0,
            "it says whether they differ, and by how much is asked for.",
            "A difference of 1e-8 may be rounding, one of 0.1 is none. Which result tells them apart?",
        ),
    ),
    think=_ELEMENTS,
)

SYMPTOMS = {
    "A": "Compare minibatches of 8 and of 7 examples on two devices, in the first step. Does the last example count?",
    "B": "Compare the first step with the second one.",
    "C": "Look at .gradients of step 1, replica by replica: which of them gets which gradient?",
}

# What observes an answer also runs in students' copies and in the sandbox, where the museum and the answers are not.
_NAMES = (
    "sum for mean",
    "lr times k twice",
    "mean for sum",
    "loss divided by the local batch",
    "pieces divided by their number",
    "examples left over are dropped",
    "chunk loses a device",
    "rebinding all-reduce",
    "no all-reduce",
    "update before all-reduce",
    "forgotten zero_grad",
    "same random numbers on each replica",
    "different initial weights",
    "aliased replicas",
    "the published loop, on CPUs",
)
_DIGESTS = {"A": "830b131de5c87838", "B": "4f20689cb08673b4", "C": "318a8618807a5678"}


def _digest(letter: str, name: str) -> str:
    """Return a short hash of an answer."""
    return hashlib.sha256(f"{letter}: {name}".encode()).hexdigest()[:16]


def _observe_culprit(answer: Callable[..., Any], letter: str) -> str:
    """Return the name that an answer gives to an exhibit; say where to look if it is another one."""
    name = answer(letter)
    if not isinstance(name, str) or name not in _NAMES:
        listed = ", ".join(_NAMES)
        raise Unfit(f"exhibit {letter}: {str(name)[:60]!r} is not the name of an exhibit.", f"The names: {listed}.")
    if _digest(letter, name) != _DIGESTS[letter]:
        raise Unfit(f"exhibit {letter} is not {name!r}.", SYMPTOMS[letter])
    return name


def _culprit(letter: str) -> str:
    return {"A": "loss divided by the local batch", "B": "forgotten zero_grad", "C": "rebinding all-reduce"}[letter]


CULPRITS = Exercise(
    name="11.3",
    title="Three exhibits without a name: which bugs are they?",
    solution=_culprit,
    cases=lambda: {f"exhibit {letter}": (letter,) for letter in SYMPTOMS},
    observe=_observe_culprit,
    mistakes=(),
    think="From which step on do the weights differ, for which sizes of minibatches, and on which replica?",
)
