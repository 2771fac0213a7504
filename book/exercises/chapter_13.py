"""The exercises of chapter 13: ZeRO stage 1 with an owner for each parameter, and the norm of a sharded gradient."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from d2lite.exercises import NEVER_ENDS, WORLD_SIZE, Exercise, Lockstep, Mistake, Unfit

STEPS = 2
Tensors = Sequence[Any]  # with gradients; of the momenta, None where another rank is the owner


def _owner_step(
    owner: Callable[[int], int] = lambda i: i % dist.get_world_size(),
    reduces: bool = True,
    to_owner: bool = True,
    divisor: Callable[[], float] = lambda: 1.0,
    momentum: float = 0.9,
    keeps: bool = True,
    sign: float = 1.0,
    sends: bool = True,
    sends_early: bool = False,
    source: Callable[[int], int] | None = None,
    new_of: Callable[[Any, Any, float], Any] | None = None,
    update_of: Callable[[Any, Any, Any, float], Any] = lambda new, momentum, gradient, lr: lr * new,
    last: int | None = None,
) -> Callable[[Tensors, Tensors, float], None]:
    """Return an answer; by default the right one."""

    def step(params: Tensors, momenta: Tensors, lr: float) -> None:
        for i, param in enumerate(params[:last]):
            if reduces:
                dist.reduce(param.grad, dst=owner(i) if to_owner else 0)
            if sends_early:
                dist.broadcast(param.data, src=owner(i))
            if dist.get_rank() == owner(i):
                old, gradient = momenta[i].clone(), param.grad / divisor()
                new = old * momentum + gradient if new_of is None else new_of(old, gradient, lr)
                if keeps:
                    momenta[i].copy_(new)
                param.data.sub_(sign * update_of(new, old, gradient, lr))
            if sends and not sends_early:
                dist.broadcast(param.data, src=(source or owner)(i))

    return step


def _observe_step(answer: Callable[..., Any], sizes: Sequence[int], lr: float) -> dict[str, Any]:
    """Return this rank's parameters and momenta after two steps."""
    rank, ranks = dist.get_rank(), Lockstep()
    params = [torch.linspace(-1, 1, n, dtype=torch.float64).add(i).requires_grad_() for i, n in enumerate(sizes)]
    momenta = [
        torch.zeros(n, dtype=torch.float64) if i % dist.get_world_size() == rank else None for i, n in enumerate(sizes)
    ]
    for step in range(STEPS):
        for i, param in enumerate(params):
            param.grad = torch.arange(1.0, 1 + len(param), dtype=torch.float64) * (rank + 1) ** 2 / (i + step + 2)
        ranks.call(answer, params, momenta, lr)
    if any(momentum is None for i, momentum in enumerate(momenta) if i % dist.get_world_size() == rank):
        raise Unfit("it takes the momentum of an owner away.", "The list momenta is read, and its tensors are changed.")
    return {
        "the parameters after two steps": [param.tolist() for param in params],
        "the momenta of this rank": [None if momentum is None else momentum.tolist() for momentum in momenta],
    }


