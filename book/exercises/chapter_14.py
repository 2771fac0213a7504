"""The exercises of chapter 14: a row-parallel layer with its backward pass, and an embedding whose rows are shared."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from d2lite.exercises import NEVER_ENDS, WORLD_SIZE, Exercise, Lockstep, Mistake, Unfit

Change = Callable[[torch.Tensor], torch.Tensor]
OUTPUTS = "Y", "grad_X", "grad_weight", "grad_bias"


def _same(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def _summed(tensor: torch.Tensor) -> torch.Tensor:
    total = tensor.clone()
    dist.all_reduce(total)
    return total


def _averaged(tensor: torch.Tensor) -> torch.Tensor:
    return _summed(tensor) / dist.get_world_size()


def _row_parallel(
    add_up: Change = _summed,
    early_bias: bool = False,
    late_bias: bool = True,
    of_loss: Change = _same,
    of_X: Change = _same,
    of_weight: Change = _same,
    of_bias: Change = lambda grad_Y: grad_Y.sum(0),
) -> Callable[..., Any]:
    """Return an answer; by default the right one."""

    def row_parallel(X: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, grad_Y: torch.Tensor) -> Any:
        Y = add_up(X @ weight.T + bias * early_bias) + bias * late_bias
        grad_Y = of_loss(grad_Y)
        return Y, of_X(grad_Y @ weight), of_weight(grad_Y.T @ X), of_bias(grad_Y)

    return row_parallel


def _observe_row_parallel(answer: Callable[..., Any], b: int, inputs: int, outputs: int, seed: int) -> Any:
    """Return what this rank is given, by name, for a layer of random numbers."""
    generator = torch.Generator().manual_seed(seed)
    shapes = (b, inputs), (outputs, inputs), (outputs,), (b, outputs)
    X, weight, bias, grad_Y = (torch.randn(shape, dtype=torch.float64, generator=generator) for shape in shapes)
    mine = [whole.tensor_split(dist.get_world_size(), 1)[dist.get_rank()].clone() for whole in (X, weight)]
    result = Lockstep().call(answer, *mine, bias, grad_Y)
    if result is None:
        return None
    if not isinstance(result, (tuple, list)) or len(result) != len(OUTPUTS):
        raise Unfit("it does not return four tensors.", f"The result is a tuple: {', '.join(OUTPUTS)}.")
    return {name: tensor.tolist() for name, tensor in zip(OUTPUTS, result, strict=True)}


def _output(name: str) -> Callable[[Any], Any]:
    return lambda result: result[name]


_FOLLOW = (
    "Write down the shapes of all tensors. Which of them are the same on all ranks, of which does a rank have a part, "
    "and which one is a sum over the ranks?"
)
_OWN_PART = (
    "How many rows and columns has this gradient on one device, and which of them belong to this rank's part? Does any "
    "other rank have numbers that go into them?"
)
ROW_PARALLEL = Exercise(
    name="14.1",
    title="A row-parallel layer, forward and backward",
    solution=_row_parallel(),
    cases=lambda: {
        "six inputs, two for each rank": (4, 6, 2, 0),
        "seven inputs: three, two and two": (3, 7, 5, 1),
        "two inputs, rank 2 has none": (2, 2, 3, 2),
        "one example": (1, 9, 4, 3),
        "one output": (5, 3, 1, 4),
    },
    mistakes=(
        Mistake(
            _row_parallel(early_bias=True, late_bias=False),
            "the bias is in the sum once per rank.",
            "Three ranks add up their results. How many biases are in the sum?",
            part=_output("Y"),
        ),
        Mistake(
            _row_parallel(add_up=_same),
            "each rank returns a summand of Y, and not the sum.",
            "A rank has multiplied its part of the inputs only. What do the other ranks have?",
            part=_output("Y"),
        ),
        Mistake(
            _row_parallel(add_up=_averaged),
            "the ranks' results are averaged.",
            "With 1 on each of three inputs and weights of 1, the output is 3. What does a mean give?",
            part=_output("Y"),
        ),
        Mistake(
            _row_parallel(late_bias=False),
            "the bias is missing in Y.",
            "What does a linear layer add to X @ weight.T?",
            part=_output("Y"),
        ),
        Mistake(
            _row_parallel(of_X=_summed),
            "the gradient of X is added up over the ranks, and each rank has inputs of its own.",
            _OWN_PART,
            part=_output("grad_X"),
        ),
        Mistake(
            _row_parallel(of_X=_averaged),
            "the gradient of X is averaged over the ranks, and each rank has inputs of its own.",
            _OWN_PART,
            part=_output("grad_X"),
        ),
        Mistake(
            _row_parallel(of_weight=_summed),
            "the gradient of the weight is added up over the ranks, and each rank has weights of its own.",
            _OWN_PART,
            part=_output("grad_weight"),
        ),
        Mistake(
            _row_parallel(of_weight=_averaged),
            "the gradient of the weight is averaged over the ranks, and each rank has weights of its own.",
            _OWN_PART,
            part=_output("grad_weight"),
        ),
        Mistake(
            _row_parallel(of_weight=lambda grad: grad.T),
            "the gradient of the weight is transposed.",
            "A gradient has the shape of its parameter, and weight is [outputs, inputs].",
            part=_output("grad_weight"),
        ),
        Mistake(
            _row_parallel(of_loss=_summed),
            "grad_Y is added up over the ranks, and each rank has had the complete one: the gradients are too large.",
            "All ranks compute the same loss from the same Y. Is grad_Y replicated or partial?",
        ),
        Mistake(
            _row_parallel(of_bias=lambda grad_Y: _summed(grad_Y.sum(0))),
            "the gradient of the bias is added up over the ranks, and each rank has had the complete one.",
            "Each rank has all of bias and all of grad_Y. What could another rank add?",
        ),
        Mistake(
            _row_parallel(of_bias=lambda grad_Y: grad_Y.mean(0)),
            "the gradient of the bias is a mean over the examples.",
            "One bias is added to the output of every example. Do the gradients of several uses add up, or average?",
        ),
        Mistake(
            _row_parallel(of_bias=lambda grad_Y: grad_Y.sum(0) / dist.get_world_size()),
            "the gradient of the bias is divided by the number of ranks.",
            "Do the ranks share the bias, or does each of them have all of it?",
        ),
        Mistake(
            _row_parallel(of_bias=lambda grad_Y: grad_Y.sum(0) * (dist.get_rank() == 0)),
            "rank 0 alone has a gradient of the bias, and each rank updates its own copy of it.",
            "What do the biases of the ranks look like after a step of gradient descent?",
            part=_output("grad_bias"),
        ),
        Mistake(
            _row_parallel(of_bias=_same),
            "the gradient of the bias has a row for each example.",
            "A gradient has the shape of its parameter. One bias is added to every row: what becomes of the rows?",
            part=_output("grad_bias"),
        ),
        Mistake(
            _row_parallel(of_loss=lambda grad_Y: grad_Y / len(grad_Y)),
            "all gradients are divided by the number of examples, and grad_Y is the gradient of the loss already.",
            "Does the loss stand before grad_Y or after it? Where would a mean over the examples be?",
        ),
        Mistake(
            _row_parallel(of_loss=lambda grad_Y: grad_Y / dist.get_world_size()),
            "all gradients are divided by the number of ranks.",
            "All ranks compute the same loss from the same Y. Which of them has a share of it only?",
        ),
        Mistake(
            _row_parallel(of_X=lambda grad_X: grad_X.T),
            "the gradient of X is transposed.",
            "A gradient has the shape of its tensor, and X is [b, inputs].",
            part=_output("grad_X"),
        ),
        NEVER_ENDS,
    ),
    think=_FOLLOW,
    observe=_observe_row_parallel,
    world_size=WORLD_SIZE,
)


VOCABULARY_OUTPUTS = "X", "grad_weight"


def _masked(index: torch.Tensor, n: int) -> torch.Tensor:
    return ((index >= 0) & (index < n)).double()


def _added(grad_weight: torch.Tensor, index: torch.Tensor, grads: torch.Tensor) -> torch.Tensor:
    return grad_weight.index_add(0, index, grads)


def _last(grad_weight: torch.Tensor, index: torch.Tensor, grads: torch.Tensor) -> torch.Tensor:
    for i, grad in zip(index.tolist(), grads, strict=True):
        if grad.any():
            grad_weight[i] = grad
    return grad_weight


def _embedding(
    add_up: Change = _summed,
    mask: Callable[[torch.Tensor, int], torch.Tensor] = _masked,
    mask_back: Callable[[torch.Tensor, int], torch.Tensor] = _masked,
    of_grad: Change = _same,
    put: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor] = _added,
    of_weight: Change = _same,
) -> Callable[..., Any]:
    """Return an answer; by default the right one."""

    def vocabulary_parallel(weight: torch.Tensor, first: int, tokens: torch.Tensor, grad_X: torch.Tensor) -> Any:
        n = len(weight)
        index = (tokens - first).clamp(0, n - 1)
        X = add_up(weight[index] * mask(tokens - first, n)[:, None])
        grads = of_grad(grad_X) * mask_back(tokens - first, n)[:, None]
        return X, of_weight(put(torch.zeros_like(weight), index, grads))

    return vocabulary_parallel


def _everywhere(index: torch.Tensor, n: int) -> torch.Tensor:
    return torch.ones(len(index), dtype=torch.float64)


def _shifted(index: torch.Tensor, n: int) -> torch.Tensor:
    return ((index > 0) & (index < n)).double()


def _observe_embedding(
    answer: Callable[..., Any], tokens: Sequence[int], characters: int, width: int, seed: int
) -> Any:
    """Return what this rank is given, by name, for an embedding of random numbers."""
    generator = torch.Generator().manual_seed(seed)
    shapes = (characters, width), (len(tokens), width)
    whole, grad_X = (torch.randn(shape, dtype=torch.float64, generator=generator) for shape in shapes)
    parts = torch.arange(characters).tensor_split(dist.get_world_size())
    mine = parts[dist.get_rank()]
    result = Lockstep().call(answer, whole[mine], int(mine[0]), torch.tensor(tokens), grad_X)
    if result is None:
        return None
    if not isinstance(result, (tuple, list)) or len(result) != len(VOCABULARY_OUTPUTS):
        raise Unfit("it does not return two tensors.", f"The result is a tuple: {', '.join(VOCABULARY_OUTPUTS)}.")
    return {name: tensor.tolist() for name, tensor in zip(VOCABULARY_OUTPUTS, result, strict=True)}


_WHOSE_ROW = (
    "Rank 1 of three has the rows 2 and 3 of six. What should it contribute for the tokens 0, 2, 3 and 5, so that the "
    "sum over the ranks is right?"
)
VOCABULARY = Exercise(
    name="14.2",
    title="An embedding whose rows are shared, forward and backward",
    solution=_embedding(),
    cases=lambda: {
        "six characters, two for each rank": ([0, 2, 3, 5], 6, 2, 0),
        "seven characters: three, two and two": ([6, 1, 4, 0, 3], 7, 3, 1),
        "a token that occurs three times": ([1, 4, 1, 5, 1], 6, 2, 2),
        "all tokens on rank 2": ([5, 4, 5], 6, 1, 3),
        "one token": ([0], 3, 4, 4),
    },
    mistakes=(
        Mistake(
            _embedding(add_up=_same),
            "each rank returns the rows that it has itself, and zeros for all others.",
            "Which rank has the row of token 0? How do the others get it?",
            part=_output("X"),
        ),
        Mistake(
            _embedding(add_up=_averaged),
            "the ranks' results are averaged.",
            "Only one rank has the row of a token, the others have zeros. What is the mean of three such results?",
            part=_output("X"),
        ),
        Mistake(
            _embedding(mask=_everywhere),
            "for a token of another rank a rank adds a row of its own.",
            _WHOSE_ROW,
            part=_output("X"),
        ),
        Mistake(
            _embedding(mask=_shifted),
            "the first row of each rank is left out.",
            "Which index has the token `first` in the part of its rank?",
            part=_output("X"),
        ),
        Mistake(
            _embedding(mask_back=_everywhere),
            "rows of this rank get the gradients of tokens of other ranks.",
            _WHOSE_ROW,
            part=_output("grad_weight"),
        ),
        Mistake(
            _embedding(put=_last),
            "of a token that occurs several times only the last gradient counts.",
            "One row is used at three places. Do the gradients of several uses add up, or replace each other?",
            part=_output("grad_weight"),
        ),
        Mistake(
            _embedding(of_grad=_summed),
            "grad_X is added up over the ranks, and each rank has had the complete one: the gradients are too large.",
            "All ranks compute the same loss from the same X. Is grad_X replicated or partial?",
            part=_output("grad_weight"),
        ),
        Mistake(
            _embedding(of_grad=lambda grad_X: grad_X / dist.get_world_size()),
            "the gradients are divided by the number of ranks.",
            "All ranks compute the same loss from the same X. Which of them has a share of it only?",
            part=_output("grad_weight"),
        ),
        Mistake(
            _embedding(of_weight=_summed),
            "the gradient of the weight is added up over the ranks, and each rank has rows of its own.",
            _OWN_PART,
            part=_output("grad_weight"),
        ),
        NEVER_ENDS,
    ),
    think=_FOLLOW,
    observe=_observe_embedding,
    world_size=WORLD_SIZE,
)
