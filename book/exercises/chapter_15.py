"""The exercises of chapter 15: the microbatches that a rank holds, and the gradient of a pipeline of three stages."""

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import torch
import torch.distributed as dist

from d2lite.exercises import NEVER_ENDS, WORLD_SIZE, Exercise, Lockstep, Mistake, Unfit

CHANGES = {"F": 1, "B": -1, "I": 0, "W": -1}  # of the number that is held


def _after_each(passes: Sequence[str], **other: int) -> list[int]:
    """Return how many microbatches are held after each pass; `other` changes what a kind of pass does."""
    return list(accumulate((CHANGES | other)[one[0]] for one in passes))


def _held(passes: Sequence[str], **other: int) -> int:
    return max(_after_each(passes, **other), default=0)


def _held_by_digit(passes: Sequence[str]) -> int:
    held: set[str] = set()
    most = 0
    for one in passes:
        if one[0] == "F":
            held.add(one[1])
        elif one[0] != "I":
            held.discard(one[1])
        most = max(most, len(held))
    return most


def _after_backward_passes(passes: Sequence[str]) -> int:
    after = _after_each(passes)
    return max((held for held, one in zip(after, passes, strict=True) if one[0] != "F"), default=0)


def _before_the_first_backward_pass(passes: Sequence[str]) -> int:
    return next((i for i, one in enumerate(passes) if one[0] != "F"), len(passes))


def _longest_row(passes: Sequence[str]) -> int:
    kinds = "".join(one[0] for one in passes)
    return max(map(len, kinds.replace("B", " ").replace("I", " ").replace("W", " ").split()), default=0)


_LIST = (
    "Write the passes of one rank below each other, and beside each the microbatches whose activations the rank has "
    "at that time. Which pass makes the list longer, which one shorter?"
)
_HALVES = "Which numbers does a gradient of the weights need? When may the rank throw them away?"
_PEAK = "Write down after each pass how many microbatches are held. Which of these numbers is asked for?"

HELD = Exercise(
    name="15.1",
    title="The most microbatches that a rank holds at a time",
    solution=_held,
    cases=lambda: {
        "GPipe, four microbatches": ("F0 F1 F2 F3 B0 B1 B2 B3".split(),),
        "1F1B, the first of three stages": ("F0 F1 F2 B0 F3 B1 F4 B2 B3 B4".split(),),
        "1F1B, the last stage": ("F0 B0 F1 B1 F2 B2".split(),),
        "the last microbatch goes backward first": ("F0 F1 F2 B2 B1 B0".split(),),
        "the most are held near the end": ("F0 B0 F1 F2 B1 F3 F4 B2 B3 B4".split(),),
        "twelve microbatches": ([f"{kind}{i}" for kind in "FB" for i in range(12)],),
        "two halves, W right after I": ("F0 F1 I0 W0 F2 I1 W1 F3 F4 I2 W2 I3 W3 I4 W4".split(),),
        "two halves, W as late as possible": ("F0 F1 I0 F2 I1 F3 I2 I3 W0 W1 W2 W3".split(),),
        "some of the backward passes in two halves": ("F0 F1 B0 F2 I1 F3 B2 W1 I3 W3".split(),),
        "one microbatch": (["F0", "B0"],),
        "no passes": ([],),
    },
    mistakes=(
        Mistake(
            lambda passes: sum(one[0] == "F" for one in passes),
            "it counts all microbatches, and some have gone backward before others come.",
            _LIST,
        ),
        Mistake(
            lambda passes: _held(passes, I=-1, W=0),
            "it lets go of a microbatch after I, and W still needs its activations.",
            _HALVES,
        ),
        Mistake(
            lambda passes: _held(passes, I=-1),
            "I and W both take a microbatch away: one microbatch is taken away twice.",
            "How often does one microbatch leave the list of those that are held?",
        ),
        Mistake(
            lambda passes: _held(passes, W=0),
            "a microbatch whose backward pass is in two halves is held for ever.",
            _HALVES,
        ),
        Mistake(
            lambda passes: sum(CHANGES[one[0]] for one in passes),
            "it counts what is held at the end, and the most at any time is asked for.",
            _PEAK,
        ),
        Mistake(
            _after_backward_passes,
            "it looks at the number after backward passes only, where one has just been taken away.",
            _PEAK,
        ),
        Mistake(
            _held_by_digit,
            "it reads one digit of the number: F1 and F11 count as one microbatch.",
            "What is the number of the microbatch in F11?",
        ),
        Mistake(
            _before_the_first_backward_pass,
            "it counts the forward passes before the first backward pass, and more may come later.",
            _PEAK,
        ),
        Mistake(
            _longest_row,
            "it is the longest row of forward passes, and what was there before the row is held, too.",
            _LIST,
        ),
        Mistake(
            lambda passes: max(_after_each(passes)),
            "a list without passes raises an error.",
            "How many microbatches does a rank hold that computes nothing? What does max() say of an empty list?",
        ),
        Mistake(len, "it counts the passes.", "A microbatch has two passes or three. How often is it held?"),
    ),
    think=_LIST,
)