_TRACE = (
    "Follow one parameter: whose gradients are needed, on which rank is its momentum, and which ranks need its new "
    "values?"
)
OWNERS = Exercise(
    name="13.1",
    title="ZeRO stage 1, with an owner for each parameter",
    solution=_owner_step(),
    cases=lambda: {
        "three parameters on three ranks": ([4, 2, 3], 0.1),
        "seven parameters, the ranks own 3, 2 and 2": ([1, 5, 2, 3, 1, 4, 2], 0.05),
        "one parameter, two ranks own nothing": ([6], 0.1),
        "a larger learning rate": ([2, 2, 2, 2], 0.5),
    },
    mistakes=(
        Mistake(
            _owner_step(reduces=False),
            "an owner updates with the gradient of its own shard alone, or before the gradients are added up.",
            "Each rank has the gradient of its examples. Which collective adds them up where they are needed?",
        ),
        Mistake(
            _owner_step(sends=False),
            "the other ranks keep the old values of a parameter.",
            "What do the ranks that do not own a parameter compute with in the next forward pass?",
        ),
        Mistake(
            _owner_step(to_owner=False),
            "all gradients are added up on rank 0, and other ranks own parameters, too.",
            "dist.reduce has the argument dst. Who needs the sum of parameter i?",
        ),
        Mistake(
            _owner_step(divisor=dist.get_world_size),
            "the gradient is divided by the number of ranks, and the ranks' gradients are shares of one mean already.",
            "The loss of a rank was divided by the size of the global minibatch. Do its gradients add up, or average?",
        ),
        Mistake(
            _owner_step(momentum=0.0),
            "the update is the gradient alone, without the momentum.",
            "Compare with momentum_step: what becomes of the momentum of the step before?",
        ),
        Mistake(
            _owner_step(keeps=False),
            "the momentum is computed and then forgotten: in the next step it is zero again.",
            "Which operations change a tensor in place, and which make a new one?",
        ),
        Mistake(
            _owner_step(sign=-1.0),
            "the parameters move along the gradient, and the loss grows.",
            "In which direction does a step of gradient descent go?",
        ),
        Mistake(
            _owner_step(sends_early=True),
            "a parameter is sent before its owner has changed it: the other ranks are one step behind.",
            "Write the three things that happen to a parameter in the order of your code. Which values are sent?",
        ),
        Mistake(
            _owner_step(source=lambda i: 0),
            "all parameters are sent by rank 0, which has old values of those that others own.",
            "dist.broadcast has the argument src. Which rank has the new values of parameter i?",
        ),
        Mistake(
            _owner_step(update_of=lambda new, old, gradient, lr: lr * (gradient + 0.9 * new)),
            "the update looks one step ahead, as Nesterov's momentum does, and momentum_step does not.",
            "Compare with momentum_step: by what is param changed there?",
        ),
        Mistake(
            _owner_step(
                new_of=lambda old, gradient, lr: 0.9 * old + lr * gradient,
                update_of=lambda new, old, gradient, lr: new,
            ),
            "the learning rate is inside of the momentum. The parameters are right, and the momenta are not.",
            "Compare with momentum_step: what is added to the momentum, and when does lr come in?",
        ),
        Mistake(
            _owner_step(new_of=lambda old, gradient, lr: 0.9 * old + 0.1 * gradient),
            "the momentum is a mean in which the new gradient counts a tenth.",
            "Compare with momentum_step: by which number is the gradient multiplied before it is added?",
        ),
        Mistake(
            _owner_step(update_of=lambda new, old, gradient, lr: lr * old),
            "the parameters move by the momentum of the step before.",
            "Which of the two lines of momentum_step comes first?",
        ),
        Mistake(
            _owner_step(last=-1),
            "the last parameter stays as it is.",
            "Which numbers does your loop count? With one parameter, how often does it run?",
        ),
        Mistake(lambda params, momenta, lr: None, "nothing changes.", _TRACE),
        NEVER_ENDS,
    ),
    think=_TRACE,
    observe=_observe_step,
    world_size=WORLD_SIZE,
)


def _clip(
    local: Callable[[Tensors], torch.Tensor] = lambda parts: torch.stack([part.square().sum() for part in parts]).sum(),
    over_ranks: Callable[[torch.Tensor], None] | None = dist.all_reduce,
    end: Callable[[torch.Tensor], torch.Tensor] = torch.sqrt,
    factor: Callable[[float, float], float] = lambda norm, most: min(1.0, most / norm),
    returned: Callable[[float, float], Any] = lambda norm, most: norm,
    scales: bool = True,
) -> Callable[[Tensors, float], Any]:
    """Return an answer; by default the right one."""

    def clip(parts: Tensors, max_norm: float) -> Any:
        total = local(parts).clone()
        if over_ranks is not None:
            over_ranks(total)
        norm = end(total).item()
        if scales:
            for part in parts:
                part.mul_(factor(norm, max_norm) if norm else 1.0)
        return returned(norm, max_norm)

    return clip


def _largest(total: torch.Tensor) -> None:
    dist.all_reduce(total, op=dist.ReduceOp.MAX)


def _averaged(total: torch.Tensor) -> None:
    dist.all_reduce(total)
    total.div_(dist.get_world_size())


def _norms(parts: Tensors) -> torch.Tensor:
    return torch.stack([part.square().sum() for part in parts]).sum().sqrt()


def _sum_of_norms(parts: Tensors) -> torch.Tensor:
    return torch.stack([part.norm() for part in parts]).sum().square()


def _sum_of_sizes(parts: Tensors) -> torch.Tensor:
    return torch.stack([part.abs().sum() for part in parts]).sum()


def _same(total: torch.Tensor) -> torch.Tensor:
    return total


def _clip_each(change: Callable[[torch.Tensor, float], Any]) -> Callable[[Tensors, float], Any]:
    """Return an answer that returns the right norm, and changes each part by itself."""

    def clip(parts: Tensors, max_norm: float) -> Any:
        norm = _clip(scales=False)(parts, max_norm)
        for part in parts:
            change(part, max_norm)
        return norm

    return clip


def _to_its_own_norm(part: torch.Tensor, most: float) -> None:
    part.mul_(min(1.0, most / (part.norm().item() or 1.0)))


def _observe_clip(answer: Callable[..., Any], parts: Sequence[Sequence[Sequence[float]]], most: float) -> Any:
    """Return the norm that this rank is given, and its parts afterwards."""
    mine = [torch.tensor(part, dtype=torch.float64) for part in parts[dist.get_rank()]]
    norm = Lockstep().call(answer, list(mine), most)  # a new tensor in the list changes no gradient
    if norm is None:
        return None
    if isinstance(norm, torch.Tensor) and norm.numel() == 1:
        norm = norm.item()
    return {"the norm that is returned": norm, "the parts of this rank afterwards": [part.tolist() for part in mine]}


