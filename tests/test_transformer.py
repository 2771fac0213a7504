"""The transformer of chapters 13 and 14: its size, no place sees a later one, and its attention is torch's."""

import pytest
import torch
import torch.nn.functional as F

from d2lite import Transformer
from d2lite.transformer import Attention


def test_it_has_the_parameters_that_its_page_says():
    net = Transformer()
    assert f"{sum(p.numel() for p in net.parameters()):,} parameters" in Transformer.__doc__
    assert net(torch.zeros(3, 64, dtype=torch.int64)).shape == (3, 64, 96)


def test_the_seed_decides_the_values_and_the_global_generator_stays():
    state = torch.get_rng_state()
    one, same, other = Transformer(32, 1, seed=1), Transformer(32, 1, seed=1), Transformer(32, 1, seed=2)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(map(torch.equal, one.parameters(), same.parameters()))
    assert not torch.equal(one.head.linear.weight, other.head.linear.weight)


def test_no_place_sees_a_later_one():
    net, tokens = Transformer(32, 2).double(), torch.arange(20).view(1, 20)
    before = net(tokens)
    tokens[0, 12] = 77
    after = net(tokens)
    assert torch.equal(before[:, :12], after[:, :12]) and not torch.allclose(before[:, 12:], after[:, 12:])


def test_attention_is_that_of_torch():
    layer, X = Attention(24, 3).double(), torch.randn(2, 7, 24, dtype=torch.float64)
    q, k, v = (part(X).view(2, 7, 3, 8).transpose(1, 2) for part in (layer.query, layer.key, layer.value))
    expected = layer.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(2, 7, 24))
    assert torch.allclose(layer(X), expected, atol=1e-12)


def test_it_learns_what_follows():
    net, tokens = Transformer(32, 1, context=16), torch.arange(16).repeat(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for _ in range(30):
        loss = F.cross_entropy(net(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] > 4 and losses[-1] < 0.1


def test_wrong_sizes_are_refused():
    with pytest.raises(ValueError, match="width: expected a multiple of num_heads=4, got 30"):
        Transformer(width=30)
    with pytest.raises(ValueError, match="num_blocks: expected a positive whole number"):
        Transformer(num_blocks=0)