LossOf = Callable[[torch.Tensor, int, int], torch.Tensor]  # of a microbatch's outputs, n and the number of microbatches


def _share(Y: torch.Tensor, n: int, m: int) -> torch.Tensor:
    return Y.square().sum() / (n * Y.shape[1])


def _backward(Y: torch.Tensor, grad: torch.Tensor, X: torch.Tensor, weight: torch.Tensor) -> Any:
    """Return the gradients of the weight and of the input of a stage, from that of its output."""
    before_tanh = grad * (1 - Y**2)
    return X.T @ before_tanh, before_tanh @ weight.T


def _grad_of(loss_of: LossOf, Y: torch.Tensor, n: int, m: int) -> torch.Tensor:
    Y = Y.clone().requires_grad_()
    (grad,) = torch.autograd.grad(loss_of(Y, n, m), Y)
    return grad


def _forward(weight: torch.Tensor, X: torch.Tensor | None, sizes: Sequence[int]) -> tuple[Any, list[torch.Tensor]]:
    """Compute the forward passes of this rank, and send what they give; return their inputs and outputs."""
    rank = dist.get_rank()
    inputs = [weight.new_empty(size, len(weight)) for size in sizes] if X is None else X.split(list(sizes))
    outputs = []
    for X_part in inputs:
        if rank > 0:
            dist.recv(X_part, rank - 1)
        outputs.append(torch.tanh(X_part @ weight))
        if rank < dist.get_world_size() - 1:
            dist.send(outputs[-1].detach(), rank + 1)
    return inputs, outputs


def _pipeline(
    loss_of: LossOf = _share,
    backward: Callable[..., Any] = _backward,
    received: Callable[[torch.Tensor], torch.Tensor] = lambda grad: grad,
    sends_back: bool = True,
    own_loss: bool = False,
    add: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = torch.add,
    counts: Callable[[int, int], bool] = lambda i, m: True,
    last_order: Callable[[list[int]], Any] = list,
    at_end: Callable[[torch.Tensor, int], Any] = lambda total, m: total,
) -> Callable[..., Any]:
    """Return an answer; by default the right one."""

    def pipeline_gradient(weight: torch.Tensor, X: torch.Tensor | None, sizes: Sequence[int]) -> Any:
        rank, last, m = dist.get_rank(), dist.get_world_size() - 1, len(sizes)
        inputs, outputs = _forward(weight, X, sizes)
        total = torch.zeros_like(weight)
        for i in last_order([*range(m)]) if rank == last else range(m):
            grad = torch.zeros_like(outputs[i])
            if rank == last or own_loss:
                grad = _grad_of(loss_of, outputs[i], sum(sizes), m)
            elif sends_back:
                dist.recv(grad, rank + 1)
                grad = received(grad)
            for_weight, for_X = backward(outputs[i], grad, inputs[i], weight)
            if counts(i, m):
                total = add(total, for_weight)
            if rank > 0 and sends_back and not own_loss:
                dist.send(for_X.contiguous(), rank - 1)
        return at_end(total, m)

    return pipeline_gradient


