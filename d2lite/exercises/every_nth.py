"""Exercise 6.3: gradients that are sent after every n-th backward pass."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from d2lite.exercises.exercise import Exercise, Mistake, Unfit
from d2lite.exercises.lockstep import LIMIT_S, NEVER_ENDS, WORLD_SIZE, Lockstep

__all__ = ["EVERY_NTH"]

Params = Sequence[Any]  # tensors with gradients
Step = Callable[[], Any]
ROUNDS = 2


def _answer(
    sends: Callable[[int, int], bool] = lambda calls, n: calls % n == 0,
    divisor: Callable[[int], float] = lambda n: dist.get_world_size(),
    waits: bool = True,
    steps: bool = True,
    clears: bool = True,
) -> Callable[[torch.optim.Optimizer, Params, int], Step]:
    """Return an answer. It sends where sends(number of calls for the parameter, n), and divides by divisor(n)."""

    def every_nth(optimizer: torch.optim.Optimizer, params: Params, n: int) -> Step:
        calls, handles = Counter[Any](), dict[Any, Any]()

        def send(param: Any) -> None:
            calls[param] += 1
            if sends(calls[param], n):
                handles[param] = dist.all_reduce(param.grad, async_op=True)

        for param in params:
            param.register_post_accumulate_grad_hook(send)

        def step() -> None:
            for param, handle in handles.items():
                if waits:
                    handle.wait()
                param.grad /= divisor(n)
            if clears:
                handles.clear()
            if steps:
                optimizer.step()

        return step

    return every_nth


def _in_step(optimizer: torch.optim.Optimizer, params: Params, n: int) -> Step:
    def step() -> None:
        for param in params:
            dist.all_reduce(param.grad)
            param.grad /= dist.get_world_size()
        optimizer.step()

    return step


def _observe(answer: Callable[..., Any], sizes: Sequence[int], n: int) -> dict[str, Any]:
    """Return the parameters after two rounds of n backward passes and a step, and when collectives were called."""
    ranks = Lockstep()
    result: dict[str, Any] = ranks.call(_drive, answer, ranks, sizes, n)
    return result


def _drive(answer: Callable[..., Any], ranks: Lockstep, sizes: Sequence[int], n: int) -> dict[str, Any]:
    params = [torch.zeros(size, requires_grad=True) for size in sizes]
    optimizer = torch.optim.SGD(params, lr=1.0)
    step = answer(optimizer, list(params), n)
    if not callable(step):
        raise Unfit("it returns no function, and step() is asked for.", "A function may define another and return it.")
    sent, in_step = [], 0
    for _ in range(ROUNDS):
        optimizer.zero_grad()
        for i in range(n):
            before = ranks.num_collectives
            factor = (i + 1.0) * (1 + dist.get_rank()) / n
            sum((j + 1) * factor * param.sum() for j, param in enumerate(params)).backward()  # type: ignore[union-attr]
            sent.append(ranks.num_collectives - before)
        before = ranks.num_collectives
        step()
        in_step += ranks.num_collectives - before
    return {
        "sent in each backward pass": sent,
        "sent in step()": in_step,
        "parameters": [param.detach() for param in params],
    }


def _sent(observed: dict[str, Any]) -> Any:
    return observed["sent in each backward pass"], observed["sent in step()"]


_COUNTED = "Count the calls of the hook, for each parameter on its own: which of them sends, and which only adds?"
EVERY_NTH = Exercise(
    name="6.3",
    title="Send after every n-th backward pass",
    solution=_answer(),
    cases=lambda: {
        "two parameters, n = 2": ([1, 2], 2),
        "one parameter, n = 3": ([2], 3),
        "n = 1, the ordinary optimizer": ([1, 1], 1),
    },
    mistakes=(
        Mistake(
            _answer(sends=lambda calls, n: True),
            "it sends in every backward pass.",
            _COUNTED,
            part=_sent,
        ),
        Mistake(
            _answer(sends=lambda calls, n: calls % n == 1 or n == 1),
            "it sends in the first of the n backward passes, when the others are still to come.",
            _COUNTED,
            part=_sent,
        ),
        Mistake(
            _answer(sends=lambda calls, n: calls == n),
            "it sends in the first round of n backward passes only.",
            _COUNTED,
            part=_sent,
        ),
        Mistake(
            _in_step,
            "it sends in step(), when nothing is left to compute meanwhile; the hook of the n-th pass is to send.",
            "A hook runs during the backward pass. What can it begin there?",
            part=_sent,
        ),
        Mistake(
            _answer(divisor=lambda n: 1),
            "the gradients are summed over the ranks, and their average is asked for.",
            "How many ranks have added their gradient?",
        ),
        Mistake(
            _answer(divisor=lambda n: n * dist.get_world_size()),
            "the gradients are divided by n as well, which the loss has been already.",
            "Which of the two divisions has the caller done?",
        ),
        Mistake(
            _answer(waits=False),
            "step() does not wait until the sums have arrived.",
            "What does a collective with async_op=True return, and what has to be done with it?",
        ),
        Mistake(
            _answer(steps=False),
            "the parameters stay where they are: the optimizer takes no step.",
            "What does the caller expect of step(), besides the gradients?",
        ),
        NEVER_ENDS,
    ),
    think=_COUNTED,
    observe=_observe,
    world_size=WORLD_SIZE,
    limit_s=LIMIT_S,
)
