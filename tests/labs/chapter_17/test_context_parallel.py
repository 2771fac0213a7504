"""Ulysses and ring attention against the attention of one device, forward and backward, on 2, 3 and 4 ranks."""

import math

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from d2lite.labs.chapter_14 import part_sizes
from d2lite.labs.chapter_17 import (
    add_block,
    causal_attention,
    context_step,
    recut,
    ring_attention,
    split_text,
    ulysses_attention,
)
from d2lite.transformer import Attention, Transformer
from tests.ranks import NEEDS_RANKS, pool_of

pytestmark = [
    NEEDS_RANKS,
    pytest.mark.filterwarnings("ignore:[34] ranks share"),
]
BOTH = pytest.mark.parametrize("attend", [ulysses_attention, ring_attention])


pool = pool_of(2, 3, 4)


def largest_difference(tensors, others):
    apart = ((a - b).abs().max().item() for a, b in zip(tensors, others, strict=True) if a.numel())
    return max(apart, default=0.0)


def some_qkv(t, heads, scale):
    generator = torch.Generator().manual_seed(t + heads)
    q, k, v, w = torch.randn(4, 2, t, heads, 5, dtype=torch.float64, generator=generator)
    return (scale * q, k, v), w


def on_rank(attend, t, heads, scale):
    whole, w = some_qkv(t, heads, scale)
    whole = [x.requires_grad_() for x in whole]
    right = causal_attention(*whole)
    (right * w).sum().backward()
    k, rank = dist.get_world_size(), dist.get_rank()
    mine = [x.detach().tensor_split(k, 1)[rank].clone().requires_grad_() for x in whole]
    out = attend(*mine, t)
    (out * w.tensor_split(k, 1)[rank]).sum().backward()
    expected = [x.tensor_split(k, 1)[rank] for x in (right, *(x.grad for x in whole))]
    return out.shape == mine[0].shape, largest_difference([out, *(x.grad for x in mine)], expected)


@BOTH
@pytest.mark.parametrize("t", [12, 7, 4])  # even on all, uneven on all, and one place for some of the ranks
@pytest.mark.parametrize("heads", [4, 3, 1])  # 3 and 1 do not divide: some ranks have fewer heads, or none
@pytest.mark.parametrize("scale", [1, 300])  # with 300, exp of a score would overflow
def test_it_is_the_attention_of_one_device(pool, attend, t, heads, scale):
    for has_shape, apart in pool.run(on_rank, attend, t, heads, scale):
        assert has_shape and apart < 1e-9


def test_the_oracle_is_the_attention_of_the_transformer():
    attention, X = Attention(12, 3).double(), some_qkv(6, 1, 1)[1].reshape(2, 6, 5)
    X = torch.cat([X, X, X], -1)[..., :12]
    q, k, v = (layer(X).unflatten(-1, (3, -1)) for layer in (attention.query, attention.key, attention.value))
    assert torch.equal(attention.out(causal_attention(q, k, v).flatten(2)), attention(X))


def refused(attend, t_local, t):
    q = torch.zeros(1, t_local, 2, 3)
    try:
        attend(q, q, q, t)
    except ValueError as error:
        return str(error)
    return "no error"


@BOTH
def test_a_wrong_number_of_places_is_refused_before_anything_is_sent(pool, attend):
    assert all("expected" in said and "got 9" in said for said in pool.run(refused, attend, 9, 12))


@BOTH
def test_more_ranks_than_places_are_refused(pool, attend):
    k, said = len(pool.run(dist.get_rank)), pool.run(one_place_too_few, attend)
    assert said == [f"t: expected at least {k} places, one for each rank, got {k - 1}. Use fewer ranks."] * k


def one_place_too_few(attend):
    k, rank = dist.get_world_size(), dist.get_rank()
    return refused(attend, part_sizes(k - 1, k)[rank], k - 1)


