import pytest
import torch
import torch.nn.functional as F
from torch import nn

from d2lite.models import (
    LeNet,
    SimpleCNN,
    init_all,
    lenet,
    lenet_layers,
    lenet_params,
    mlp_layers,
    resnet18,
    simple_cnn_layers,
)
from d2lite.training import replicate


def test_lenet_params_depend_on_the_seed_alone():
    state = torch.get_rng_state()
    one, two, other = lenet_params(3), lenet_params(3), lenet_params(4)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(p, q) for p, q in zip(one, two, strict=True))
    assert not torch.equal(one[0], other[0])
    assert [tuple(p.shape) for p in one] == [
        (20, 1, 3, 3), (20,), (50, 20, 5, 5), (50,), (800, 128), (128,), (128, 10), (10,),
    ]  # fmt: skip


def test_the_first_weight_makes_the_convolutions_channels_last_and_every_copy_keeps_it():
    for params in (lenet_params(), replicate(lenet_params(), ["cpu"])[0], list(LeNet().parameters())):
        assert params[0].is_contiguous(memory_format=torch.channels_last)
        assert F.conv2d(torch.rand(2, 1, 28, 28), params[0]).is_contiguous(memory_format=torch.channels_last)
        assert all(param.is_contiguous() for param in params)  # .view(-1) works on each


@pytest.mark.parametrize(("i", "fan_in"), [(2, 500), (4, 800), (6, 128)])
def test_lenet_params_are_kaiming_normal(i, fan_in):
    # the sample deviation of n normal numbers is off by about 1/sqrt(2n): 4 of these
    W = lenet_params()[i]
    assert abs(W.std() / (2 / fan_in) ** 0.5 - 1) < 4 / (2 * W.numel()) ** 0.5
    assert abs(lenet_params(scale=0.01)[i].std() / 0.01 - 1) < 4 / (2 * W.numel()) ** 0.5


def test_lenet_as_function_and_as_module_agree(batch):
    X, _ = batch(3)
    assert torch.equal(LeNet(seed=1)(X), lenet(X, lenet_params(1)))
    assert len(list(LeNet().parameters())) == 8


def test_lenet_as_layers_is_the_same_function(batch):
    X, net, params = batch(3)[0], lenet_layers(), lenet_params(1)
    with torch.no_grad():
        for p, given in zip(net.parameters(), params, strict=True):
            p.copy_(given if p.shape == given.shape else given.T)  # lenet's linear weights are [inputs, outputs]
    assert torch.allclose(net(X), lenet(X, params), atol=1e-5)


def test_lenet_params_refuses_a_scale():
    with pytest.raises(ValueError, match="scale: expected a finite number above 0, got 0"):
        lenet_params(scale=0)


@pytest.mark.parametrize("width", [4, 8])
def test_resnet18_has_18_layers_with_weights(batch, width):
    net = resnet18(7, width=width)
    assert net(batch(2)[0]).shape == (2, 7)
    main = [m for name, m in net.named_modules() if "shortcut" not in name]
    assert sum(isinstance(m, (torch.nn.Conv2d, torch.nn.Linear)) for m in main) == 18
    assert net[0].stride == (1, 1) and not any(isinstance(m, torch.nn.MaxPool2d) for m in main)


def test_resnet18_of_the_paper_has_11_million_parameters():
    assert round(sum(p.numel() for p in resnet18(10).parameters()) / 1e6, 1) == 11.2


@pytest.mark.parametrize("args", [(0,), (10, 0), (10, 1, -1)])
def test_resnet18_refuses(args):
    with pytest.raises(ValueError, match="expected a positive whole number"):
        resnet18(*args)


@pytest.mark.parametrize("make", [SimpleCNN, simple_cnn_layers])
def test_simple_cnn_by_its_functions(make, batch):
    X, net = batch(2)[0], make()
    assert [name for name, _ in net.named_parameters()] == ["conv.weight", "conv.bias", "linear.weight", "linear.bias"]
    h = F.max_pool2d(F.relu(F.conv2d(X, net.conv.weight, net.conv.bias, padding=1)), 2)
    expected = F.linear(h.flatten(1), net.linear.weight, net.linear.bias)
    assert expected.shape == (2, 10) and torch.allclose(net(X), expected, atol=1e-5)


def test_mlp_has_a_relu_between_its_linear_layers():
    net = mlp_layers((784, 7, 5, 10))
    assert [name for name, _ in net.named_children()] == ["flatten", "linear1", "relu1", "linear2", "relu2", "linear3"]
    assert net(torch.rand(2, 1, 28, 28)).shape == (2, 10)
    with torch.device("meta"):
        assert sum(p.numel() for p in mlp_layers().parameters()) * 4 == 147_275_816


def test_init_all_covers_the_running_statistics(batch):
    net = init_all(resnet18(10, width=4), seed=1)
    before = {name: t.clone() for name, t in net.state_dict().items()}
    state = torch.get_rng_state()
    net(batch(8)[0])
    net[0].weight.data.fill_(9)
    assert not torch.equal(net[1].running_mean, before["1.running_mean"])
    init_all(net, seed=1)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(t, before[name]) for name, t in net.state_dict().items())
    assert not torch.equal(init_all(net, seed=2)[0].weight, before["0.weight"])


def test_init_all_refuses_what_it_cannot_reset():
    net = nn.Sequential(nn.Linear(2, 2), LeNet())
    before = net[0].weight.clone()
    with pytest.raises(TypeError, match="reset_parameters.*ParameterList without"):
        init_all(net)
    assert torch.equal(net[0].weight, before)
