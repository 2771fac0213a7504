"""Exercise 6.4: several tensors that one collective sums."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from d2lite.exercises.exercise import Exercise, Mistake, Unfit
from d2lite.exercises.lockstep import LIMIT_S, NEVER_ENDS, WORLD_SIZE, Lockstep

__all__ = ["SENT_TOGETHER"]

Tensors = Sequence[torch.Tensor]


def _put_back(
    place: Callable[[int, int], int] = lambda i, begin: begin, divisor: float = 1, num_back: int | None = None
) -> Callable[[Tensors], None]:
    """Return an answer; tensor number i gets the sums from place(i, where its own begin), the first ones by default."""

    def answer(tensors: Tensors) -> None:
        together = torch.cat([tensor.flatten() for tensor in tensors])
        dist.all_reduce(together)
        begin = 0
        for i, tensor in enumerate(tensors[:num_back]):
            first = place(i, begin)
            tensor.copy_(together[first : first + tensor.numel()].view(tensor.shape) / divisor)
            begin += tensor.numel()

    return answer


def _observe(answer: Callable[..., Any], shapes: Sequence[Sequence[int]], is_transposed: bool = False) -> list[Any]:
    """Return the tensors afterwards; refuse another number of collectives than one."""
    tensors, begin = [], 0
    for shape in shapes:
        tensor = torch.arange(begin, begin + torch.Size(shape).numel(), dtype=torch.float64).view(list(shape))
        begin += tensor.numel()
        tensor = tensor * (1 + dist.get_rank()) + dist.get_rank()
        tensors.append(tensor.t().contiguous().t() if is_transposed else tensor)
    ranks = Lockstep()
    ranks.call(answer, list(tensors))
    if ranks.num_collectives != 1:
        raise Unfit(
            f"it calls {ranks.num_collectives} collectives, and one is asked for.",
            "A collective takes one tensor. How do several become one, and how do they get their sums back?",
        )
    return [tensor.tolist() for tensor in tensors]


_PLACES = "Write down where each tensor's numbers are in the large one: for tensors of 2, 3 and 1 numbers."
SENT_TOGETHER = Exercise(
    name="6.4",
    title="Many tensors, one all-reduce",
    solution=_put_back(),
    cases=lambda: {
        "tensors of 2, 3 and 1 numbers": ([[2], [3], [1]],),
        "matrices and a bias": ([[2, 2], [2], [1, 3]],),
        "one tensor": ([[3]],),
        "two tensors of one size": ([[2], [2]],),
        "a number, and an empty tensor": ([[], [0], [2]],),
        "transposed matrices, which are not contiguous": ([[2, 3], [3, 2]], True),
    },
    mistakes=(
        Mistake(
            _put_back(num_back=0),
            "the tensors are what they were before.",
            "The sums are in the large tensor. Does torch.cat share its memory with the small ones?",
        ),
        Mistake(
            _put_back(place=lambda i, begin: 0),
            "every tensor gets the sums of the first one.",
            _PLACES,
        ),
        Mistake(
            _put_back(place=lambda i, begin: i),
            "the places in the large tensor are counted in tensors, and not in numbers.",
            _PLACES,
        ),
        Mistake(_put_back(divisor=WORLD_SIZE), "it gives the average, and the sum is asked for.", _PLACES),
        Mistake(_put_back(num_back=1), "only the first tensor gets its sums.", "What does return do inside a loop?"),
        NEVER_ENDS,
    ),
    think=_PLACES,
    observe=_observe,
    world_size=WORLD_SIZE,
    limit_s=LIMIT_S,
)
