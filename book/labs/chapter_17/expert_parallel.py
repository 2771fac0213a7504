"""Expert parallelism by hand: each token goes to one of several MLPs, the experts, and each rank holds some of them.

A router gives each token a score per expert, and the token goes to the best one (top-1, as in the Switch Transformer,
Fedus et al. 2021, arXiv:2101.03961). An all-to-all sends the tokens to the ranks of their experts, another one sends
the results back. A bias that is added to the weights for the choice only keeps the load even (Wang et al. 2024,
arXiv:2408.15664; DeepSeek-V3 uses it). All functions with a group run on a rank, and every rank of the group must call
them in the same order.
"""

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import nn

from d2lite.transformer import MLP

from ..chapter_14.autograd_collectives import Group, part_sizes, summed
from .exchanges import all_to_all, exchanged

__all__ = ["Experts", "ExpertsOverRanks", "by_expert", "rebalance", "route", "tokens_per_rank"]


def route(weights: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the weight and the expert of each token, from its softmax weights [n, experts]: [n, 1] and [n], int64.

    The bias, [experts], counts for the choice of the expert, and not for the weight.
    """
    expert = (weights + bias).argmax(-1)
    return weights.gather(-1, expert[:, None]), expert


def by_expert(experts: Iterable[nn.Module], tokens: torch.Tensor, which: torch.Tensor) -> torch.Tensor:
    """Return the results of tokens [n, width]: token j goes through the expert with the number `which[j]`."""
    results = torch.zeros_like(tokens)
    for i, expert in enumerate(experts):
        results[which == i] = expert(tokens[which == i])
    return results


class Experts(nn.Module):
    """A layer of experts on one device: tokens [n, width] -> [n, width].

    `bias`, [num_experts], is zero until `rebalance` changes it. The same seed gives the same values.
    """

    bias: torch.Tensor

    def __init__(self, width: int, num_experts: int, seed: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.router = nn.Linear(width, num_experts)
            self.experts = nn.ModuleList(MLP(width) for _ in range(num_experts))
        self.register_buffer("bias", torch.zeros(num_experts))

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        weight, expert = route(self.router(X).softmax(-1), self.bias)
        return weight * by_expert(self.experts, X, expert)


class ExpertsOverRanks(nn.Module):
    """A layer of experts, of which this rank keeps its part: this rank's tokens [n, width] -> [n, width].

    Each rank has tokens of its own, any number of them, and the whole router. With a loss that is a sum over the ranks,
    the gradients of the experts are complete and those of the router partial.

    Raises:
        ValueError: if there are fewer experts than ranks.
    """

    def __init__(self, layer: Experts, group: Group = None) -> None:
        super().__init__()
        k, rank = dist.get_world_size(group), dist.get_rank(group)
        if len(layer.experts) < k:
            raise ValueError(f"experts: expected at least {k}, one for each rank, got {len(layer.experts)}.")
        self.sizes = part_sizes(len(layer.experts), k)
        first = sum(self.sizes[:rank])
        self.router, self.experts = layer.router, layer.experts[first : first + self.sizes[rank]]
        self.bias, self.group = layer.bias, group

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        k, n = len(self.sizes), len(self.experts)
        weight, expert = route(self.router(X).softmax(-1), self.bias)
        order = expert.argsort(stable=True)  # the tokens of an expert next to each other
        counts = expert.bincount(minlength=sum(self.sizes))
        their_counts = exchanged(counts, self.sizes, [n] * k, self.group)  # of each rank, for each expert here
        sent = [int(part.sum()) for part in counts.split(self.sizes)]
        received = their_counts.view(k, n).sum(1).tolist()
        tokens = all_to_all(X[order], sent, received, self.group)
        which = torch.arange(n, device=X.device).repeat(k).repeat_interleave(their_counts)
        results = all_to_all(by_expert(self.experts, tokens, which), received, sent, self.group)
        return weight * results[order.argsort()]  # in the order of X again


def tokens_per_rank(expert: torch.Tensor, num_experts: int, group: Group = None) -> list[int]:
    """Return how many tokens each rank receives, its own included; `expert`, [n], has the experts of this rank's."""
    counts = summed(expert.bincount(minlength=num_experts), group)
    return [int(part.sum()) for part in counts.tensor_split(dist.get_world_size(group))]


def rebalance(bias: torch.Tensor, counts: torch.Tensor, speed: float = 0.01) -> None:
    """Change the bias [experts] in place, after a step in which the experts got `counts` tokens (of all ranks).

    An expert with more than the mean gets a bias that is smaller by `speed`, one with less a larger one.
    """
    bias += speed * (counts.mean(dtype=bias.dtype) - counts).sign()
