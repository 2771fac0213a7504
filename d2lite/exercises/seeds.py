"""Exercise 5.3: random numbers that are the same on all ranks, and then others on each."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from d2lite.exercises.exercise import Exercise, Mistake, Unfit
from d2lite.exercises.lockstep import LIMIT_S, NEVER_ENDS, WORLD_SIZE, Lockstep

__all__ = ["SEEDS"]


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
    limit_s=LIMIT_S,
)
