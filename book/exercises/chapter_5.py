"""The exercises of chapter 5: means and gradients over ranks, seeds per rank, pieces of a minibatch."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from d2lite.exercises import NEVER_ENDS, WORLD_SIZE, Exercise, Lockstep, Mistake, Unfit

Params = Sequence[Any]  # tensors with gradients


def _summed(*numbers: float) -> list[float]:
    total = torch.tensor(numbers, dtype=torch.float64)
    dist.all_reduce(total)
    return total.tolist()


def _weighted_mean(my_mean: float, my_count: int) -> float:
    total, count = _summed(my_mean * my_count, my_count)
    return total / count


def _observe_mean(answer: Callable[..., Any], means: Sequence[float], counts: Sequence[int]) -> Any:
    """Return the mean that this rank is given; refuse more or fewer collectives than one."""
    rank, ranks = dist.get_rank(), Lockstep()
    mean = ranks.call(answer, means[rank], counts[rank])
    if ranks.num_collectives > 1:
        raise Unfit(
            f"it calls {ranks.num_collectives} collectives, and one is asked for.",
            "Each collective has its own latency. What has one tensor room for?",
        )
    if not ranks.num_collectives:
        raise Unfit(
            "it calls no collective of all ranks, and one is asked for.",
            "What has a rank that only the others need, and how does it get there?",
        )
    return mean.item() if isinstance(mean, torch.Tensor) and mean.numel() == 1 else mean


def _only_on_rank_0(my_mean: float, my_count: int) -> float | None:
    mean = _weighted_mean(my_mean, my_count)
    return mean if dist.get_rank() == 0 else None


def _reduced_to_rank_0(my_mean: float, my_count: int) -> float:
    total = torch.tensor([my_mean * my_count, my_count], dtype=torch.float64)
    dist.reduce(total, dst=0)
    return (total[0] / total[1]).item()


_SAME = "The result is asked for on every rank. Which collectives give all ranks a result, and which give it to one?"
MEAN = Exercise(
    name="5.1",
    title="A mean over all ranks, with one collective",
    solution=_weighted_mean,
    cases=lambda: {
        "30, 10 and 20 examples": ([1.0, 4.0, 2.5], [30, 10, 20]),
        "as many examples on each rank": ([1.0, 2.0, 6.0], [5, 5, 5]),
        "no example on rank 1": ([0.5, 0.0, -1.0], [8, 0, 24]),
        "one example on rank 0": ([3.0, -7.0, 0.25], [1, 100, 1000]),
        "a million examples": ([0.125, 0.5, 2.0], [1_000_000, 3_000_000, 7]),
    },
    mistakes=(
        Mistake(
            lambda mean, count: _summed(mean)[0] / dist.get_world_size(),
            "it is the mean of the ranks' means: a rank with one example counts as much as one with a thousand.",
            "A mean cannot be added to another mean. Which two numbers of a rank can be added?",
        ),
        Mistake(
            lambda mean, count: _summed(mean * count)[0],
            "it is the sum over all examples, not yet their mean.",
            "How many examples are there on all ranks together, and does a rank have that number?",
        ),
        Mistake(
            lambda mean, count: _summed(mean * count)[0] / dist.get_world_size(),
            "the sum over all examples is divided by the number of ranks.",
            "A mean over examples is divided by the number of examples.",
        ),
        Mistake(
            lambda mean, count: _summed(mean * count)[0] / count if count else 0.0,
            "the sum over all ranks is divided by this rank's own count.",
            "The sum and the count must be of the same examples.",
        ),
        Mistake(_only_on_rank_0, "only rank 0 has the result.", _SAME),
        Mistake(_reduced_to_rank_0, "only rank 0 has the result.", _SAME),
        Mistake(
            lambda mean, count: _summed(mean * count, count) and None,
            "it returns nothing.",
            "A collective writes into its tensor and returns nothing, and so does a function without return.",
        ),
        NEVER_ENDS,
    ),
    think="Write down what rank 0 has before the collective and after it: means of 1 and 4, counts of 30 and 10.",
    observe=_observe_mean,
    world_size=WORLD_SIZE,
)


def _average_gradients(params: Params) -> None:
    for param in params:
        dist.all_reduce(param.grad)
        param.grad /= dist.get_world_size()


def _observe_gradients(answer: Callable[..., Any], *shapes: Sequence[int]) -> list[Any]:
    """Return the gradients afterwards; refuse changed parameters and gradients that are other tensors."""
    rank, params = dist.get_rank(), []
    for shape in shapes:
        params.append(torch.full(list(shape), 1.0 + rank, requires_grad=True))
        params[-1].grad = torch.arange(params[-1].numel(), dtype=torch.float32).view(list(shape)) + 3 * rank**2
    gradients = [param.grad for param in params]
    Lockstep().call(answer, list(params))
    if any((param != 1.0 + rank).any() for param in params):
        raise Unfit(
            "it changes the parameters, and their gradients are to be averaged.",
            "What does the backward pass leave on each rank, and in which attribute of a parameter?",
        )
    if any(param.grad is not gradient for param, gradient in zip(params, gradients, strict=True)):
        raise Unfit(
            "param.grad is another tensor now, and the average is asked for in place.",
            "With gradient_as_bucket_view=True, .grad is a part of DDP's bucket. Which operations write into a tensor?",
        )
    return [param.grad.tolist() for param in params]


def _gradients(change: Callable[..., Any]) -> Callable[[Params], None]:
    """Return an answer that calls change(gradient, number of parameters) for each parameter."""

    def answer(params: Params) -> None:
        for param in params:
            change(param.grad, len(params))

    return answer


def _divided_by(divisor: Callable[[int], float]) -> Callable[[Params], None]:
    def change(grad: torch.Tensor, num_params: int) -> None:
        dist.all_reduce(grad)
        grad /= divisor(num_params)

    return _gradients(change)


def _not_waited_for(grad: torch.Tensor, num_params: int) -> None:
    dist.all_reduce(grad, async_op=True)
    grad /= dist.get_world_size()


def _reduced(grad: torch.Tensor, num_params: int) -> None:
    dist.reduce(grad, dst=0)
    grad /= dist.get_world_size()


GRADIENTS = Exercise(
    name="5.2",
    title="The heart of DDP: average the gradients over ranks",
    solution=_average_gradients,
    cases=lambda: {
        "two parameters": ([2], [1]),
        "as many parameters as ranks": ([1], [2], [1]),
        "one parameter": ([2, 2],),
        "five parameters": ([1], [3], [1, 2], [2], [1]),
    },
    mistakes=(
        Mistake(
            _divided_by(lambda num_params: 1),
            "the gradients are summed, and their average is asked for.",
            "dist.all_reduce adds unless it is told otherwise. Over how many ranks?",
        ),
        Mistake(
            _divided_by(lambda num_params: num_params),
            "the sum is divided by the number of parameters.",
            "How many numbers have been added for each element of a gradient?",
        ),
        Mistake(
            _divided_by(lambda num_params: 2),
            "the sum is divided by 2, and this check runs on three ranks.",
            "The process group has the number of its ranks.",
        ),
        Mistake(
            _divided_by(lambda num_params: dist.get_world_size() ** 2),
            "the sum is divided by the number of ranks twice.",
            "One division is enough, before the collective or after it.",
        ),
        Mistake(
            lambda params: _average_gradients(params[:1]),
            "only the first parameter's gradient is averaged.",
            "What does return do inside a loop?",
        ),
        Mistake(
            _gradients(lambda grad, num_params: dist.all_reduce(grad.clone())),
            "the gradients are what they were before.",
            "Into which tensor does the collective write, and is it the one that .grad is?",
        ),
        Mistake(
            _gradients(_not_waited_for),
            "the sums of the ranks do not arrive: the function does not wait for the collective.",
            "What does a collective with async_op=True return, and what has to be done with it?",
        ),
        Mistake(
            _gradients(_reduced),
            "only rank 0 has the average.",
            "Every rank takes a step of its own. Which collective gives all ranks the result?",
        ),
        NEVER_ENDS,
    ),
    think="Follow one element of one gradient: its value on each rank before, after the collective, and at the end.",
    observe=_observe_gradients,
    world_size=WORLD_SIZE,
)


def _seeded_net(make_net: Callable[[], nn.Module], seed: int) -> nn.Module:
    torch.manual_seed(seed)
    net = make_net()
    torch.manual_seed(seed + 1 + dist.get_rank())
    return net


def _observe_seeds(answer: Callable[..., Any], width: int, seed: int) -> dict[str, bool]:
    """Return what holds for the networks of two runs with this seed and of one with another."""

    def make_net() -> nn.Module:
        return nn.Sequential(nn.Linear(width, 4), nn.Dropout(), nn.Linear(4, 2))

    runs = [_one_run(answer, make_net, s) for s in (seed, seed, seed + 1)]
    if any(weights is None for weights, _ in runs):
        raise Unfit("it does not return the network.", "make_net() makes it.")
    (weights, masks), (again, masks_again), (others, _) = runs
    return {
        "same weights on all ranks": all(torch.equal(w, weights[0]) for w in weights),
        "other dropout on each rank": len({tuple(mask.tolist()) for mask in masks}) == len(masks),
        "the same in a second run": torch.equal(weights, again) and torch.equal(masks, masks_again),
        "other weights with another seed": not torch.equal(weights, others),
    }


def _one_run(answer: Callable[..., Any], make_net: Callable[[], nn.Module], seed: int) -> tuple[Any, torch.Tensor]:
    """Return the weights [ranks, ...], or None if it is no such network, and the dropout masks [ranks, 64]."""
    expected = _weights(make_net())
    torch.seed()  # as in a new process: other random numbers on each rank and in each run
    net = Lockstep().call(answer, make_net, seed)
    mine = _weights(net) if isinstance(net, nn.Module) else torch.zeros(0)
    is_net = mine.shape == expected.shape
    weights, masks = (_of_all_ranks(x) for x in (mine if is_net else expected, F.dropout(torch.ones(64))))
    return weights if is_net else None, masks


def _weights(net: nn.Module) -> torch.Tensor:
    return torch.cat([torch.zeros(0), *(p.detach().flatten() for p in net.parameters())])


def _of_all_ranks(mine: torch.Tensor) -> torch.Tensor:
    all_of_them = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(all_of_them, mine)
    return torch.stack(all_of_them)


def _seeds(before: Callable[[int], Any], after: Callable[[int], Any]) -> Callable[..., nn.Module]:
    def answer(make_net: Callable[[], nn.Module], seed: int) -> nn.Module:
        before(seed)
        net = make_net()
        after(seed)
        return net

    return answer


def _by_rank(seed: int) -> None:
    torch.manual_seed(seed + dist.get_rank())


_APART = "Random numbers come from the generator in the order in which they are asked for. Who asks first, who later?"
SEEDS = Exercise(
    name="5.3",
    title="The same weights on all ranks, other dropout on each",
    solution=_seeded_net,
    cases=lambda: {f"seed {seed}, {width} inputs": (width, seed) for seed, width in ((0, 3), (1, 2), (12345, 5))},
    mistakes=(
        Mistake(
            _seeds(torch.manual_seed, lambda seed: None),
            "dropout leaves out the same units on every rank.",
            _APART,
        ),
        Mistake(_seeds(_by_rank, lambda seed: None), "the ranks begin with different weights.", _APART),
        Mistake(
            _seeds(lambda seed: torch.manual_seed(0), lambda seed: torch.manual_seed(1 + dist.get_rank())),
            "the seed is not used: another seed gives the same weights.",
            "A second experiment must be able to begin with other weights.",
        ),
        Mistake(
            _seeds(torch.manual_seed, lambda seed: torch.seed()),
            "a second run with the same seed leaves out other units.",
            "Let the numbers after the weights depend on the seed as well.",
        ),
        Mistake(
            _seeds(lambda seed: None, lambda seed: None),
            "nothing depends on the seed: the ranks begin with different weights, and a second run with others again.",
            _APART,
        ),
        Mistake(
            _seeds(torch.manual_seed, lambda seed: torch.manual_seed(seed * dist.get_rank())),
            "with seed 0 dropout leaves out the same units on every rank.",
            "Write down the seed of each rank after the weights, for seed 0.",
        ),
        NEVER_ENDS,
    ),
    think=_APART,
    observe=_observe_seeds,
    world_size=WORLD_SIZE,
)


def _mean_is_right(piece_size: int, num_examples: int) -> bool:
    return piece_size >= num_examples or num_examples % piece_size == 0


_COUNT = "Write down the sizes of the pieces: 10 examples in pieces of 5, of 4, of 10 and of 16."
PIECES = Exercise(
    name="5.4",
    title="When is a mean of means right?",
    solution=_mean_is_right,
    cases=lambda: {
        f"pieces of {p}, {n} examples": (p, n)
        for p, n in ((16, 40), (20, 40), (40, 40), (64, 40), (1, 7), (3, 7), (7, 1), (2, 3), (8, 12))
    },
    mistakes=(
        Mistake(
            lambda p, n: n % p == 0,
            "one piece that holds all examples is said to be wrong where it has room for more.",
            _COUNT,
        ),
        Mistake(lambda p, n: p >= n, "several pieces of one size are said to be wrong.", _COUNT),
        Mistake(
            lambda p, n: p % n == 0 or n % p == 0,
            "one piece that holds all examples is said to be wrong where it has room for more.",
            _COUNT,
        ),
        Mistake(
            lambda p, n: n % p != 0 and p < n,
            "True and False are exchanged.",
            "True stands for: the mean of means is right.",
        ),
        Mistake(
            lambda p, n: n % 2 == p % 2 or p == 1,
            "whether both numbers are even does not decide it.",
            _COUNT,
        ),
    ),
    think=_COUNT,
    observe=lambda answer, *args: bool(result) if isinstance(result := answer(*args), int) else result,
)
