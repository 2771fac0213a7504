import functools

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from d2lite.models import lenet_layers
from d2lite.profiling.memory_held import bytes_held


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
