"""A row of the table of splits: is it the network of one device, and what does a rank hold and send?"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import nn

from d2lite.profiling import CollectiveCall, recorded_collectives
from d2lite.transformer import Transformer
from d2lite.workers import Workers

from ..chapter_13.one_device import batches, distance, odd_net, train_alone

__all__ = ["apart_after_four_steps", "counted_step", "from_one_device", "params_of", "zeros_for"]

Cut = Callable[[Any], Any]  # leaves this rank its parts of a network, and returns them
Step = Callable[..., torch.Tensor]  # step(net, momenta, X, y, lr=...) returns the loss or this rank's share
Parts = Callable[[Any], Sequence[torch.Tensor]]  # what a rank keeps of the parameters


def params_of(net: nn.Module) -> list[Any]:
    """Return the parameters of a network, or of what a rank has of it."""
    return list(net.parameters())


def zeros_for(parts: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """Return a momentum for each part, zero in the beginning."""
    return [torch.zeros_like(part) for part in parts]


def apart_after_four_steps(cut: Cut, step: Step, parts: Parts = params_of) -> tuple[float, list[float], list[float]]:
    """Return how far this rank's parts are from those of one device, its losses, and those of one device."""
    net, alone = cut(odd_net()), odd_net()
    momenta = zeros_for(parts(net))
    losses: list[float] = [step(net, momenta, X, y, lr=0.1).item() for X, y in batches()]
    right = train_alone(alone)
    return distance(parts(net), parts(cut(alone))), losses, right


def from_one_device(
    workers: Workers, name: str, cut: Cut, step: Step, *, parts: Parts = params_of, copies: int = 1
) -> float:
    """Return how far the farthest of the ranks' parts are from those of one device, after four steps.

    Args:
        workers: the ranks.
        name: what the split is called in an error.
        cut: leaves a rank its parts of a network, and returns them.
        step: step(net, momenta, X, y, lr=...) returns this rank's share of the loss, or the whole loss.
        parts: parts(net) lists what the rank keeps.
        copies: how many ranks return one and the same share of the loss.

    Raises:
        ValueError: if the weights or the losses are not those of one device.
    """
    found = workers.run(apart_after_four_steps, cut, step, parts)
    apart, right = max(row[0] for row in found), found[0][2]
    losses = [sum(of_step) / copies for of_step in zip(*(row[1] for row in found), strict=True)]
    off = max(abs(a - b) for a, b in zip(losses, right, strict=True))
    if not (apart < 1e-9 and off < 1e-9):
        raise ValueError(
            f"{name}: expected the network of one device within 1e-9, got weights that are {apart:.0e} and losses that "
            f"are {off:.0e} apart. Compare the gradients of the first step."
        )
    return apart


def counted_step(cut: Cut, step: Step, parts: Parts = params_of) -> tuple[int, list[CollectiveCall]]:
    """Return the bytes that this rank holds of parameters and momentum, and what it calls in a step."""
    net, (X, y) = cut(Transformer()), torch.randint(0, 96, (2, 16, 64), generator=torch.Generator().manual_seed(0))
    momenta = zeros_for(parts(net))
    with recorded_collectives() as calls:
        step(net, momenta, X, y, lr=0.1)
    return 2 * sum(part.nbytes for part in parts(net)), calls
