"""The names of the book "Dive into Deep Learning" (d2l 1.0.3) that its multi-GPU lessons call, with their contracts.

`from d2lite import d2l` runs those lessons. Some of these names are written for them here; the others are the kit's own
functions, which have the same arguments and results. A few more, such as `scatter` and `synchronize`, are what a lesson
calls instead of PyTorch's on a machine without GPUs.
"""

import importlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from d2lite.data import BatchIterator
from d2lite.data import load_data_fashion_mnist as _load_data
from d2lite.devices import num_gpus, synchronize, try_all_gpus, try_gpu, try_gpus
from d2lite.meters import Accumulator, Timer
from d2lite.models import lenet, lenet_params, resnet18
from d2lite.training import DataParallel, evaluate_accuracy_gpus, evaluating, replicate, scatter, split_batch

__all__ = [  # `Animator` and `plt` are here too, and loaded when they are used
    "Accumulator",
    "Benchmark",
    "DataParallel",
    "Residual",
    "Timer",
    "accuracy",
    "evaluate_accuracy_gpu",
    "evaluate_accuracy_gpus",
    "lenet",
    "lenet_params",
    "load_data_fashion_mnist",
    "num_gpus",
    "replicate",
    "resnet18",
    "scatter",
    "set_figsize",
    "sgd",
    "split_batch",
    "synchronize",
    "try_all_gpus",
    "try_gpu",
    "try_gpus",
]


def sgd(params: Iterable[torch.Tensor], lr: float, batch_size: int) -> None:
    """Take one step of minibatch SGD in place, and set the gradients to zero, as d2l's `sgd` does.

    `sgd_step` of this kit leaves the gradients: `forward_backward` discards them. A loop that calls `backward` without
    discarding them needs this one: otherwise every step also repeats all earlier gradients.

    Args:
        params: parameters whose `.grad` is a sum over the examples of the whole minibatch.
        lr: the learning rate.
        batch_size: the number of those examples, of all devices together.

    Raises:
        ValueError: if a parameter has no gradient.

    Example:
        >>> param = torch.tensor([1.0])
        >>> param.grad = torch.tensor([4.0])
        >>> sgd([param], lr=0.1, batch_size=2)
        >>> round(param.item(), 6), param.grad.item()
        (0.8, 0.0)
    """
    with torch.no_grad():
        for i, param in enumerate(params):
            if param.grad is None:
                raise ValueError(f"sgd: expected a gradient in .grad of each parameter, got None at index {i}.")
            param.sub_(param.grad, alpha=lr / batch_size)
            param.grad.zero_()


def accuracy(y_hat: torch.Tensor, y: torch.Tensor) -> float:
    """Return the *number* of correct predictions, as a float: it is a count and not a fraction.

    Args:
        y_hat: scores [b, classes], whose largest decides, or predicted classes [b] or [b, 1].
        y: labels [b].

    Raises:
        ValueError: if there are not as many labels as predictions.

    Example:
        >>> accuracy(torch.tensor([[0.1, 0.9], [0.8, 0.2]]), torch.tensor([1, 1]))
        1.0
    """
    if y_hat.dim() > 1 and y_hat.shape[1] > 1:
        y_hat = y_hat.argmax(1)
    if y_hat.numel() != y.numel():
        raise ValueError(f"accuracy: expected as many labels as predictions, got {y.numel()} and {y_hat.numel()}.")
    return float((y_hat.reshape(y.shape).to(y.dtype) == y).sum())


