"""The data on its own: an epoch of our iterator against one of a DataLoader."""

import tempfile
import time

from benchmarks.peers import loader
from benchmarks.report import Row, rounds
from d2lite import load_data_fashion_mnist

__all__ = ["rows"]


def rows(num_examples=60_000, n=3, batch_size=256, workers=4):
    """Return the row of the iterator: seconds to go through an epoch, nothing computed."""
    train_iter, _ = load_data_fashion_mnist(batch_size, num_examples)
    with tempfile.TemporaryDirectory() as folder:
        data = loader(folder, batch_size, num_examples, workers=workers)
        contestants = {"ours": lambda: _through(train_iter), "peer": lambda: _through(data)}
        seconds = rounds(contestants, n, warm_up=contestants)
    name = f"iterator, s for {train_iter.num_examples:,} examples"
    return [Row(name, "s", seconds["ours"], seconds["peer"], f"DataLoader with {workers} workers", ("ours", 0.1))]


def _through(data_iter):
    start = time.perf_counter()
    for _ in data_iter:
        pass
    return time.perf_counter() - start
