import pytest
import torch

from d2lite.models import LeNet, SimpleCNN, lenet, lenet_params, resnet18


def test_lenet_params_depend_on_the_seed_alone():
    state = torch.get_rng_state()
    one, two, other = lenet_params(3), lenet_params(3), lenet_params(4)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(p, q) for p, q in zip(one, two, strict=True))
    assert not torch.equal(one[0], other[0])
    assert [tuple(p.shape) for p in one] == [
        (20, 1, 3, 3), (20,), (50, 20, 5, 5), (50,), (800, 128), (128,), (128, 10), (10,),
    ]  # fmt: skip


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


def test_simple_cnn(batch):
    assert SimpleCNN()(batch(2)[0]).shape == (2, 10)
