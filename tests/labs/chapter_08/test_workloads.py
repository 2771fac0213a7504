import subprocess
import sys
import threading

import pytest
import torch
from torch import nn

from d2lite import lenet_params, resnet18
from d2lite.labs.chapter_01.partitioning import layers_of
from d2lite.labs.chapter_08.workloads import NETWORKS, named_workload, workload
from d2lite.models import lenet_layers

IMAGENET = {"ResNet-50": "ResNet50", "ResNet-101": "ResNet101", "VGG-16": "VGG16", "Inception V3": "Inception_V3"}


def test_lenet_by_hand():
    found = named_workload("LeNet")
    # 26x26 places of 9 products each for 20 maps, 9x9 of 500 for 50, and two linear layers
    assert sum(found.macs) == 26 * 26 * 20 * 9 + 9 * 9 * 50 * 500 + 800 * 128 + 128 * 10
    assert found.n_bytes == tuple(4 * p.numel() for p in lenet_params())
    assert found.total_n_bytes == 516_272
    assert found.flops == 6 * sum(found.macs)


@pytest.mark.parametrize("net", [resnet18(10, width=8), nn.Sequential(nn.Flatten(), nn.Linear(784, 10))])
def test_multiplications_and_bytes_agree_with_those_of_partitioning(net):
    X = torch.empty(1, 1, 28, 28)
    layers, found = layers_of(net, X), workload(net, X)
    assert sum(found.macs) == sum(layer.n_macs for layer in layers)
    assert found.total_n_bytes == sum(layer.params_n_bytes for layer in layers)
    assert net.training


@pytest.mark.parametrize("name", NETWORKS)
def test_multiplications_are_those_that_pytorch_counts(name):
    if name in IMAGENET:
        pytest.importorskip("torchvision")
    from torch.utils.flop_counter import FlopCounterMode

    make, shape, _ = NETWORKS[name]
    with torch.device("meta"), torch.no_grad(), FlopCounterMode(display=False) as counter:
        net = make().eval()
        net(torch.empty(1, *shape))
    layers = {f"{type(net).__name__}.{n}": m for n, m in net.named_modules() if isinstance(m, (nn.Conv2d, nn.Linear))}
    counted = {layers[n].weight: sum(c.values()) // 2 for n, c in counter.get_flop_counts().items() if n in layers}
    assert named_workload(name).macs == tuple(counted.get(p, 0) for p in net.parameters())


@pytest.mark.parametrize("name, theirs", IMAGENET.items())
def test_imagenet_networks_are_those_that_torchvision_describes(name, theirs):
    models = pytest.importorskip("torchvision").models
    meta = getattr(models, f"{theirs}_Weights").IMAGENET1K_V1.meta
    found = named_workload(name)
    assert round(sum(found.macs) / 1e9, 2) == round(meta["_ops"], 2)
    second_classifier = 3_326_696 if name == "Inception V3" else 0  # only used to help training, and left out here
    assert found.total_n_bytes == 4 * (meta["num_params"] - second_classifier)
    assert found.num_examples == 1_281_167


def test_a_small_network_on_meta_does_not_load_the_compiler():
    code = "import sys; from d2lite.labs.chapter_08 import named_workload; named_workload('ResNet-18, small images')"
    subprocess.run([sys.executable, "-c", f"{code}; assert 'sympy' not in sys.modules"], check=True)


def test_a_small_network_on_meta_may_have_tied_weights_and_make_tensors():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
            self.second.weight = self.first.weight

        def forward(self, X):
            return self.second(self.first(X + torch.ones(4)))

    with torch.device("meta"):
        on_meta = workload(Tied(), torch.empty(1, 4))
        assert on_meta == workload(Tied(), torch.empty(1, 4))
    assert on_meta == workload(Tied(), torch.empty(1, 4)) and on_meta.macs == (32, 0, 0)


def test_another_thread_that_runs_the_network_changes_nothing():
    net, X, stop = lenet_layers(), torch.rand(8, 1, 28, 28), threading.Event()

    def run():
        while not stop.is_set():
            lenet_layers()(X)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        found = [workload(net, X[:1]).macs for _ in range(20)]
    finally:
        stop.set()
        thread.join()
    assert set(found) == {named_workload("LeNet").macs}


def test_a_layer_used_twice_counts_twice():
    layer = nn.Linear(8, 8)
    assert sum(workload(nn.Sequential(layer, layer), torch.empty(1, 8)).macs) == 2 * 64


def test_wrong_input_is_explained():
    with pytest.raises(ValueError, match="expected one of LeNet, "):
        named_workload("AlexNet")
    with pytest.raises(ValueError, match="layers of nn.Conv2d or nn.Linear"):
        workload(nn.ReLU(), torch.empty(1, 8))
    assert "LeNet" in NETWORKS