def there_and_back(t, heads):
    k, rank = dist.get_world_size(), dist.get_rank()
    whole = torch.arange(2.0 * t * heads * 3).view(2, t, heads, 3)
    mine = whole.tensor_split(k, 1)[rank]
    by_heads = recut(mine, 2, 1, t)
    return torch.equal(by_heads, whole.tensor_split(k, 2)[rank]) and torch.equal(recut(by_heads, 1, 2, heads), mine)


@pytest.mark.parametrize(("t", "heads"), [(12, 4), (7, 3), (2, 1), (1, 5)])
def test_recut_exchanges_one_cut_for_another(pool, t, heads):
    assert all(pool.run(there_and_back, t, heads))


def make_net():
    return Transformer(width=24, num_blocks=2, num_heads=4, context=11, num_characters=13).double()


def batches():
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(0, 13, (2, 3, 11), generator=generator) for _ in range(4)]  # 11 places: uneven


def steps_on_rank(attend):
    net, losses = split_text(make_net(), attend), []
    momenta = [torch.zeros_like(param) for param in net.parameters()]
    for X, y in batches():
        loss = context_step(net, momenta, X, y, 0.1)
        dist.all_reduce(loss)
        losses.append(loss.item())
    right, right_losses = make_net(), []
    optimizer = torch.optim.SGD(right.parameters(), lr=0.1, momentum=0.9)
    for X, y in batches():
        optimizer.zero_grad()
        loss = F.cross_entropy(right(X).flatten(0, 1), y.flatten())
        loss.backward()
        optimizer.step()
        right_losses.append(loss.item())
    moved = largest_difference(right.parameters(), make_net().parameters())
    apart = largest_difference(net.parameters(), right.parameters())
    return apart, max(abs(a - b) for a, b in zip(losses, right_losses, strict=True)), moved


@BOTH
def test_k_ranks_train_the_network_of_one(pool, attend):
    for apart, losses_apart, moved in pool.run(steps_on_rank, attend):
        assert apart < 1e-9 and losses_apart < 1e-9
        assert moved > 1e-2  # it has trained


def one_gradient_on_rank(attend, adds_up):
    """How far the gradient of a norm and of a query layer are from one device: both are used on some places only."""
    X, y = batches()[0]
    right, net = make_net(), split_text(make_net(), attend)
    F.cross_entropy(right(X).flatten(0, 1), y.flatten()).backward()
    mine = y.tensor_split(dist.get_world_size(), 1)[dist.get_rank()]
    (F.cross_entropy(net(X).flatten(0, 1), mine.flatten(), reduction="sum") / y.numel()).backward()
    found = [net.blocks[0].norm1.weight.grad, net.blocks[0].attention.query.weight.grad]
    if adds_up:
        for grad in found:
            dist.all_reduce(grad)
    return largest_difference(found, [right.blocks[0].norm1.weight.grad, right.blocks[0].attention.query.weight.grad])


@BOTH
def test_gradients_of_parameters_are_partial(pool, attend):
    assert max(pool.run(one_gradient_on_rank, attend, True)) < 1e-9
    assert min(pool.run(one_gradient_on_rank, attend, False)) > 1e-5


@given(cuts=st.lists(st.integers(1, 4), min_size=1, max_size=5), scale=st.sampled_from([0.1, 1, 50, 2000]))
def test_blocks_added_in_any_cut_are_the_softmax(cuts, scale):
    n = sum(cuts)
    scores = scale * torch.randn(3, n, dtype=torch.float64, generator=torch.Generator().manual_seed(n))
    scores[1, cuts[0] :] = -math.inf  # a row that sees the first block only
    v = torch.randn(n, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(n + 1))
    largest, total, out = scores.new_tensor(-math.inf), scores.new_zeros(1), scores.new_zeros(1)
    for block, values in zip(scores.split(cuts, 1), v.split(cuts), strict=True):
        largest, total, out = add_block(largest, total, out, block, values)
    assert torch.allclose(out / total, scores.softmax(-1) @ v, rtol=0, atol=1e-12)
