"""The peer, the loop as it is usually written: torchvision's data set, a DataLoader, a module, one device."""

import warnings
from pathlib import Path

from torch import nn
from torch.utils.data import DataLoader

from d2lite import Timer, load_data_fashion_mnist

__all__ = ["loader", "usual_epoch", "usual_lenet"]


def usual_lenet():
    """Return the LeNet of the book as it is usually written, on purpose without the kit; PyTorch's initialisation."""
    return nn.Sequential(
        nn.Conv2d(1, 20, 3),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Conv2d(20, 50, 5),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(800, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


def loader(folder, batch_size, num_examples=60_000, train=True, workers=4):
    """Return a DataLoader over torchvision's FashionMNIST with ToTensor, its files unpacked into `folder`.

    The images are those of `load_data_fashion_mnist`, so that peer and ours see the same.
    """
    from torchvision import transforms
    from torchvision.datasets import FashionMNIST

    raw = Path(folder) / "FashionMNIST" / "raw"
    if not raw.exists():
        raw.mkdir(parents=True)
        for prefix, data_iter in zip(("train", "t10k"), load_data_fashion_mnist(batch_size, num_examples), strict=True):
            _write_idx(raw / f"{prefix}-images-idx3-ubyte", data_iter.examples.squeeze(1))
            _write_idx(raw / f"{prefix}-labels-idx1-ubyte", data_iter.labels.byte())
    dataset = FashionMNIST(folder, train=train, transform=transforms.ToTensor())
    warnings.filterwarnings("ignore", "This DataLoader will create")  # four workers are usual, cores or not
    return DataLoader(dataset, batch_size, shuffle=train, num_workers=workers)


def _write_idx(path, array):
    """Write a uint8 tensor in the format of the original files: http://yann.lecun.com/exdb/mnist/."""
    header = bytes([0, 0, 8, array.dim()]) + b"".join(n.to_bytes(4, "big") for n in array.shape)
    path.write_bytes(header + array.contiguous().numpy().tobytes())


def usual_epoch(net, optimizer, data, device):
    """Train `net` for one epoch the usual way and return the seconds it took."""
    loss_fn, timer = nn.CrossEntropyLoss(), Timer([device])
    net.train()
    for X, y in data:
        X, y = X.to(device), y.to(device)
        optimizer.zero_grad()
        loss_fn(net(X), y).backward()
        optimizer.step()
    return timer.stop()
