"""What a device holds with each way to split, compared with one device, and a forward pass in parts."""

import pytest
import torch
from torch import nn

from d2lite.labs.chapter_01 import NETS, bytes_sent, forward_in_parts, held_in_all_ways, layers_of, network_of

KINDS = ["parameters", "gradients", "optimizer", "activations"]


@pytest.fixture
def batch():
    return torch.rand(8, 1, 28, 28, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 10


def test_each_way_is_compared_with_one_device(batch):
    net = NETS["LeNet"]()
    n_bytes = sum(p.nbytes for p in net.parameters())
    held = held_in_all_ways(net, *batch)
    assert {way: len(of_devices) for way, of_devices in held.items()} == {
        "one device": 1,
        "data": 2,
        "pipeline": 2,
        "tensor": 2,
    }
    (one,) = held["one device"]
    assert list(one) == KINDS and one["parameters"] == one["gradients"] == n_bytes
    for of_device in held["data"]:  # all parameters, the activations of half of the batch
        assert all(of_device[kind] == one[kind] for kind in KINDS[:3])
        assert 2 * of_device["activations"] == pytest.approx(one["activations"], rel=0.01)
    for way in ("pipeline", "tensor"):  # every parameter is on one device
        assert sum(of_device["parameters"] for of_device in held[way]) == n_bytes
    assert max(sum(each.values()) for each in held["pipeline"]) < sum(one.values())


@pytest.mark.parametrize("name", ["LeNet", "SimpleCNN"])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_a_network_in_parts_computes_what_the_network_computes(name, k, batch):
    net, (X, _), ledger = NETS[name](), batch, []
    nets = [network_of(net, i, k) for i in range(k)]
    logits = forward_in_parts(nets, X, ["cpu"] * k, ledger)
    assert len(logits) == k and all(torch.allclose(each, net(X), atol=1e-5) for each in logits)
    assert sum(ledger) == bytes_sent("tensor", layers_of(net, X), k).activations_n_bytes
    assert sum(p.numel() for each in nets for p in each.parameters()) == sum(p.numel() for p in net.parameters())


def test_the_parts_do_not_change_the_network(batch):
    net = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    before = net[1].weight.detach().clone()
    with torch.no_grad():
        network_of(net, 0, 2)[1].weight.zero_()
    assert torch.equal(net[1].weight, before)
