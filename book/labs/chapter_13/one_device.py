"""One device trains: the network, the minibatches and the steps that every split of chapters 13 to 15 must equal."""

from collections.abc import Iterable

import torch
import torch.nn.functional as F

from d2lite.transformer import Transformer

from .network_parts import Network

__all__ = ["batches", "distance", "odd_net", "train_alone"]


def odd_net() -> Transformer:
    """Return a network in 64-bit numbers with a width of 33 and three heads: on two ranks its parts differ in size."""
    return Transformer(33, num_heads=3).double()


def batches(n: int = 7, num_steps: int = 4) -> list[torch.Tensor]:
    """Return minibatches of n pieces of 24 random characters; each is a pair X, y, as one tensor [2, n, 24]."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(0, 96, (2, n, 24), generator=generator) for _ in range(num_steps)]


def train_alone(net: Network) -> list[float]:
    """Train `net` on one device with SGD with momentum, a step for each of `batches()`; return the losses."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    losses: list[float] = []
    for X, y in batches():
        optimizer.zero_grad()
        loss = F.cross_entropy(net(X).flatten(0, 1), y.flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def distance(tensors: Iterable[torch.Tensor], others: Iterable[torch.Tensor]) -> float:
    """Return the largest difference of a number in `tensors` from the one at its place in `others`."""
    return max((a - b).abs().max().item() for a, b in zip(tensors, others, strict=True))
