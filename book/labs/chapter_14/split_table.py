"""A row of the table of splits: is it the network of one device, and what does a rank hold and send?"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import nn

from d2lite.profiling import CollectiveCall, recorded_collectives
from d2lite.transformer import Transformer

from ..chapter_13.one_device import batches, distance, odd_net, train_alone

__all__ = ["apart_after_four_steps", "counted_step", "params_of", "zeros_for"]

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


def counted_step(cut: Cut, step: Step, parts: Parts = params_of) -> tuple[int, list[CollectiveCall]]:
    """Return the bytes that this rank holds of parameters and momentum, and what it calls in a step."""
    net, (X, y) = cut(Transformer()), torch.randint(0, 96, (2, 16, 64), generator=torch.Generator().manual_seed(0))
    momenta = zeros_for(parts(net))
    with recorded_collectives() as calls:
        step(net, momenta, X, y, lr=0.1)
    return 2 * sum(part.nbytes for part in parts(net)), calls