def _averaged_over_ranks(total: torch.Tensor, m: int) -> torch.Tensor:
    dist.all_reduce(total)
    return total / dist.get_world_size()


def _none_before_the_last(total: torch.Tensor, m: int) -> torch.Tensor | None:
    return total if dist.get_rank() == dist.get_world_size() - 1 else None


def _summed_over_ranks(total: torch.Tensor, m: int) -> torch.Tensor:
    dist.all_reduce(total)
    return total


def _without_requires_grad(weight: torch.Tensor, X: torch.Tensor | None, sizes: Sequence[int]) -> Any:
    weight.requires_grad_()
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    inputs, outputs = _forward(weight, X, sizes)
    for X_part, Y in zip(inputs, outputs, strict=True):
        if rank == last:
            _share(Y, sum(sizes), len(sizes)).backward()
        else:
            grad = torch.empty_like(Y)
            dist.recv(grad, rank + 1)
            Y.backward(grad)
        if rank > 0:
            dist.send(X_part.grad, rank - 1)
    return weight.grad


def _observe_gradient(answer: Callable[..., Any], sizes: Sequence[int], width: int, seed: int) -> Any:
    """Return the gradient that this rank returns, for a minibatch and weights of random numbers."""
    rank, k = dist.get_rank(), dist.get_world_size()
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(sum(sizes), width, dtype=torch.float64, generator=generator)
    weights = torch.randn(k, width, width, dtype=torch.float64, generator=generator) / width**0.5
    ranks = Lockstep()
    result = ranks.call(answer, weights[rank].clone(), X if rank == 0 else None, list(sizes))
    if result is not None and rank == 0 and ranks.num_sent < len(sizes):
        raise Unfit(
            f"rank 0 sends {ranks.num_sent} message{'s' * (ranks.num_sent != 1)} for {len(sizes)} microbatches.",
            "Send each microbatch as soon as it is computed. How long does rank 1 wait if all come in one message?",
        )
    return None if result is None else result.tolist()


