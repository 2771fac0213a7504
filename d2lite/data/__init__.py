"""The data to learn from: Fashion-MNIST, of which 12,000 training and all test images come with d2lite, and a text."""

from d2lite.data.batch_iterator import BatchIterator
from d2lite.data.book_text import CHARACTERS, decode, encode, load_data_book_text
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
    "CHARACTERS",
    "FASHION_MNIST",
    "NUM_SHIPPED",
    "SHIPPED",
    "URL",
    "decode",
    "encode",
    "find_files",
    "is_offline",
    "load_data_book_text",
    "load_data_fashion_mnist",
    "location",
]
