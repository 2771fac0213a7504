import pytest
import torch
import torch.nn.functional as F
from torch import nn

from d2lite.devices import try_gpus
from d2lite.labs.chapter_01.model_parallel import ModelParallel
from d2lite.models import resnet18, simple_cnn_layers


def cut(net, *places):
    places = (0, *places, len(net))
    return [net[i:j] for i, j in zip(places, places[1:], strict=False)]


@pytest.mark.parametrize(
    "make, places",
    [(simple_cnn_layers, (4,)), pytest.param(lambda: resnet18(10, width=4), (3, 7), marks=pytest.mark.slow)],
)
def test_stages_equal_one_device_after_steps_of_adam(batch, make, places):
    torch.manual_seed(0)
    one, start = make().double(), make().double()
    start.load_state_dict(one.state_dict())
    net = ModelParallel(cut(start, *places), try_gpus(len(places) + 1))
    optimizers = [torch.optim.Adam(each.parameters(), lr=0.001) for each in (one, net)]
    for _ in range(5):
        X, y = batch(12)
        for each, optimizer in zip((one, net), optimizers, strict=True):
            optimizer.zero_grad()
            output = each(X.double())
            F.cross_entropy(output, y.to(output.device)).backward()
            optimizer.step()
    for (name, p), q in zip(one.state_dict().items(), net.state_dict().values(), strict=True):
        assert (p - q.cpu()).abs().max() < 1e-9, name  # batch normalisation included: every stage has all examples


def test_a_stage_gets_a_copy_and_its_gradient_goes_back(batch):
    seen, gradients = [], []

    class Keeps(nn.Identity):
        def forward(self, X):
            seen.append(X)
            if X.requires_grad:
                X.register_hook(lambda grad: gradients.append(grad.shape))
            return X

    first = nn.Sequential(nn.Flatten(), nn.Linear(784, 3), Keeps())
    net = ModelParallel([first, nn.Sequential(Keeps(), nn.Linear(3, 10))], try_gpus(2))
    X, y = batch(6)
    F.cross_entropy(net(X), y.to(net.devices[-1])).backward()
    assert seen[0].data_ptr() != seen[1].data_ptr()
    assert gradients == [(6, 3), (6, 3)]
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in net.parameters())


def test_wrong_input():
    stages = cut(simple_cnn_layers(), 4)
    with pytest.raises(ValueError, match=r"expected 2 \(one per stage\), got 3"):
        ModelParallel(stages, ["cpu"] * 3)
    with pytest.raises(TypeError, match="expected a list of devices"):
        ModelParallel(stages, "cpu")
    with pytest.raises(TypeError, match="stages: expected modules"):
        ModelParallel([stages[0], torch.relu], ["cpu"] * 2)
    with pytest.raises(ValueError, match="stages: expected at least one"):
        ModelParallel([], ["cpu"])
