"""The data to learn from: Fashion-MNIST, or drawn garments where there is no network."""

from d2lite.data.cache import cache_folder, load_or_make
from d2lite.data.download import find_files
from d2lite.data.fashion_mnist import FASHION_MNIST, SILHOUETTES, BatchIterator, load_data_fashion_mnist, location
from d2lite.data.quick import quick
from d2lite.data.silhouettes import LABELS

__all__ = [
    "BatchIterator",
    "FASHION_MNIST",
    "LABELS",
    "SILHOUETTES",
    "cache_folder",
    "find_files",
    "load_data_fashion_mnist",
    "load_or_make",
    "location",
    "quick",
]
