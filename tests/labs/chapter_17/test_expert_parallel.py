"""Experts over ranks against the same layer on one device, forward and backward, on 2, 3 and 4 ranks."""

import pytest
import torch
import torch.distributed as dist
from hypothesis import example, given
from hypothesis import strategies as st

from d2lite.labs.chapter_14 import part_sizes
from d2lite.labs.chapter_17 import Experts, ExpertsOverRanks, rebalance, route, tokens_per_rank
from tests.ranks import NEEDS_RANKS, pool_of

pytestmark = [
    NEEDS_RANKS,
    pytest.mark.filterwarnings("ignore:[34] ranks share"),
]
WIDTH = 6


pool = pool_of(2, 3, 4)


def largest_difference(tensors, others):
    apart = ((a - b).abs().max().item() for a, b in zip(tensors, others, strict=True) if a.numel())
    return max(apart, default=0.0)


def some_tokens(n):
    generator = torch.Generator().manual_seed(n)
    return torch.randn(2, n, WIDTH, dtype=torch.float64, generator=generator)


def make_layer(num_experts, bias):
    layer = Experts(WIDTH, num_experts).double()
    layer.bias[: len(bias)] = torch.tensor(bias, dtype=torch.float64)
    return layer


def on_rank(n, num_experts, bias):
    k, rank = dist.get_world_size(), dist.get_rank()
    (X, w), right = some_tokens(n), make_layer(num_experts, bias)
    X = X.requires_grad_()
    Y = right(X)
    (Y * w).sum().backward()
    layer = ExpertsOverRanks(make_layer(num_experts, bias))
    mine = X.detach().tensor_split(k)[rank].clone().requires_grad_()
    out = layer(mine)
    (out * w.tensor_split(k)[rank]).sum().backward()
    for param in layer.router.parameters():  # used on this rank's tokens only
        dist.all_reduce(param.grad)
    first = sum(part_sizes(num_experts, k)[:rank])
    experts = right.experts[first : first + len(layer.experts)]
    expected = [Y.tensor_split(k)[rank], X.grad.tensor_split(k)[rank], right.router.weight.grad, right.router.bias.grad]
    found = [out, mine.grad, layer.router.weight.grad, layer.router.bias.grad]
    for a, b in zip(layer.experts.parameters(), experts.parameters(), strict=True):
        found.append(a.grad)
        expected.append(torch.zeros_like(b) if b.grad is None else b.grad)
    _, expert = route(right.router(X).softmax(-1), right.bias)
    _, my_expert = route(layer.router(mine).softmax(-1), layer.bias)
    counts = expert.bincount(minlength=num_experts)
    wanted = [int(part.sum()) for part in counts.tensor_split(k)]
    assert tokens_per_rank(my_expert, num_experts) == wanted and sum(wanted) == n
    return largest_difference(found, expected), counts.tolist()


@pytest.mark.parametrize("n", [24, 23, 3])  # even, uneven, and on four ranks one without a token
@pytest.mark.parametrize("num_experts", [4, 7, 12])
def test_it_is_the_layer_of_one_device(pool, n, num_experts):
    for apart, counts in pool.run(on_rank, n, num_experts, []):
        assert apart < 1e-9
        assert n < 20 or sum(count > 0 for count in counts) > 2  # several experts have worked


@pytest.mark.parametrize("bias", [[-9.0], [9.0], [-9.0, -9.0, -9.0]])  # none for the first; all for it; one expert only
def test_experts_without_a_token(pool, bias):
    for apart, counts in pool.run(on_rank, 23, 4, bias):
        assert apart < 1e-9
        assert 0 in counts


def too_few():
    try:
        ExpertsOverRanks(Experts(WIDTH, dist.get_world_size() - 1))
    except ValueError as error:
        return str(error)
    return "no error"


def test_fewer_experts_than_ranks_are_refused(pool):
    for said in pool.run(too_few):
        assert said.startswith("experts: expected at least")


def test_a_bias_changes_the_choice_and_not_the_weight():
    scores = torch.tensor([[0.7, 0.2, 0.1], [0.4, 0.5, 0.1]])
    weight, expert = route(scores, torch.tensor([0.0, 0.0, 0.55]))
    assert expert.tolist() == [0, 2]
    assert torch.equal(weight, torch.tensor([[0.7], [0.1]]))


def test_the_router_has_a_gradient():
    layer, (X, w) = Experts(WIDTH, 3).double(), some_tokens(10)
    (layer(X) * w).sum().backward()
    assert layer.router.weight.grad.abs().max() > 1e-6


@given(counts=st.lists(st.integers(0, 1000), min_size=1, max_size=9))
@example([0, 1])  # less than one token from the mean
@example([3, 3, 4])
def test_the_bias_moves_against_the_load(counts):
    bias, counts = torch.zeros(len(counts)), torch.tensor(counts)
    rebalance(bias, counts, 0.5)
    mean = counts.double().mean()
    assert bias.tolist() == [0.5 * float(torch.sign(mean - n)) for n in counts.double()]


def test_rebalancing_evens_the_load_out():
    generator = torch.Generator().manual_seed(0)
    scores = (torch.randn(2000, 8, generator=generator) + torch.linspace(2, 0, 8)).softmax(-1)
    bias, skews = torch.zeros(8), []
    for _ in range(100):
        _, expert = route(scores, bias)
        counts = expert.bincount(minlength=8)
        skews.append(counts.max().item() / 250)
        rebalance(bias, counts)
    assert skews[0] > 2 and skews[-1] < 1.2
