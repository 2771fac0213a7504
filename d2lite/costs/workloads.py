"""Networks as the cost model sees them: bytes of each gradient, and multiplications behind it."""

from collections import OrderedDict
from dataclasses import dataclass
from functools import cache

import torch
from torch import nn

from d2lite.models import resnet18

__all__ = ["NETWORKS", "Workload", "named_workload", "workload"]


@dataclass(frozen=True)
class Workload:
    """A network's parameter tensors in the order of the forward pass, and the size of its data set.

    `n_bytes` holds the bytes of each tensor's gradient, `macs` the multiplications of weights with inputs that one
    example costs in the forward pass (0 for biases and normalisation). The backward pass costs twice as many: it makes
    a gradient for the inputs and one for the weights.
    """

    name: str
    n_bytes: tuple
    macs: tuple
    num_examples: int = 60_000

    @property
    def total_n_bytes(self):
        """Bytes of all gradients: what an all-reduce sums."""
        return sum(self.n_bytes)

    @property
    def flops(self):
        """Floating point operations of forward and backward for one example: two a multiplication, three passes."""
        return 6 * sum(self.macs)


def workload(net, X, name="", num_examples=60_000):
    """Return the Workload of a module, found by a forward pass of X [1, ...], best on the device "meta".

    Convolutions and linear layers are counted; an example's multiplications are its output's places times the
    weights. Raises ValueError for a network without such layers (one that calls functions instead, for example).
    """
    macs = {}

    def count(layer, inputs, output):
        places = output[0].numel() // layer.weight.shape[0]  # 1 for a linear layer of a flat input
        macs[layer.weight] = macs.get(layer.weight, 0) + places * layer.weight.numel()

    layers = [layer for layer in net.modules() if isinstance(layer, (nn.Conv2d, nn.Linear))]
    handles = [layer.register_forward_hook(count) for layer in layers]
    was_training = net.training
    try:
        with torch.no_grad():
            net.eval()(X)
    finally:
        for handle in handles:
            handle.remove()
        net.train(was_training)
    tensors = [p for p in net.parameters() if p.requires_grad]
    if not any(p in macs for p in tensors):
        raise ValueError("net: expected a module with layers of nn.Conv2d or nn.Linear to train, got none.")
    n_bytes = tuple(p.numel() * p.element_size() for p in tensors)
    return Workload(name, n_bytes, tuple(macs.get(p, 0) for p in tensors), num_examples)


def _lenet():
    layers = dict(conv1=nn.Conv2d(1, 20, 3), pool1=nn.AvgPool2d(2), conv2=nn.Conv2d(20, 50, 5), pool2=nn.AvgPool2d(2))
    layers |= dict(flatten=nn.Flatten(), linear1=nn.Linear(800, 128), linear2=nn.Linear(128, 10))
    return nn.Sequential(OrderedDict(layers))  # activations have no parameters: the costs are the same without them


def _mlp():
    widths = (784, 4096, 4096, 4096, 10)
    return nn.Sequential(nn.Flatten(), *(nn.Linear(a, b) for a, b in zip(widths, widths[1:], strict=False)))


def _torchvision(name, **options):
    from torchvision import models  # takes a second to load: only when asked for

    return lambda: getattr(models, name)(**options)


# name -> (maker of the network, shape of an example, training examples)
FASHION, IMAGENET = ((1, 28, 28), 60_000), ((3, 224, 224), 1_281_167)
NETWORKS = {
    "LeNet": (lambda: _lenet, *FASHION),
    "MLP, three layers of 4096": (lambda: _mlp, *FASHION),
    "ResNet-18, small images": (lambda: lambda: resnet18(10), *FASHION),
    "ResNet-50": (lambda: _torchvision("resnet50"), *IMAGENET),
    "ResNet-101": (lambda: _torchvision("resnet101"), *IMAGENET),
    "VGG-16": (lambda: _torchvision("vgg16", init_weights=False), *IMAGENET),
    "Inception V3": (
        lambda: _torchvision("inception_v3", init_weights=False, aux_logits=False),
        (3, 299, 299),
        IMAGENET[1],
    ),
}


@cache
def named_workload(name):
    """Return the Workload of one of NETWORKS; the ImageNet ones are torchvision's, which must be installed.

    Raises ValueError for another name.
    """
    if name not in NETWORKS:
        raise ValueError(f"name: expected one of {', '.join(NETWORKS)}, got {name!r}.")
    find, shape, num_examples = NETWORKS[name]
    with torch.device("meta"):  # shapes only: no memory, no arithmetic
        return workload(find()(), torch.empty(1, *shape), name, num_examples)
