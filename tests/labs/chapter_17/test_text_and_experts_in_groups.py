"""Ulysses, the ring and experts work on ranks that are not all ranks: pairs of four, where a place is not a rank."""

import pytest
import torch

from d2lite.labs.chapter_14 import summed
from d2lite.labs.chapter_17 import Experts, ExpertsOverRanks, causal_attention, ring_attention, ulysses_attention
from tests.ranks import NEEDS_RANKS, my_pair, pool_of

pytestmark = [
    NEEDS_RANKS,
    pytest.mark.filterwarnings("ignore:4 ranks share"),
]


pool = pool_of(4)


def attention(attend):
    group, pair, place = my_pair()
    generator = torch.Generator().manual_seed(pair)
    whole = [torch.randn(2, 7, 3, 4, dtype=torch.float64, generator=generator).requires_grad_() for _ in range(3)]
    mine = [x.detach().tensor_split(2, 1)[place].clone().requires_grad_() for x in whole]
    right = causal_attention(*whole)
    out = attend(*mine, 7, group)
    right.pow(3).sum().backward()
    out.pow(3).sum().backward()
    pairs = [(out, right), *((x.grad, y.grad) for x, y in zip(mine, whole, strict=True))]
    return max((x - y.tensor_split(2, 1)[place]).abs().max().item() for x, y in pairs)


@pytest.mark.parametrize("attend", [ulysses_attention, ring_attention])
def test_attention(pool, attend):
    assert max(pool.run(attention, attend)) < 1e-9


def experts():
    group, pair, place = my_pair()
    tokens = torch.randn(9, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(pair))
    layer, right = ExpertsOverRanks(Experts(6, 3, seed=pair).double(), group), Experts(6, 3, seed=pair).double()
    mine = tokens.tensor_split(2)[place].clone().requires_grad_()
    X = tokens.clone().requires_grad_()
    out, Y = layer(mine), right(X)
    out.pow(3).sum().backward()
    Y.pow(3).sum().backward()
    router = [summed(param.grad, group) for param in layer.router.parameters()]
    pairs = [(out, Y.tensor_split(2)[place]), (mine.grad, X.grad.tensor_split(2)[place])]
    pairs += zip(router, (param.grad for param in right.router.parameters()), strict=True)
    return max((x - y).abs().max().item() for x, y in pairs)


def test_experts(pool):
    assert max(pool.run(experts)) < 1e-9
