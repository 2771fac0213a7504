"""The exercises of chapter 1: bytes of data parallelism, which way sends fewer bytes, a layer in parts."""

import math
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

import torch

from d2lite.exercises import COPIES, Exercise, Mistake, PretendDevices, PretendTensor, Unfit, without_device

N_BYTES = 4  # of a number
LENET = ((20, 1, 3, 3), (20,), (50, 20, 5, 5), (50,), (800, 128), (128,), (128, 10), (10,))


def _num_params(shapes: Sequence[Sequence[int]]) -> int:
    return sum(math.prod(shape) for shape in shapes)


def _with_data_parallelism(shapes: Sequence[Sequence[int]], k: int) -> tuple[int, int]:
    n_bytes = N_BYTES * _num_params(shapes)
    return 2 * (k - 1) * n_bytes, 4 * n_bytes


def _times(sent: Callable[[int], float]) -> Callable[..., tuple[float, None]]:
    """Return a wrong answer: on k devices sent(k) times the bytes of the parameters are sent."""
    return lambda shapes, k: (sent(k) * N_BYTES * _num_params(shapes), None)


def _holds(held: Callable[[int], float]) -> Callable[..., tuple[None, float]]:
    """Return a wrong answer: each of k devices holds held(k) times the bytes of the parameters."""
    return lambda shapes, k: (None, held(k) * N_BYTES * _num_params(shapes))


_MESSAGES = "Draw three devices and an arrow for each message, there and back. How many arrows are there?"
_KINDS = "Go through the list of what a training device holds. Which entries have the size of the parameters?"

DATA_BYTES = Exercise(
    name="1.1",
    title="Data parallelism: what is sent, and what a device holds",
    solution=_with_data_parallelism,
    cases=lambda: {
        f"{name}, {k} device{'s' if k > 1 else ''}": (shapes, k)
        for name, shapes, k in (
            ("LeNet", LENET, 2),
            ("one linear layer", ((10, 784), (10,)), 4),
            ("LeNet", LENET, 1),
            ("a single number", ((),), 3),
            ("two convolutions", ((8, 1, 3, 3), (16, 8, 3, 3)), 8),
        )
    },
    mistakes=(
        Mistake(
            lambda shapes, k: _with_data_parallelism(shapes, k)[::-1],
            "the two numbers are in the wrong order.",
            "The first is what is sent, the second what one device holds.",
        ),
        Mistake(
            lambda shapes, k: _with_data_parallelism(shapes, k)[0],
            "it returns one number, and two are asked for.",
            "return a, b gives back both.",
        ),
        Mistake(
            lambda shapes, k: (2 * (k - 1) * _num_params(shapes), None),
            "what is sent is counted in numbers, and bytes are asked for.",
            "How many bytes does one number take?",
            part=itemgetter(0),
        ),
        Mistake(
            lambda shapes, k: (None, 4 * _num_params(shapes)),
            "it is a quarter: the parameters alone, or all that is held counted in numbers and not in bytes.",
            f"{_KINDS} How many bytes does one number take?",
            part=itemgetter(1),
        ),
        Mistake(
            lambda shapes, k: (None, N_BYTES * 4 * sum(map(sum, shapes))),
            "the sides of each tensor are added: that is not the number of its elements.",
            "How many numbers are in a matrix of 2 rows and 3 columns?",
            part=itemgetter(1),
        ),
        Mistake(
            _times(lambda k: 2 * k),
            "device 0 sends its gradients to itself.",
            _MESSAGES,
            part=itemgetter(0),
        ),
        Mistake(
            _times(lambda k: k - 1),
            "one direction is not counted.",
            _MESSAGES,
            part=itemgetter(0),
        ),
        Mistake(
            _times(lambda k: k),
            "it counts one message for each device.",
            _MESSAGES,
            part=itemgetter(0),
        ),
        Mistake(
            _times(lambda k: 2),
            "what is sent does not depend on the number of devices.",
            _MESSAGES,
            part=itemgetter(0),
        ),
        Mistake(
            _holds(lambda k: 3),
            "one of the tensors of a device is missing: how many numbers does Adam keep for each parameter?",
            _KINDS,
            part=itemgetter(1),
        ),
        Mistake(
            _holds(lambda k: 2),
            "only parameters and gradients are counted: Adam keeps something as well.",
            _KINDS,
            part=itemgetter(1),
        ),
        Mistake(
            _holds(lambda k: 4 / k),
            "what a device holds is divided by the number of devices.",
            "Which part of the network does each device have with data parallelism?",
            part=itemgetter(1),
        ),
        Mistake(
            _holds(lambda k: 4 * k),
            "it is what all devices hold together, and one device is asked for.",
            "Cross out all devices but one. What is left?",
            part=itemgetter(1),
        ),
    ),
    think="Count the numbers in the tensors of a small layer by hand. " + _MESSAGES,
)

_BOTH = "Write down what each way sends in one iteration for a batch size B on two devices, there and back."

