"""Networks as the cost model sees them: the bytes of each gradient, and the multiplications that produce it."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import nn

from d2lite._install import missing
from d2lite.models import lenet_layers, mlp_layers, resnet18
from notebook_ranks.shared.checks import instance_of, one_of, positive_int

from ..chapter_01.forward_pass import forward_calls

__all__ = ["NETWORKS", "Workload", "named_workload", "workload"]


@dataclass(frozen=True)
class Workload:
    """A network's parameter tensors in the order of the forward pass, and the size of its data set.

    `n_bytes` holds the bytes of each tensor's gradient, `macs` the multiplications of weights with inputs in the
    forward pass of one example (0 for biases and normalisation). The backward pass costs twice as many: it computes a
    gradient for the inputs and one for the weights.
    """

    name: str
    n_bytes: tuple[int, ...]
    macs: tuple[int, ...]
    num_examples: int = 60_000

    @property
    def total_n_bytes(self) -> int:
        """Bytes of all gradients: what an all-reduce sums."""
        return sum(self.n_bytes)

    @property
    def flops(self) -> int:
        """Floating point operations of forward and backward for one example: two per multiplication, three passes."""
        return 6 * sum(self.macs)


def workload(net: nn.Module, X: torch.Tensor, name: str = "", num_examples: int = 60_000) -> Workload:
    """Return the Workload of a module, found by a forward pass of X, [1, ...], best on the device "meta".

    Convolutions and linear layers are counted: the multiplications of one example are the numbers in the output times
    the weights that each sums over. Raises ValueError for a network without such layers (for example one that calls
    functions instead), or for an X without examples, TypeError for arguments of other types.
    """
    instance_of("net", net, nn.Module)
    if not len(instance_of("X", X, torch.Tensor).shape) or not len(X):
        raise ValueError(f"X: expected a minibatch of at least one example, got the shape {tuple(X.shape)}.")
    positive_int("num_examples", num_examples)
    was_training = net.training
    try:
        calls = forward_calls(net.eval(), X, (nn.Conv2d, nn.Linear))
    finally:
        net.train(was_training)
    macs: Counter[object] = Counter()  # by weight; a layer that is used twice counts twice
    for call in calls:
        macs[call.module.weight] += call.n_macs // len(call.output)
    tensors = [p for p in net.parameters() if p.requires_grad]
    if not any(p in macs for p in tensors):
        raise ValueError("net: expected a module with layers of nn.Conv2d or nn.Linear to train, got none.")
    n_bytes = tuple(p.numel() * p.element_size() for p in tensors)
    return Workload(name, n_bytes, tuple(macs[p] for p in tensors), num_examples)


def _torchvision(name: str, **options: Any) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        try:
            from torchvision import models  # takes a second to load: only when it is needed
        except ModuleNotFoundError as error:
            raise missing(f"the network {name}", "torchvision") from error
        return getattr(models, name)(**options)

    return make


# name -> (maker of the network, shape of an example, training examples)
FASHION, IMAGENET = ((1, 28, 28), 60_000), ((3, 224, 224), 1_281_167)
NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int]] = {
    "LeNet": (lenet_layers, *FASHION),
    "MLP, three layers of 4096": (mlp_layers, *FASHION),
    "ResNet-18, small images": (lambda: resnet18(10), *FASHION),
    "ResNet-50": (_torchvision("resnet50"), *IMAGENET),
    "ResNet-101": (_torchvision("resnet101"), *IMAGENET),
    "VGG-16": (_torchvision("vgg16", init_weights=False), *IMAGENET),
    "Inception V3": (_torchvision("inception_v3", init_weights=False, aux_logits=False), (3, 299, 299), IMAGENET[1]),
}


def named_workload(name: str) -> Workload:
    """Return the Workload of one of NETWORKS. The networks for ImageNet need torchvision.

    Raises ValueError for an unknown name, and TypeError for anything but a text.
    """
    return _named_workload(one_of("name", name, NETWORKS))


@cache
def _named_workload(name: str) -> Workload:
    make, shape, num_examples = NETWORKS[name]
    with torch.device("meta"):  # shapes only: no memory, no arithmetic
        return workload(make(), torch.empty(1, *shape), name, num_examples)
