import functools

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from d2lite.models import lenet_layers
from d2lite.profiling import activations_held, bytes_held
from d2lite.transformer import Transformer


@pytest.mark.parametrize(
    ("optimizer", "states", "scalars"),
    [
        (torch.optim.SGD, 0, 0),
        (functools.partial(torch.optim.SGD, momentum=0.9), 1, 0),
        (torch.optim.Adam, 2, 1),
    ],
    ids=("sgd", "momentum", "adam"),
)
def test_each_optimizer_keeps_its_tensors(optimizer, states, scalars):
    net = nn.Linear(30, 20)
    n_bytes, params = 4 * 20 * 31, list(net.parameters())
    held = bytes_held(params, net, torch.zeros(7, 30), make_optimizer=optimizer)
    step_counts = 4 * len(params) * scalars  # one number for each parameter
    expected = {"parameters": n_bytes, "gradients": n_bytes, "optimizer": states * n_bytes + step_counts}
    assert held == expected | {"activations": 4 * 7 * 30}


def mean_loss(net, X, y):
    return F.cross_entropy(net(X), y)


def test_activations_are_the_tensors_that_the_backward_pass_reads():
    """LeNet keeps the inputs of layers with weights, the outputs of ReLU, and what the loss keeps."""
    net, b = lenet_layers(), 8
    X, y = torch.rand(b, 1, 28, 28), torch.zeros(b, dtype=torch.int64)
    held = bytes_held(net.parameters(), mean_loss, net, X, y)
    numbers = 28 * 28 + 20 * 26 * 26 + 20 * 13 * 13 + 50 * 9 * 9 + 800 + 128 + 10
    assert held["activations"] == pytest.approx(b * (4 * numbers + 8), abs=16)  # a label has 8 bytes
    half = bytes_held(net.parameters(), mean_loss, net, X[: b // 2], y[: b // 2])
    assert half["activations"] == pytest.approx(held["activations"] / 2, abs=16)
    assert {name: half[name] for name in list(half)[:3]} == {name: held[name] for name in list(held)[:3]}


def test_the_step_changes_no_parameter_and_leaves_no_gradient():
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    before = [param.detach().clone() for param in net.parameters()]
    net(torch.ones(3, 4)).sum().backward()
    bytes_held(net.parameters(), lambda X: [net(X), net(2 * X)], torch.ones(3, 4))
    assert all(torch.equal(param, old) for param, old in zip(net.parameters(), before, strict=True))
    assert all(param.grad is None for param in net.parameters())


NETWORKS = {
    "linear": (lambda: nn.Linear(30, 20), torch.zeros(7, 30)),
    "lenet": (lenet_layers, torch.rand(8, 1, 28, 28)),
    "a weight twice": (lambda: nn.Sequential(*[nn.Linear(6, 6)] * 2, nn.ReLU(), nn.Tanh()), torch.ones(5, 6)),
    "transformer": (
        lambda: Transformer(width=24, num_blocks=2, num_heads=2, context=8, num_characters=13),
        torch.zeros(3, 8, dtype=torch.int64),
    ),
}


@pytest.mark.parametrize(("make_net", "X"), NETWORKS.values(), ids=NETWORKS)
def test_one_forward_pass_holds_the_activations_of_a_step(make_net, X):
    net = make_net()
    expected = bytes_held(net.parameters(), net, X)["activations"]
    with activations_held(net.parameters()) as held:
        output = net(X).sum()
        assert held.now_n_bytes == held.most_n_bytes == expected > 0
        output.backward()
        assert (held.now_n_bytes, held.most_n_bytes) == (0, expected)


class Attention(nn.Module):
    """One layer computes queries, keys and values, and the products keep its output in three views."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(8, 24)

    def forward(self, X):
        q, k, v = self.qkv(X).chunk(3, dim=-1)
        return q * k * v


def test_different_views_of_a_tensor_are_all_counted_and_equal_or_overlapping_ones_once():
    net, X = Attention(), torch.ones(2, 5, 8)
    n, product = 2 * 5 * 4 * 24, 2 * 5 * 4 * 8  # bytes of the output of the layer, and of q * k
    assert bytes_held(net.parameters(), net, X)["activations"] == X.nbytes + n + product
    layer, X = nn.Linear(3, 4), torch.ones(10, 3)
    for parts, rows in (((X, X), 10), ((X, X[:5]), 10), ((X[:6], X[4:8]), 8), ((X[:2], X[8:]), 4), ((X[::2],), 5)):
        held = bytes_held(layer.parameters(), lambda *parts: [layer(part) for part in parts], *parts)
        assert held["activations"] == 12 * rows


def test_forward_and_backward_passes_in_any_order():
    """Three inputs of a layer, of 60, 120 and 180 bytes, and the most of those that are held at a time."""
    layer, outputs, seen = nn.Linear(3, 4), {}, []
    with activations_held(layer.parameters()) as held:
        for n in (1, 2, -1, 3, -3, -2):
            if n > 0:
                outputs[n] = layer(torch.ones(5 * n, 3)).sum()
            else:
                outputs.pop(-n).backward()
            seen.append(held.now_n_bytes)
    assert seen == [60, 180, 120, 300, 120, 0] and held.most_n_bytes == 300


def test_an_output_that_nobody_needs_is_not_held():
    layer = nn.Linear(3, 4)
    with activations_held(layer.parameters()) as held:
        for _ in range(4):
            layer(torch.ones(5, 3))
        with torch.no_grad():
            layer(torch.ones(500, 3))
    assert (held.most_n_bytes, held.now_n_bytes) == (60, 0)


def test_a_tensor_without_memory_of_its_own_counts_nothing():
    weight = torch.ones(3, 2, requires_grad=True)
    with activations_held([weight]) as held:
        torch.sparse.mm(torch.eye(3).to_sparse(), weight).sum().backward()
    assert held.most_n_bytes == 0 and weight.grad.eq(1).all()


def test_views_of_a_tensor_are_counted_once():
    layer, X = nn.Linear(3, 4), torch.ones(10, 3)
    with activations_held(layer.parameters()) as held:
        outputs = [layer(part) for part in (X, X[:5], X[5:])]
        assert held.now_n_bytes == 120
        outputs.pop(0)
        assert held.now_n_bytes == 120
        outputs.clear()
        assert held.now_n_bytes == 0


def test_nothing_is_held_after_an_exception():
    layer = nn.Linear(3, 4)

    def failing():
        output = layer(torch.ones(5, 3))
        raise RuntimeError(f"of {output.sum():.0f}")

    with pytest.raises(RuntimeError), activations_held(layer.parameters()) as held:
        failing()
    assert held.most_n_bytes == 60
    output = layer(torch.ones(50, 3)).sum()  # after the block nothing is counted
    assert (held.most_n_bytes, held.now_n_bytes) == (60, 0)
    output.backward()


def test_gradients_are_those_without_counting():
    torch.manual_seed(0)
    net, X = nn.Sequential(nn.Linear(6, 6), nn.Sigmoid(), nn.Linear(6, 2)), torch.randn(5, 6)
    expected = torch.autograd.grad(net(X).square().sum(), net.parameters())
    with activations_held(net.parameters()):
        net(X).square().sum().backward()
    assert all(torch.equal(param.grad, grad) for param, grad in zip(net.parameters(), expected, strict=True))
