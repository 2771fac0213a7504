"""The data to learn from: Fashion-MNIST; 12,000 training images and all test images come with d2lite."""

from d2lite.data.batch_iterator import BatchIterator
from d2lite.data.download import URL, find_files, is_offline
from d2lite.data.fashion_mnist import (
    FASHION_MNIST,
    NUM_SHIPPED,
    SHIPPED,
    load_data_fashion_mnist,
    location,
)

__all__ = [
    "BatchIterator",
    "FASHION_MNIST",
    "NUM_SHIPPED",
    "SHIPPED",
    "URL",
    "find_files",
    "is_offline",
    "load_data_fashion_mnist",
    "location",
]
