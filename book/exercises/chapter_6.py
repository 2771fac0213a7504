"""The exercises of chapter 6: a loss for uneven shards, an optimizer's state from the root, gradients sent together."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F

from d2lite.exercises import NEVER_ENDS, WORLD_SIZE, Exercise, Lockstep, Mistake, Unfit, errors_named


def _shard_loss(logits: torch.Tensor, y_shard: torch.Tensor, batch_size: int, size: int) -> torch.Tensor:
    return F.cross_entropy(logits, y_shard, reduction="sum") / batch_size * size


def _observe_loss(answer: Callable[..., Any], batch_size: int) -> dict[str, float] | None:
    """Return the mean of the ranks' losses, and the length of the gradient of this rank's logits."""
    rank, ranks = dist.get_rank(), Lockstep()
    logits = torch.linspace(-1, 1, 4 * batch_size, dtype=torch.float64).mul(20).sin().view(batch_size, 4)
    mine = logits.tensor_split(WORLD_SIZE)[rank].clone().requires_grad_()
    y = (torch.arange(batch_size) % 4).tensor_split(WORLD_SIZE)[rank]
    loss = ranks.call(answer, mine, y, batch_size, WORLD_SIZE)
    if ranks.num_collectives:
        raise Unfit(
            "the loss of a shard calls a collective.",
            "The average over the ranks comes later, and the backward pass needs this rank's own loss.",
        )
    is_number = isinstance(loss, torch.Tensor) and loss.numel() == 1
    total = loss.detach().double().clone().view(()) if is_number else torch.tensor(0.0, dtype=torch.float64)
    dist.all_reduce(total)
    if loss is None:
        return None
    if not is_number or not loss.requires_grad:
        raise Unfit(
            "no gradient can be computed from the result: backward() needs a tensor of one number with its graph.",
            "backward() follows the operations back. Which operation ends that, or gives several numbers?",
        )
    loss.backward()
    if mine.grad is None and len(y):
        raise Unfit(
            "no gradient reaches the logits.",
            "backward() follows the operations back. Which operation makes a new tensor, without its past?",
        )
    return {
        "average of the losses": total.item() / WORLD_SIZE,
        "length of this rank's gradient": 0.0 if mine.grad is None else mine.grad.norm().item(),
    }


_FACTOR = "Write down what the average over the ranks does to the losses, for shards of 3 examples and of 1."
LOSS = Exercise(
    name="6.1",
    title="A loss for uneven shards",
    solution=_shard_loss,
    cases=lambda: {
        "50 examples, shards of 17, 17 and 16": (50,),
        "6 examples, shards of 2": (6,),
        "4 examples, shards of 2, 1 and 1": (4,),
        "2 examples, an empty shard on rank 2": (2,),
    },
    mistakes=(
        Mistake(
            lambda logits, y, batch_size, size: F.cross_entropy(logits, y),
            "it is the mean over the shard: an example of a short shard counts more than one of a long shard.",
            _FACTOR,
        ),
        Mistake(
            lambda logits, y, batch_size, size: _shard_loss(logits, y, batch_size, 1),
            "it is too small: the average over the ranks divides once more.",
            _FACTOR,
        ),
        Mistake(
            lambda logits, y, batch_size, size: _shard_loss(logits, y, 1, 1),
            "it is the sum over the shard, and a sum grows with the minibatch.",
            _FACTOR,
        ),
        Mistake(
            lambda logits, y, batch_size, size: _shard_loss(logits, y, batch_size, 1) / size,
            "it is divided by the number of ranks, and the average divides once more.",
            _FACTOR,
        ),
        Mistake(
            lambda logits, y, batch_size, size: _shard_loss(logits, y, batch_size, 2),
            "it is right for two ranks only, and this check runs on three.",
            "The number of ranks is one of the arguments.",
        ),
        Mistake(
            lambda logits, y, batch_size, size: _shard_loss(logits, y, 1, size),
            "the sum is multiplied by the number of ranks and divided by nothing.",
            _FACTOR,
        ),
        Mistake(
            lambda logits, y, batch_size, size: F.cross_entropy(logits, y) * len(y) / batch_size * size,
            "it is not a number where a shard is empty.",
            "What is the mean of no numbers, and what is their sum?",
        ),
        Mistake(
            lambda logits, y, batch_size, size: F.cross_entropy(logits, y) * len(y) / batch_size,
            "it is too small, and not a number where a shard is empty.",
            "What does the average over the ranks divide by? What is the mean of no numbers?",
        ),
        Mistake(
            lambda logits, y, batch_size, size: F.cross_entropy(logits, y) * size,
            "the mean over the shard is multiplied by the number of ranks.",
            _FACTOR,
        ),
        NEVER_ENDS,
    ),
    think=_FACTOR,
    observe=_observe_loss,
    world_size=WORLD_SIZE,
)


def _broadcast_state(optimizer: torch.optim.Optimizer, root_rank: int = 0) -> None:
    for _, state in _tensors_of(optimizer):
        dist.broadcast(state, src=root_rank)


def _tensors_of(optimizer: torch.optim.Optimizer) -> list[tuple[str, torch.Tensor]]:
    """Return (name, tensor) of the state, in the order that is the same on all ranks."""
    return [
        (name, value)
        for group in optimizer.param_groups
        for param in group["params"]
        for name, value in sorted(optimizer.state[param].items())
        if isinstance(value, torch.Tensor)
    ]


def _optimizer(kind: str, sizes: Sequence[int]) -> torch.optim.Optimizer:
    """Return an optimizer after one step, whose state differs from rank to rank; the last group has one parameter."""
    params = [torch.full((n,), 1.0 + dist.get_rank(), requires_grad=True) for n in sizes]
    groups = [{"params": params[:-1]}, {"params": params[-1:]}] if len(params) > 2 else [{"params": params}]
    optimizer: torch.optim.Optimizer
    if kind == "Adam":
        optimizer = torch.optim.Adam(groups, lr=0.1)
    else:
        optimizer = torch.optim.SGD(groups, lr=0.1, momentum=0.9 if kind == "momentum" else 0.0)
    for _ in range(1 + dist.get_rank()):  # Adam counts its steps
        for i, param in enumerate(params):
            param.grad = torch.full_like(param, 10.0 * dist.get_rank() + i + 1)
        optimizer.step()
    return optimizer


def _observe_state(answer: Callable[..., Any], kind: str, sizes: Sequence[int], root_rank: int | None) -> list[Any]:
    """Return the state afterwards; refuse changed parameters, and tensors that are other ones."""
    optimizer = _optimizer(kind, sizes)
    before = _tensors_of(optimizer)
    weights = [param.detach().clone() for group in optimizer.param_groups for param in group["params"]]
    Lockstep().call(answer, optimizer, *([] if root_rank is None else [root_rank]))
    now = [param.detach() for group in optimizer.param_groups for param in group["params"]]
    if any((a != b).any() for a, b in zip(weights, now, strict=True)):
        raise Unfit(
            "it changes the parameters, and the optimizer's state is asked for.",
            "The parameters are the keys of optimizer.state. Where is the momentum?",
        )
    after = _tensors_of(optimizer)
    if len(after) != len(before) or any(a is not b for (_, a), (_, b) in zip(before, after, strict=True)):
        raise Unfit(
            "the state has other tensors now, and the values are asked for in place.",
            "Which tensor does dist.broadcast write into?",
        )
    return [tensor.tolist() for _, tensor in after]


def _named_momentum(optimizer: torch.optim.Optimizer, root_rank: int = 0) -> None:
    for name, value in _tensors_of(optimizer):
        if name == "momentum_buffer":
            dist.broadcast(value, src=root_rank)


def _momentum_by_key(optimizer: torch.optim.Optimizer, root_rank: int = 0) -> None:
    for group in optimizer.param_groups:
        for param in group["params"]:
            dist.broadcast(optimizer.state[param]["momentum_buffer"], src=root_rank)


def _averaged(optimizer: torch.optim.Optimizer, root_rank: int = 0) -> None:
    for _, value in _tensors_of(optimizer):
        dist.all_reduce(value)
        value /= dist.get_world_size()


def _summed(optimizer: torch.optim.Optimizer, root_rank: int = 0) -> None:
    for _, value in _tensors_of(optimizer):
        dist.all_reduce(value)


def _copies(optimizer: torch.optim.Optimizer, root_rank: int = 0) -> None:
    for _, value in _tensors_of(optimizer):
        dist.broadcast(value.clone(), src=root_rank)


def _first_group(optimizer: torch.optim.Optimizer, root_rank: int = 0) -> None:
    for param in optimizer.param_groups[0]["params"]:
        for _, value in sorted(optimizer.state[param].items()):
            if isinstance(value, torch.Tensor):
                dist.broadcast(value, src=root_rank)


def _first_parameter(optimizer: torch.optim.Optimizer, root_rank: int = 0) -> None:
    first = optimizer.state[optimizer.param_groups[0]["params"][0]]
    for _, value in sorted(first.items()):
        if isinstance(value, torch.Tensor):
            dist.broadcast(value, src=root_rank)


_WHICH = "Print optimizer.state and optimizer.param_groups on each rank, before and after."
STATE = Exercise(
    name="6.2",
    title="The optimizer's state from the root",
    solution=_broadcast_state,
    cases=lambda: {
        "momentum, the root by default": ("momentum", [2, 1], None),
        "momentum, root 2": ("momentum", [1, 2], 2),
        "two groups of parameters, root 1": ("momentum", [1, 2, 1], 1),
        "Adam, root 0": ("Adam", [2, 1], 0),
        "SGD without momentum, which has no state": ("plain", [2], 0),
    },
    mistakes=(
        Mistake(
            lambda optimizer, root_rank=0: _broadcast_state(optimizer),
            "the state comes from rank 0 where another rank is the root.",
            "Which argument has not been used?",
        ),
        Mistake(_averaged, "the state is averaged over the ranks, and the root's is asked for.", _WHICH),
        Mistake(_summed, "the state is summed over the ranks, and the root's is asked for.", _WHICH),
        Mistake(
            _named_momentum,
            "only momentum_buffer is sent: other optimizers have other tensors in their state.",
            "The state of a parameter is a dictionary: what does it have for Adam?",
        ),
        Mistake(
            _momentum_by_key,
            "it asks for the momentum_buffer of each parameter: not every optimizer has one.",
            "The state of a parameter is a dictionary: what does it have for Adam, and for SGD without momentum?",
        ),
        Mistake(_first_group, "only the first group of parameters is sent.", "How long is optimizer.param_groups?"),
        Mistake(
            _first_parameter,
            "only the first parameter's state is sent.",
            "How often do your loops run? (A return inside of a loop ends it.)",
        ),
        Mistake(
            _copies,
            "the state is what it was before.",
            "Into which tensor does the collective write, and is it the one in the state?",
        ),
        NEVER_ENDS,
    ),
    think=_WHICH,
    observe=_observe_state,
    world_size=WORLD_SIZE,
)

Params = Sequence[Any]  # tensors with gradients
Step = Callable[[], Any]
ROUNDS = 2


def _every_nth(
    sends: Callable[[int, int], bool] = lambda calls, n: calls % n == 0,
    divisor: Callable[[int], float] = lambda n: dist.get_world_size(),
    waits: bool = True,
    steps: bool = True,
    tensor: str = "grad",
    counts_each: bool = True,
) -> Callable[[torch.optim.Optimizer, Params, int], Step]:
    """Return an answer. It sends where sends(number of calls for the parameter, n), and divides by divisor(n)."""

    def every_nth(optimizer: torch.optim.Optimizer, params: Params, n: int) -> Step:
        calls, handles = Counter[Any](), dict[Any, Any]()

        def send(param: Any) -> None:
            counted = param if counts_each else None
            calls[counted] += 1
            if sends(calls[counted], n):
                handles[param] = dist.all_reduce(getattr(param, tensor), async_op=True)

        for param in params:
            param.register_post_accumulate_grad_hook(send)

        def step() -> None:
            for param, handle in handles.items():
                if waits:
                    handle.wait()
                average = getattr(param, tensor)
                average /= divisor(n)
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


def _observe_every_nth(answer: Callable[..., Any], sizes: Sequence[int], n: int) -> dict[str, Any]:
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
            with errors_named("a hook"):
                torch.stack([(j + 1) * factor * param.sum() for j, param in enumerate(params)]).sum().backward()
            sent.append(ranks.num_collectives - before)
        before = ranks.num_collectives
        with errors_named("step()"):
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
    solution=_every_nth(),
    cases=lambda: {
        "two parameters, n = 2": ([1, 2], 2),
        "one parameter, n = 3": ([2], 3),
        "n = 1, the ordinary optimizer": ([1, 1], 1),
    },
    mistakes=(
        Mistake(
            _every_nth(sends=lambda calls, n: True),
            "it sends in every backward pass.",
            _COUNTED,
            part=_sent,
        ),
        Mistake(
            _every_nth(sends=lambda calls, n: calls % n == 1 or n == 1),
            "it sends in the first of the n backward passes, when the others are still to come.",
            _COUNTED,
            part=_sent,
        ),
        Mistake(
            _every_nth(counts_each=False),
            "one counter counts the calls for all parameters together, and a backward pass has one call for each.",
            "Write down the calls of the hook for two parameters and n = 2, and the counter after each.",
            part=_sent,
        ),
        Mistake(
            _every_nth(sends=lambda calls, n: calls >= n),
            "from the n-th backward pass on it sends in every one.",
            _COUNTED,
            part=_sent,
        ),
        Mistake(
            _every_nth(sends=lambda calls, n: calls == n),
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
            _every_nth(divisor=lambda n: 1),
            "the gradients are summed over the ranks, and their average is asked for.",
            "How many ranks have added their gradient?",
        ),
        Mistake(
            _every_nth(divisor=lambda n: n * dist.get_world_size()),
            "the gradients are divided by n as well, which the loss has been already.",
            "Which of the two divisions has the caller done?",
        ),
        Mistake(
            _every_nth(divisor=lambda n: n),
            "the sums over the ranks are divided by n, which the loss has been already, and not by their number.",
            "Which of the two divisions has the caller done?",
        ),
        Mistake(
            _every_nth(tensor="data"),
            "it averages the parameters, and their gradients are to be averaged.",
            "The argument of a hook is the parameter. In which of its attributes is the gradient?",
        ),
        Mistake(
            _every_nth(waits=False),
            "step() does not wait until the sums have arrived.",
            "What does a collective with async_op=True return, and what has to be done with it?",
        ),
        Mistake(
            _every_nth(steps=False),
            "the parameters stay where they are: the optimizer takes no step.",
            "What does the caller expect of step(), besides the gradients?",
        ),
        NEVER_ENDS,
    ),
    think=_COUNTED,
    observe=_observe_every_nth,
    world_size=WORLD_SIZE,
)

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


def _viewed(tensors: Tensors) -> None:
    together = torch.cat([tensor.view(-1) for tensor in tensors])
    dist.all_reduce(together)
    for tensor, part in zip(tensors, together.split([tensor.numel() for tensor in tensors]), strict=True):
        tensor.view(-1).copy_(part)


def _into_copies(tensors: Tensors) -> None:
    together = torch.cat([tensor.flatten() for tensor in tensors])
    dist.all_reduce(together)
    for tensor, part in zip(tensors, together.split([tensor.numel() for tensor in tensors]), strict=True):
        tensor.reshape(-1).copy_(part)


def _observe_together(
    answer: Callable[..., Any], shapes: Sequence[Sequence[int]], is_transposed: bool = False
) -> list[Any]:
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
        Mistake(
            _put_back(num_back=1),
            "only the first tensor gets its sums.",
            "How often does the loop run that writes into the tensors? (A return inside of it ends it.)",
        ),
        Mistake(
            _viewed,
            "it fails for a transposed tensor, whose numbers are not one after the other in memory.",
            "Is every tensor contiguous? Compare what view, reshape and flatten do with one that is not.",
        ),
        Mistake(
            _into_copies,
            "a transposed tensor is what it was before: its sums go into a copy.",
            "When does reshape return a view, and when a copy? Which shape has the tensor that you write into?",
        ),
        NEVER_ENDS,
    ),
    think=_PLACES,
    observe=_observe_together,
    world_size=WORLD_SIZE,
)