_SQUARES = (
    "The norm is the root of a sum of squares over all numbers of the gradient. Rank 0 has [3, 0], rank 1 has [4, 0]: "
    "which number do they have to send, so that 5 comes out?"
)
CLIP = Exercise(
    name="13.2",
    title="Clip a gradient that is sharded",
    solution=_clip(),
    cases=lambda: {
        "a norm of 13, at most 6.5": ([[[3.0, 0.0], [0.0]], [[4.0, 0.0], [0.0]], [[0.0, 12.0], [0.0]]], 6.5),
        "a norm of 13, at most 20": ([[[3.0, 0.0], [0.0]], [[4.0, 0.0], [0.0]], [[0.0, 12.0], [0.0]]], 20.0),
        "several parts on each rank": (
            [[[1.0, -2.0], [2.0, 4.0]], [[0.5, 1.0], [3.0, 0.0]], [[2.0, 2.0], [1.0, 0.0]]],
            1.0,
        ),
        "only rank 2 has a large part": ([[[0.1], [0.1]], [[0.2], [0.1]], [[9.0], [2.0]]], 3.0),
        "each rank is below the limit, all together are above": ([[[0.8], [0.1]], [[0.7], [0.2]], [[0.9], [0.0]]], 1.0),
        "parts that are padding alone": ([[[3.0, 4.0], [1.0]], [[0.0, 0.0], [0.0]], [[0.0, 0.0], [0.0]]], 1.0),
    },
    mistakes=(
        Mistake(
            _clip(over_ranks=None),
            "each rank takes the norm of its own parts: the ranks scale by different factors.",
            _SQUARES,
        ),
        Mistake(
            _clip(local=_norms, end=_same),
            "the norms of the ranks are added, and norms do not add: for 3 and 4 that gives 7.",
            _SQUARES,
        ),
        Mistake(
            _clip(local=_sum_of_norms),
            "the norms of the parts are added, and norms do not add.",
            _SQUARES,
        ),
        Mistake(
            _clip(over_ranks=_averaged),
            "the squares are averaged over the ranks: the norm is too small by the root of their number.",
            "Is the gradient of all parameters longer if it lies on three ranks than if it lies on one?",
        ),
        Mistake(
            _clip(over_ranks=_largest),
            "it is the largest norm of a rank, and not that of all parts together.",
            _SQUARES,
        ),
        Mistake(
            _clip(end=_same),
            "the root is missing: it is the square of the norm.",
            "Which case has the norm 13? What did your function return there?",
        ),
        Mistake(
            _clip(factor=lambda norm, most: most / norm),
            "a gradient that is short enough is made longer.",
            "Clipping only shortens. What is to happen with a norm of 13, if 20 is allowed?",
        ),
        Mistake(
            _clip(scales=False),
            "the norm is right, and the parts are not scaled.",
            "The parts are to be changed in place: part.mul_(...) does it, and part * ... makes a new tensor.",
        ),
        Mistake(
            _clip(returned=lambda norm, most: min(norm, most)),
            "it returns the norm after the clipping, and the norm before it is asked for.",
            "A learner's log shows how large gradients were. Which of the two norms says that?",
        ),
        Mistake(
            _clip(factor=lambda norm, most: 1 / norm if norm > most else 1.0),
            "the parts are scaled to the norm 1, whatever the limit is.",
            "By which factor must a norm of 13 shrink, so that 6.5 remain?",
        ),
        Mistake(
            _clip(local=_norms, over_ranks=_averaged, end=_same),
            "it is the mean of the ranks' norms: three equal parts would have the norm of one of them.",
            _SQUARES,
        ),
        Mistake(
            _clip(local=_sum_of_sizes, end=_same),
            "the sizes of the numbers are added up, and the norm is a root of a sum of squares.",
            _SQUARES,
        ),
        Mistake(
            _clip(factor=lambda norm, most: min(1.0, most / norm**2)),
            "the norm is right, and the parts are divided by its square.",
            "By which factor must a norm of 13 shrink, so that 6.5 remain?",
        ),
        Mistake(
            _clip(factor=lambda norm, most: max(1.0, most / norm)),
            "a short gradient is made longer, and a long one is left as it is.",
            "Clipping only shortens. Which of two factors do you want, the smaller one or the larger one?",
        ),
        Mistake(
            _clip_each(_to_its_own_norm),
            "the norm is right, and each part is clipped by its own norm: the direction of the gradient changes.",
            "By how many different factors is one gradient multiplied in your function?",
        ),
        Mistake(
            _clip_each(lambda part, most: part.clamp_(-most, most)),
            "each number is clipped for itself, and the length of the gradient is to be limited.",
            "A gradient of (3, 4) may have the norm 5. What is left of it, if 4 is allowed?",
        ),
        NEVER_ENDS,
    ),
    think=_SQUARES,
    observe=_observe_clip,
    world_size=WORLD_SIZE,
)
