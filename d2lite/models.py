"""The networks of the book: LeNet (plain tensors, a module, a list of layers), SimpleCNN, an MLP and ResNet-18."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from notebook_ranks.shared.checks import positive_int, positive_number

__all__ = [
    "LeNet", "SimpleCNN", "init_all", "lenet", "lenet_layers", "lenet_params", "mlp_layers", "resnet18",
    "simple_cnn_layers", "small_net",
]  # fmt: skip

# weight shapes of LeNet and the number of inputs that each output of a layer sums over
_LENET = [((20, 1, 3, 3), 9), ((50, 20, 5, 5), 500), ((800, 128), 800), ((128, 10), 128)]


def lenet_params(seed: int = 0, scale: float | None = None) -> list[torch.Tensor]:
    """Return LeNet's 8 parameters as float32 tensors on the CPU.

    They are the weight and the bias of two convolutions, [20, 1, 3, 3], [20] and [50, 20, 5, 5], [50], then of two
    linear layers, [800, 128], [128] and [128, 10], [10]. Weights are normal, with standard deviation `scale`, by
    default sqrt(2 / fan_in) (He et al. 2015, arXiv:1502.01852, eq. 10); biases are zero. The same `seed` gives the same
    values; PyTorch's global generator is left alone.

    Example:
        >>> [tuple(p.shape) for p in lenet_params(seed=0)][:4]
        [(20, 1, 3, 3), (20,), (50, 20, 5, 5), (50,)]
    """
    if scale is not None:
        positive_number("scale", scale)
    generator = torch.Generator().manual_seed(seed)
    params = []
    for shape, fan_in in _LENET:
        deviation = (2 / fan_in) ** 0.5 if scale is None else scale
        outputs = shape[0] if len(shape) == 4 else shape[1]
        params += [torch.randn(shape, generator=generator) * deviation, torch.zeros(outputs)]
    # Convolutions are fastest with the channels last in memory. They follow the layout of their weights, and their
    # output has it too: so the first weight decides for both. It has one channel, so its memory stays as it is.
    params[0] = params[0].to(memory_format=torch.channels_last)
    return params


def lenet(X: torch.Tensor, params: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return LeNet's logits [b, 10], one per class, for images `X` [b, 1, 28, 28] and the `params` of `lenet_params`.

    Example:
        >>> lenet(torch.zeros(2, 1, 28, 28), lenet_params()).shape
        torch.Size([2, 10])
    """
    W1, b1, W2, b2, W3, b3, W4, b4 = params
    # relu_ writes its result over its input. Two replicas on two cores then need 0.87 s and not 0.92 s
    # for 10,240 examples (minibatches of 256, AMD EPYC, torch 2.15).
    h = F.avg_pool2d(F.relu_(F.conv2d(X, W1, b1)), 2)  # [b, 20, 13, 13]
    h = F.avg_pool2d(F.relu_(F.conv2d(h, W2, b2)), 2)  # [b, 50, 4, 4]
    h = F.relu_(h.flatten(1) @ W3 + b3)  # [b, 128]
    return h @ W4 + b4


def lenet_layers() -> nn.Sequential:
    """Return the layers of `lenet` with names, initialised by PyTorch, whose weights are [outputs, inputs]."""
    layers: dict[str, nn.Module] = dict(conv1=nn.Conv2d(1, 20, 3), relu1=nn.ReLU(), pool1=nn.AvgPool2d(2))
    layers |= dict(conv2=nn.Conv2d(20, 50, 5), relu2=nn.ReLU(), pool2=nn.AvgPool2d(2), flatten=nn.Flatten())
    layers |= dict(linear1=nn.Linear(800, 128), relu3=nn.ReLU(), linear2=nn.Linear(128, 10))
    return nn.Sequential(OrderedDict(layers))