def evaluate_accuracy_gpu(
    net: Callable[[Any], torch.Tensor], data_iter: Iterable[Any], device: torch.device | None = None
) -> float:
    """Return the fraction of examples (0..1) that `net` classifies correctly, on one device.

    Unlike d2l's, it gives a module back in the mode in which it came: `net.train()` after it is not needed.

    Args:
        net: a module, a DataParallel included, or any function of X with scores [b, classes] as its result.
        data_iter: minibatches X, y; X may be a list of tensors.
        device: the device of X and y; by default that of a module's parameters, else where y is.

    Raises:
        ValueError: if `data_iter` is empty.

    Example:
        >>> evaluate_accuracy_gpu(nn.Identity(), [(torch.eye(2), torch.tensor([0, 0]))])
        0.5
    """
    if device is None and isinstance(net, nn.Module):
        device = next((p.device for p in net.parameters()), None)
    correct, total = 0.0, 0
    with torch.no_grad(), evaluating(net):
        for X, y in data_iter:
            here = device or y.device
            X = [x.to(here) for x in X] if isinstance(X, list) else X.to(here)
            correct, total = correct + accuracy(net(X), y.to(here)), total + y.numel()
    if total == 0:
        raise ValueError("data_iter: expected at least one minibatch, got none.")
    return correct / total


class Residual(nn.Module):
    """The residual block of ResNet (He et al. 2015): two 3x3 convolutions, whose result is added to the input.

    [b, c, h, w] -> [b, num_channels, h / strides, w / strides]; the number c is read from the first input.

    Args:
        num_channels: channels of the output.
        use_1x1conv: whether a 1x1 convolution fits the input to the output; needed where channels or size change.
        strides: the stride of the first convolution.

    Example:
        >>> Residual(6, use_1x1conv=True, strides=2)(torch.rand(4, 3, 6, 6)).shape
        torch.Size([4, 6, 3, 3])
    """

    def __init__(self, num_channels: int, use_1x1conv: bool = False, strides: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.LazyConv2d(num_channels, 3, padding=1, stride=strides)
        self.bn1 = nn.BatchNorm2d(num_channels)
        self.conv2 = nn.Conv2d(num_channels, num_channels, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(num_channels)
        self.conv3 = nn.LazyConv2d(num_channels, 1, stride=strides) if use_1x1conv else None

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        """Return the activations [b, num_channels, h / strides, w / strides]."""
        Y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(X)))))
        return F.relu(Y + (X if self.conv3 is None else self.conv3(X)))


class Benchmark:
    """Measure a block of code, and print its description and its seconds when it ends.

    Work that a GPU has not finished is not waited for: call `synchronize(devices)` inside the block.

    Args:
        description: the text in front of the time.

    Example:
        >>> with Benchmark("nothing"):  # doctest: +ELLIPSIS
        ...     pass
        nothing: 0.0... sec
    """

    def __init__(self, description: str = "Done") -> None:
        self.description = description

    def __enter__(self) -> "Benchmark":
        self.timer = Timer()
        return self

    def __exit__(self, *error: Any) -> None:
        print(f"{self.description}: {self.timer.stop():.4f} sec")


def _pyplot() -> ModuleType:
    """Return `matplotlib.pyplot`, imported at the first call: `plt`.

    Raises:
        ImportError: if matplotlib is not installed; this kit's own figures do not need it.
    """
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("plt needs matplotlib, which is not installed: pip install matplotlib.") from error
    return plt


def load_data_fashion_mnist(
    batch_size: int, resize: int | None = None, *, num_examples: int | None = None, seed: int = 0
) -> tuple[BatchIterator, BatchIterator]:
    """Return train_iter and test_iter as `d2lite.load_data_fashion_mnist` does; `resize` is the second, as in d2l."""
    return _load_data(batch_size, num_examples, resize, seed)


def set_figsize(figsize: Sequence[float] = (3.5, 2.5)) -> None:
    """Set the size of matplotlib's next figures, (width, height) in inches. Figures of this kit have their own sizes.

    Without matplotlib there is nothing to set.
    """
    with suppress(ImportError):
        _pyplot().rcParams["figure.figsize"] = tuple(figsize)


def __getattr__(name: str) -> Any:
    if name == "plt":
        return _pyplot()
    if name == "Animator":  # it shows things: plotly and ipywidgets are loaded with it
        return importlib.import_module("d2lite.widgets").Animator
    raise AttributeError(f"module 'd2lite.labs.chapter_03.d2l' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), "Animator", "plt"})
