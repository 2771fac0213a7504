"""Exercise 3.5: sixteen GPUs, predicted with the cost model: what is left for each, and what to change first."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from d2lite.costs import ScalingPrediction, Setup, StepPrediction, find_link, predict_scaling
from d2lite.exercises.exercise import Exercise, Mistake

__all__ = ["SIXTEEN"]

PARTS = ("overhead", "computing", "sending", "waiting")
Answer = tuple[float, str, str]


def _outcome(setup: Setup, k: int = 16) -> ScalingPrediction:
    predicted = predict_scaling(setup, k)
    assert predicted is not None  # no case has fewer examples than GPUs
    return predicted


def _longest(step: StepPrediction) -> str:
    seconds = (step.overhead_s, step.compute_s, step.exposed_s, step.wait_s)
    return PARTS[seconds.index(max(seconds))]


def _shortest(changes: Mapping[str, Setup], seconds: Callable[[Setup], float]) -> str:
    return min(changes, key=lambda name: seconds(changes[name]))


def _sixteen_gpus(setup: Setup, changes: Mapping[str, Setup]) -> Answer:
    best = _shortest(changes, lambda change: _outcome(change).epoch_s)
    return setup.batch_size / 16, _longest(_outcome(setup).step), best


def _with_hidden(setup: Setup) -> str:
    step = _outcome(setup).step
    return _longest(replace(step, exposed_s=step.communication_s))


def _setups() -> dict[str, Setup]:
    slow, fast = find_link("Ethernet 10 Gb/s, RDMA"), find_link("InfiniBand NDR 400 Gb/s")
    usual = Setup("ResNet-18, small images", 256, is_global=True, across=slow, overhead_s=1e-4)
    middle = replace(usual, batch_size=192, across=find_link("Ethernet 100 Gb/s, RDMA"), overhead_s=3e-3)
    hidden = replace(usual, batch_size=1280, across=find_link("Ethernet 25 Gb/s, RDMA"))
    return {
        "256 examples, slow network": usual,
        "256 examples, fast network, 5 ms of overhead": replace(usual, across=fast, overhead_s=5e-3),
        "192 examples, middling network, 3 ms of overhead": middle,
        "1,280 examples, middling network": hidden,
        "1,024 examples, fast network, unequal GPUs": replace(usual, batch_size=1024, across=fast, spread=0.8),
    }


def _changes(setup: Setup) -> dict[str, Setup]:
    link = setup.across
    faster = replace(link, bandwidth_bytes_per_s=4 * link.bandwidth_bytes_per_s)
    return {
        "a minibatch twice as large": replace(setup, batch_size=2 * setup.batch_size),
        "a network four times as fast": replace(setup, across=faster),
        "a tenth of the overhead": replace(setup, overhead_s=setup.overhead_s / 10),
        "GPUs of equal speed": replace(setup, spread=0.0),
    }


_SHARE = "batch_size is that of all GPUs together. What is left for each of them?"
_LONGEST = "Look at the parts of predict_scaling(setup, 16).step. Which of them add up to its seconds?"
_CHANGE = "Predict an epoch on 16 GPUs with each of the changes. Which one is shortest?"

SIXTEEN = Exercise(
    name="3.5",
    title="Sixteen GPUs: what is left for each, what takes longest, and what to change first",
    solution=_sixteen_gpus,
    cases=lambda: {label: (setup, _changes(setup)) for label, setup in _setups().items()},
    mistakes=(
        Mistake(
            lambda setup, changes: (setup.batch_size, "", ""),
            "the number of examples is that of all GPUs together, and that of each is asked for.",
            _SHARE,
            part=lambda answer: answer[0],
        ),
        Mistake(
            lambda setup, changes: (setup.batch_size * 16, "", ""),
            "the number of examples is larger than the minibatch.",
            _SHARE,
            part=lambda answer: answer[0],
        ),
        Mistake(
            lambda setup, changes: (0, _longest(_outcome(setup, 1).step), ""),
            "the part that takes longest is that of one GPU, which has the complete minibatch and sends nothing.",
            _LONGEST,
            part=lambda answer: answer[1],
        ),
        Mistake(
            lambda setup, changes: (0, _with_hidden(setup), ""),
            "what is sent during the backward pass is counted as if it came after it.",
            _LONGEST,
            part=lambda answer: answer[1],
        ),
        Mistake(
            lambda setup, changes: (0, "sending", ""),
            "it says that sending takes longest, whatever is predicted.",
            _LONGEST,
            part=lambda answer: answer[1],
        ),
        Mistake(
            lambda setup, changes: (0, "", _shortest(changes, lambda change: _outcome(change).step.seconds)),
            "the change with the shortest step is chosen: steps of different minibatches cannot be compared.",
            "How many steps does an epoch have with each of the changes?",
            part=lambda answer: answer[2],
        ),
        Mistake(
            lambda setup, changes: (0, "", _shortest(changes, lambda change: _outcome(change, 1).epoch_s)),
            "the change is the best one for a single GPU, which sends nothing and waits for nobody.",
            _CHANGE,
            part=lambda answer: answer[2],
        ),
        Mistake(
            lambda setup, changes: (0, "", _shortest(changes, lambda change: -_outcome(change).epoch_s)),
            "the change with the longest epoch is chosen.",
            _CHANGE,
            part=lambda answer: answer[2],
        ),
        Mistake(
            lambda setup, changes: (0, "", "a network four times as fast"),
            "a faster network is chosen, whatever is predicted.",
            _CHANGE,
            part=lambda answer: answer[2],
        ),
        Mistake(
            lambda setup, changes: (0, "", "a minibatch twice as large"),
            "a larger minibatch is chosen, whatever is predicted.",
            _CHANGE,
            part=lambda answer: answer[2],
        ),
    ),
    think="Three answers are asked for: a number, the name of a part, and the name of a change. " + _LONGEST,
    limit_s=20.0,
)