class LeNet(nn.Module):
    """LeNet as a module: the same 8 parameters, the same function."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.params = nn.ParameterList(lenet_params(seed))

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        return lenet(X, list(self.params))


class _Residual(nn.Module):
    """Two 3x3 convolutions and a shortcut around them (He et al. 2016, arXiv:1512.03385)."""

    def __init__(self, in_channels: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, channels, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        is_same = stride == 1 and in_channels == channels
        self.shortcut = nn.Identity() if is_same else nn.Conv2d(in_channels, channels, 1, stride)

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        h = F.relu(self.bn1(self.conv1(X)))
        return F.relu(self.bn2(self.conv2(h)) + self.shortcut(X))


def resnet18(num_classes: int, in_channels: int = 1, width: int = 64) -> nn.Sequential:
    """Return a ResNet-18 for small images: its first convolution is 3x3 with stride 1, and there is no max-pooling.

    It maps [b, in_channels, h, w] to logits [b, num_classes]. The four stages have `width` (64 in the paper), 2, 4 and
    8 times as many channels.
    """
    positive_int("num_classes", num_classes)
    positive_int("in_channels", in_channels)
    positive_int("width", width)
    layers: list[nn.Module] = [nn.Conv2d(in_channels, width, 3, padding=1, bias=False)]
    layers += [nn.BatchNorm2d(width), nn.ReLU()]
    channels = width
    for stage in range(4):
        for block in range(2):
            stride = 2 if stage > 0 and block == 0 else 1
            layers.append(_Residual(channels, width * 2**stage, stride))
            channels = width * 2**stage
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, num_classes))


def simple_cnn_layers() -> nn.Sequential:
    """Return a convolution of 32 channels, max-pooling and a linear layer: [b, 1, 28, 28] -> logits [b, 10]."""
    layers = dict(conv=nn.Conv2d(1, 32, 3, padding=1), relu=nn.ReLU(), pool=nn.MaxPool2d(2), flatten=nn.Flatten())
    return nn.Sequential(OrderedDict(layers, linear=nn.Linear(32 * 14 * 14, 10)))


class SimpleCNN(nn.Sequential):
    """The layers of `simple_cnn_layers` as a module of its own: [b, 1, 28, 28] -> logits [b, 10]."""

    def __init__(self) -> None:
        super().__init__(OrderedDict(simple_cnn_layers().named_children()))


def mlp_layers(widths: Sequence[int] = (784, 4096, 4096, 4096, 10)) -> nn.Sequential:
    """Return a multilayer perceptron as a list of layers with names: inputs, hidden layers, outputs are `widths` wide.

    It flattens what it reads and has a ReLU between two linear layers: [b, 1, 28, 28] -> logits [b, 10].
    """
    layers: dict[str, nn.Module] = dict(flatten=nn.Flatten())
    for i, (inputs, outputs) in enumerate(zip(widths, widths[1:], strict=False), 1):
        layers |= {f"linear{i}": nn.Linear(inputs, outputs), f"relu{i}": nn.ReLU()}
    layers.popitem()  # no ReLU after the last
    return nn.Sequential(OrderedDict(layers))


def small_net(width: int = 16) -> nn.Sequential:
    """Return 4x4 patches, two linear layers, two BatchNorms: [b, 1, 28, 28] -> logits [b, 10], 25,770 parameters."""
    layers: list[nn.Module] = [nn.Conv2d(1, width, 4, stride=4, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    layers += [nn.Flatten(), nn.Linear(49 * width, 32, bias=False), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 10)]
    return nn.Sequential(*layers)


def init_all(net: nn.Module, seed: int = 0) -> nn.Module:
    """Give every layer of `net` fresh values, including the running statistics of batch normalisation; return `net`.

    The same `seed` gives the same values; the global generator is left alone. Raises TypeError, before anything is
    changed, if a layer holds parameters or buffers and has no `reset_parameters`.

    Example:
        >>> first = init_all(nn.Linear(2, 1), seed=7).weight.tolist()
        >>> first == init_all(nn.Linear(2, 1), seed=7).weight.tolist()
        True
    """
    layers: list[Any] = [m for m in net.modules() if _own_state(m)]
    for layer in layers:
        if not hasattr(layer, "reset_parameters"):
            raise TypeError(
                f"init_all: expected every layer with state to have reset_parameters(), got "
                f"{type(layer).__name__} without. Make a new network for each run instead."
            )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for layer in layers:
            device = _own_state(layer)[0].device
            layer.cpu().reset_parameters()  # on the CPU, so that the values are the same on every device
            layer.to(device)
    return net


def _own_state(layer: nn.Module) -> list[torch.Tensor]:
    return [*layer.parameters(recurse=False), *layer.buffers(recurse=False)]
