"""The gradient noise scale against gradients whose signal and noise are known."""

import math

import pytest
import torch
from torch import nn

from d2lite.labs.chapter_09 import GradientNorms, NoiseScale, gradient_norms, noise_scale


def test_known_signal_and_noise_are_found():
    generator = torch.Generator().manual_seed(0)
    true, spread = torch.full((50,), 0.3), 2.0  # signal 4.5, noise 200
    norms = []
    for _ in range(400):
        shards = true + spread * torch.randn(8, 16, 50, generator=generator).mean(1)
        small, big = shards.square().sum(1).mean().item(), shards.mean(0).square().sum().item()
        norms.append(GradientNorms(small, big, 16, 128))
    found = noise_scale(norms)
    assert found.signal == pytest.approx(4.5, rel=0.05) and found.noise == pytest.approx(200, rel=0.05)
    assert found.num_examples == pytest.approx(200 / 4.5, rel=0.1)


def test_the_norms_are_those_of_the_gradients_of_shards_and_of_the_whole_minibatch():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(784, 10)).double()
    X, y = torch.rand(24, 1, 28, 28, dtype=torch.float64), torch.arange(24) % 10
    norms = gradient_norms(net, X, y, 4)

    def squared(X, y):
        net.zero_grad()
        nn.functional.cross_entropy(net(X), y).backward()
        return sum(p.grad.square().sum().item() for p in net.parameters())

    assert norms.big == pytest.approx(squared(X, y))
    assert norms.small == pytest.approx(sum(squared(X[i : i + 6], y[i : i + 6]) for i in range(0, 24, 6)) / 4)
    assert (norms.num_small, norms.num_big) == (6, 24)


def test_gradients_are_left_alone():
    net = nn.Linear(3, 2)
    gradient_norms(net, torch.rand(4, 3), torch.zeros(4, dtype=torch.int64), 2)
    assert all(p.grad is None for p in net.parameters())


def test_without_a_signal_it_is_infinite():
    assert math.isinf(NoiseScale(-0.1, 3.0).num_examples) and NoiseScale(0.5, 3.0).num_examples == 6


@pytest.mark.parametrize("num_shards", [1, 3])
def test_shards_of_one_size_are_needed(num_shards):
    with pytest.raises(ValueError, match="expected 2 or more that divide the 4 examples"):
        gradient_norms(nn.Linear(3, 2), torch.rand(4, 3), torch.zeros(4, dtype=torch.int64), num_shards)


def test_norms_of_two_sizes_are_needed():
    with pytest.raises(ValueError, match="expected shards with fewer examples than the minibatch, got 8 of 8"):
        noise_scale([GradientNorms(1.0, 1.0, 8, 8)])
    with pytest.raises(ValueError, match="expected those of one minibatch or more"):
        noise_scale([])
