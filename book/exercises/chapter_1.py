"""The exercises of chapter 1: how many iterations, which way sends fewer bytes, a layer in parts."""

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

import torch

from d2lite.exercises import COPIES, Exercise, Mistake, PretendDevices, PretendTensor, Unfit, without_device


def _epoch_of(num_examples: int, batch_size: int) -> tuple[int, int]:
    iterations = -(-num_examples // batch_size)
    return iterations, num_examples - (iterations - 1) * batch_size


_LAST = "Write the examples of a small case down, six in batches of two and seven in batches of two, and count."

EPOCH = Exercise(
    name="1.1",
    title="Iterations per epoch, and the size of the last batch",
    solution=_epoch_of,
    cases=lambda: {
        f"{n:,} examples, batch size {b}": (n, b)
        for n, b in ((12_000, 256), (60_000, 250), (1, 8), (257, 256), (512, 256), (7, 7), (5, 1))
    },
    mistakes=(
        Mistake(
            lambda n, b: _epoch_of(n, b)[::-1],
            "the two numbers are in the wrong order.",
            "The first is the number of iterations, the second the size of the last batch.",
        ),
        Mistake(
            lambda n, b: _epoch_of(n, b)[0],
            "it returns the number of iterations alone, and two numbers are asked for.",
            "return a, b gives back both.",
        ),
        Mistake(
            lambda n, b: (n // b, None),
            "the iterations are rounded down: a last batch that is not full counts as well.",
            _LAST,
            part=itemgetter(0),
        ),
        Mistake(
            lambda n, b: (n // b + 1, None),
            "there is one iteration too many where the examples fill all batches.",
            _LAST,
            part=itemgetter(0),
        ),
        Mistake(
            lambda n, b: (n / b, None),
            "the number of iterations is not a whole number.",
            "What happens with the examples that do not fill a batch?",
            part=itemgetter(0),
        ),
        Mistake(
            lambda n, b: (round(n / b), None),
            "the iterations are rounded to the nearest whole number: a batch with a few examples is left out.",
            _LAST,
            part=itemgetter(0),
        ),
        Mistake(
            lambda n, b: (None, n % b),
            "the last batch is said to be empty where the examples fill all batches.",
            "Which remainder has a division that comes out even, and how many examples has the last batch then?",
            part=itemgetter(1),
        ),
        Mistake(
            lambda n, b: (None, b),
            "the last batch is said to be full in every case.",
            "How many examples are in all batches before the last?",
            part=itemgetter(1),
        ),
    ),
    think="Count the full batches first. Then: is anything left?",
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
