"""The exercises of chapter 3: names without a prefix, a sum of means, devices of unequal speed, sixteen GPUs."""

from collections.abc import Callable
from typing import Any

from d2lite.exercises.exercise import Exercise, Mistake
from d2lite.exercises.sixteen_gpus import SIXTEEN
from d2lite.exercises.unequal_devices import UNEQUAL

__all__ = ["EXERCISES"]

State = dict[str, int]


def _observe_state(answer: Callable[..., Any], state: State, prefix: str) -> dict[str, Any]:
    """Return what an answer gives, and the dictionary that it was given, as it is afterwards."""
    return {"returned": answer(state, prefix), "given": state}


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

EXERCISES = {exercise.name: exercise for exercise in (PREFIX, DIVIDE, UNEQUAL, SIXTEEN)}
