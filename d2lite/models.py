"""The networks of the book: LeNet (plain tensors, and as a module), ResNet-18 and SimpleCNN."""

import torch
import torch.nn.functional as F
from torch import nn

from d2lite._checks import positive_int, positive_number

__all__ = ["LeNet", "SimpleCNN", "lenet", "lenet_params", "resnet18"]

# weight shapes of LeNet and the number of inputs that each output of a layer sums over
_LENET = [((20, 1, 3, 3), 9), ((50, 20, 5, 5), 500), ((800, 128), 800), ((128, 10), 128)]


def lenet_params(seed=0, scale=None):
    """Return LeNet's 8 parameters (weight, bias of 4 layers) as float32 tensors on the CPU.

    Weights are normal with deviation sqrt(2 / fan_in) (He et al. 2015, arXiv:1502.01852, eq. 10), or `scale` if
    given; biases are zero. The same seed gives the same values and leaves the global generator alone.
    """
    if scale is not None:
        positive_number("scale", scale)
    generator = torch.Generator().manual_seed(seed)
    params = []
    for shape, fan_in in _LENET:
        deviation = (2 / fan_in) ** 0.5 if scale is None else scale
        outputs = shape[0] if len(shape) == 4 else shape[1]
        params += [torch.randn(shape, generator=generator) * deviation, torch.zeros(outputs)]
    return params


def lenet(X, params):
    """Return the logits [b, 10] of LeNet for images X [b, 1, 28, 28]."""
    W1, b1, W2, b2, W3, b3, W4, b4 = params
    X = X.to(memory_format=torch.channels_last)  # same numbers, in the order that convolutions like best
    h = F.avg_pool2d(F.relu(F.conv2d(X, W1, b1)), 2)  # [b, 20, 13, 13]
    h = F.avg_pool2d(F.relu(F.conv2d(h, W2, b2)), 2)  # [b, 50, 4, 4]
    h = F.relu(h.flatten(1) @ W3 + b3)  # [b, 128]
    return h @ W4 + b4


class LeNet(nn.Module):
    """LeNet as a module: the same 8 parameters, the same function."""

    def __init__(self, seed=0):
        super().__init__()
        params = lenet_params(seed)
        params[0] = params[0].to(memory_format=torch.channels_last)  # the same memory; else DDP warns of its strides
        self.params = nn.ParameterList(params)

    def forward(self, X):
        return lenet(X, list(self.params))


class _Residual(nn.Module):
    """Two 3x3 convolutions and a way around them (He et al. 2016, arXiv:1512.03385)."""

    def __init__(self, in_channels, channels, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, channels, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.shortcut = nn.Identity()
        if stride != 1 or in_channels != channels:
            self.shortcut = nn.Conv2d(in_channels, channels, 1, stride)

    def forward(self, X):
        h = F.relu(self.bn1(self.conv1(X)))
        return F.relu(self.bn2(self.conv2(h)) + self.shortcut(X))


def resnet18(num_classes, in_channels=1, width=64):
    """Return a ResNet-18 for small images: 3x3 first convolution of stride 1, no max-pooling.

    `width` is the number of channels of the first stage (64 in the paper); the others have 2, 4 and 8 times as many.
    Takes [b, in_channels, h, w], gives logits [b, num_classes].
    """
    positive_int("num_classes", num_classes)
    positive_int("in_channels", in_channels)
    positive_int("width", width)
    layers = [nn.Conv2d(in_channels, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    channels = width
    for stage in range(4):
        for block in range(2):
            stride = 2 if stage > 0 and block == 0 else 1
            layers.append(_Residual(channels, width * 2**stage, stride))
            channels = width * 2**stage
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, num_classes))


class SimpleCNN(nn.Module):
    """One convolution of 32 channels, max-pooling and one linear layer: [b, 1, 28, 28] -> logits [b, 10]."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 32, 3, padding=1)
        self.linear = nn.Linear(32 * 14 * 14, 10)

    def forward(self, X):
        return self.linear(F.max_pool2d(F.relu(self.conv(X)), 2).flatten(1))