_SHARE = (
    "With microbatches of 3, 3 and 1 examples, how much does one example add to the mean over the minibatch? Does it "
    "matter in which microbatch it is?"
)
_CHAIN = (
    "Write down for each rank what it receives, computes and sends for one microbatch, first forward, then backward. "
    "Of which tensor is each gradient that is sent, and which shape does it have?"
)
_BACK = "Only the last rank knows the loss. From whom does rank 1 learn how the loss depends on its outputs?"
GRADIENT = Exercise(
    name="15.2",
    title="The gradient of each stage of a pipeline",
    solution=_pipeline(),
    cases=lambda: {
        "one microbatch": ([4], 3, 0),
        "three equal microbatches": ([2, 2, 2], 3, 1),
        "microbatches of 3, 3 and 1 examples": ([3, 3, 1], 2, 2),
        "microbatches of one example": ([1, 1, 1, 1], 4, 3),
        "one number per example": ([2, 3], 1, 4),
    },
    mistakes=(
        Mistake(
            _pipeline(lambda Y, n, m: Y.square().mean() / m),
            "it is a mean over microbatches of their means, in which an example of a small microbatch counts more.",
            _SHARE,
        ),
        Mistake(
            _pipeline(lambda Y, n, m: Y.square().mean()),
            "the means of the microbatches are added up: with more microbatches the gradient becomes larger.",
            _SHARE,
        ),
        Mistake(
            _pipeline(lambda Y, n, m: Y.square().sum()),
            "the squares are added up, and not divided: their mean is asked for.",
            "By which number do you divide a sum to get the mean over n examples with w numbers each?",
        ),
        Mistake(
            _pipeline(lambda Y, n, m: Y.square().sum() / n),
            "the sum is divided by the examples, and each of them has w outputs.",
            "How many numbers does the last stage give for the whole minibatch?",
        ),
        Mistake(
            _pipeline(lambda Y, n, m: _share(Y, n, m) / m),
            "the gradient is divided by the number of microbatches as well.",
            _SHARE,
        ),
        Mistake(
            _pipeline(lambda Y, n, m: _share(Y, n, m) / 2),
            "it is half of the gradient, on every rank: the derivative of a square has a factor.",
            "What is the derivative of y * y?",
        ),
        Mistake(
            _pipeline(counts=lambda i, m: i < m - 1),
            "the last microbatch is missing in the sum.",
            "With one microbatch, what does your function add up?",
        ),
        Mistake(
            _pipeline(counts=lambda i, m: i == 0),
            "it is the gradient of the first microbatch alone.",
            "The loss is a sum over microbatches. What is the gradient of a sum?",
        ),
        Mistake(
            _pipeline(add=lambda total, new: new),
            "it is the gradient of the last microbatch alone: each one replaces the one before.",
            "The loss is a sum over microbatches. What is the gradient of a sum?",
        ),
        Mistake(
            _pipeline(sends_back=False),
            "ranks 0 and 1 return zeros: no gradient has come back to them.",
            _BACK,
        ),
        Mistake(
            _pipeline(sends_back=False, at_end=_none_before_the_last),
            "ranks 0 and 1 return None: no gradient has come back to them.",
            _BACK,
        ),
        Mistake(
            _pipeline(received=torch.ones_like),
            "ranks 0 and 1 compute the gradient of the sum of their outputs. The one that they received is not used.",
            "What does Y.backward(grad) compute, and what does Y.sum().backward()?",
        ),
        Mistake(
            _pipeline(own_loss=True),
            "each rank takes the squares of its own outputs as the loss.",
            _BACK,
        ),
        Mistake(
            _pipeline(backward=lambda Y, grad, X, weight: (_backward(Y, grad, X, weight)[0], grad)),
            "a rank sends the gradient of its output back, and the rank before waits for that of its input.",
            _CHAIN,
        ),
        Mistake(
            _pipeline(backward=lambda Y, grad, X, weight: (X.T @ grad, grad @ weight.T)),
            "the derivative of tanh is missing.",
            "The output is tanh of a product. The gradient first goes back through tanh, and then through the product.",
        ),
        Mistake(
            _pipeline(backward=lambda Y, grad, X, weight: _backward(X @ weight, grad, X, weight)),
            "the derivative of tanh is computed from its input, as if that were its output.",
            "The derivative of tanh is 1 - tanh². Which tensor of the forward pass is the tanh?",
        ),
        Mistake(
            _pipeline(backward=lambda Y, grad, X, weight: (X.T @ (grad * (1 - Y**2)), grad * (1 - Y**2) @ weight)),
            "the gradient of the input is multiplied by the weight, where its transpose is needed.",
            "Input i goes into output j with weight[i, j]. Through which weights does it depend on all outputs?",
        ),
        Mistake(
            _pipeline(at_end=lambda total, m: total.T),
            "the gradient is transposed.",
            "Column j of the weight makes output j. Which row and which column has the gradient of weight[i, j]?",
        ),
        Mistake(
            _pipeline(at_end=_summed_over_ranks),
            "the gradients of the three ranks are added up, and each rank has weights of its own.",
            "Which examples have gone through this rank's weight? Does any other rank have numbers for its gradient?",
        ),
        Mistake(
            _pipeline(at_end=_averaged_over_ranks),
            "the gradients of the three ranks are averaged, and each rank has weights of its own.",
            "Which examples have gone through this rank's weight? Does any other rank have numbers for its gradient?",
        ),
        Mistake(
            _pipeline(last_order=lambda numbers: numbers[::-1]),
            "the last rank goes backward in another order than the others: a gradient meets the wrong microbatch.",
            "Nothing in a message says which microbatch it belongs to. In which order does each rank expect them?",
        ),
        Mistake(
            _without_requires_grad,
            "there is no gradient to send back: what a rank has received does not require one.",
            "Autograd computes gradients of tensors with requires_grad. Which tensors have it on rank 1 after recv?",
        ),
        NEVER_ENDS,
    ),
    think=_CHAIN,
    observe=_observe_gradient,
    world_size=WORLD_SIZE,
)