FEWER_BYTES = Exercise(
    name="1.2",
    title="From which batch size on does data parallelism send fewer bytes?",
    solution=lambda params_n_bytes, cut_n_bytes_per_example: params_n_bytes // cut_n_bytes_per_example + 1,
    cases=lambda: {
        f"parameters {p:,} bytes, cut {c:,} bytes per example": (p, c)
        for p, c in ((516_272, 3_200), (6_400, 3_200), (7, 7), (3_200, 6_400), (10**15 + 1, 3))
    },
    mistakes=(
        Mistake(
            lambda p, c: -(-p // c),
            "where both ways send the same number of bytes, data parallelism does not send fewer.",
            "Try a case in which the division leaves no remainder, and write both sums down.",
        ),
        Mistake(
            lambda p, c: p // c,
            "at this batch size data parallelism does not send fewer bytes yet.",
            "Try a case in which the division leaves a remainder, and write both sums down for the next whole numbers.",
        ),
        Mistake(
            lambda p, c: p / c,
            "it is not a whole number, and a batch size is one.",
            "At p / c both ways send the same. Which is the first whole number at which one of them sends fewer?",
        ),
        Mistake(
            lambda p, c: p / c + 1,
            "it is not a whole number, and a batch size is one.",
            "Which of the two whole numbers next to it is the first?",
        ),
        Mistake(
            lambda p, c: round(p / c),
            "it is rounded to the nearest whole number, which may be too small.",
            "Which of the two whole numbers next to p / c is the first at which data parallelism sends fewer?",
        ),
        Mistake(
            lambda p, c: p // (2 * c) + 1,
            "it is about half of what is right: one direction of data parallelism is not counted.",
            "The gradients go to device 0. What comes back?",
        ),
        Mistake(
            lambda p, c: 2 * p // c + 1,
            "it is about twice what is right: one direction of the pipeline is not counted.",
            "The activations go forward. What comes back in the backward pass?",
        ),
        Mistake(
            lambda p, c: c // p + 1,
            "the division is the wrong way round.",
            _BOTH,
        ),
    ),
    think=_BOTH,
)


def _linear_in_parts(X_parts: Sequence[torch.Tensor], W: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    W_parts = W.split([X.shape[1] for X in X_parts], dim=1)
    return sum((X @ W_part.T for X, W_part in zip(X_parts, W_parts, strict=True)), start=torch.zeros(())) + b


OUTPUTS = 11  # no part has so many inputs
_JOINED = "it joins the inputs and multiplies once: no device has all inputs."
_SENT = (
    "it sends inputs to a different device: each device multiplies the inputs that it has, and only outputs are sent."
)
_OWN_THINK = "What can a device compute from its own inputs and some of the columns of W?"


def _observe_parts(answer: Callable[..., Any], widths: Sequence[int], num_examples: int) -> Any:
    """Call an answer with parts that are on a device each, and return the outputs as a without_device tensor.

    The numbers have both signs, so that a wrong abs or ReLU changes the outputs.
    """
    generator = torch.Generator().manual_seed(sum(widths) + num_examples)
    X, W = (torch.randn(n, sum(widths), generator=generator) for n in (num_examples, OUTPUTS))
    b = torch.randn(OUTPUTS, generator=generator)

    def watch(name: str, i: int, result: torch.Tensor, inputs: list[PretendTensor]) -> None:
        homes = {tensor.home for tensor in inputs if OUTPUTS not in tensor.shape}  # of inputs, and not of outputs
        if len(homes) > 1 or (homes and name in COPIES and len(widths) > 1):
            raise Unfit(_JOINED, _OWN_THINK)
        if homes - {i}:
            raise Unfit(_SENT, _OWN_THINK)

    pretend = PretendDevices(watch, strict=False)
    return without_device(answer([pretend.put(part, i) for i, part in enumerate(X.split(list(widths), dim=1))], W, b))


PARTS = Exercise(
    name="1.3",
    title="A linear layer that is cut along its inputs",
    solution=_linear_in_parts,
    cases=lambda: {
        f"parts of {list(widths)} inputs, {n} examples": (widths, n)
        for widths, n in (((12,), 5), ((6, 6), 5), ((5, 4, 3), 5), ((1, 2, 9), 4), ((2, 7), 1))
    },
    observe=_observe_parts,
    mistakes=(
        Mistake(
            lambda X_parts, W, b: (_linear_in_parts(X_parts, W, b) - b) / len(X_parts) + b,
            "the parts are averaged.",
            "Each output is a sum over all inputs. What does a part of it lack?",
        ),
        Mistake(
            lambda X_parts, W, b: _linear_in_parts(X_parts, W, (b * len(X_parts))),
            "the bias is added once for each part.",
            "How often is b added by a layer that is on one device?",
        ),
        Mistake(
            lambda X_parts, W, b: (_linear_in_parts(X_parts, W, b) - b) / len(X_parts) + b / len(X_parts),
            "the sum of the parts is divided.",
            "Each output is a sum over all inputs. What does a part of it lack?",
        ),
        Mistake(
            lambda X_parts, W, b: _linear_in_parts(X_parts, W, 0 * b),
            "the bias is not added.",
            "What does a linear layer do after the multiplication?",
        ),
        Mistake(
            lambda X_parts, W, b: sum(X @ w.T for X, w in zip(X_parts, W.tensor_split(len(X_parts), dim=1))) + b,  # noqa: B905
            "W is cut into equal parts, and the inputs are not.",
            "X_parts[i].shape[1] is the number of inputs that device i has. Which columns of W belong to them?",
        ),
        Mistake(
            lambda X_parts, W, b: X_parts[0] @ W[:, : X_parts[0].shape[1]].T + b,
            "only the inputs of the first device are used.",
            "Each output is a sum over all inputs.",
        ),
        Mistake(
            lambda X_parts, W, b: [
                X @ w.T for X, w in zip(X_parts, W.split([X.shape[1] for X in X_parts], dim=1), strict=True)
            ],
            "it returns one tensor per device, and the outputs of the complete layer are asked for.",
            "Each device has one term of every output. How do terms become an output?",
        ),
        Mistake(
            lambda X_parts, W, b: _linear_in_parts(X_parts, W, b).T,
            "the result is transposed: [outputs, examples].",
            "X is [examples, inputs] and W is [outputs, inputs]. Which of them is transposed?",
        ),
    ),
    think="Compute what device i can compute alone, and look at its shape. How do these results become the outputs?",
)
