"""The data set in memory and the iterator over its minibatches."""

import functools
import os
import shutil
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F

from d2lite._checks import positive_int
from d2lite.data import download, silhouettes
from d2lite.data.cache import cache_folder, load_or_make
from d2lite.events import emit

__all__ = ["FASHION_MNIST", "SILHOUETTES", "BatchIterator", "load_data_fashion_mnist", "location"]

FASHION_MNIST = "Fashion-MNIST"
SILHOUETTES = "silhouettes (drawn)"
_DRAWN = 12_000  # training examples drawn where no number is asked for


def load_data_fashion_mnist(batch_size, num_examples=None, resize=None, seed=0):
    """Return train_iter, test_iter over minibatches X [b, 1, 28, 28] float32 in 0..1, y [b] int64.

    The files are looked for in $D2LITE_DATA, then in the cache, then downloaded; without network the drawn set takes
    their place, and says so. `num_examples` keeps the first so many of 60,000 training examples, and a sixth as many
    of the 10,000 for testing; `resize` is the side in pixels. The training order depends on `seed` and the epoch alone.
    Raises ValueError or TypeError for numbers out of range and ValueError for a damaged file.
    """
    positive_int("batch_size", batch_size)
    if resize is not None:
        positive_int("resize", resize, 1024)
    if num_examples is not None:
        positive_int("num_examples", num_examples, 60_000)
    name, train, test = _dataset(num_examples)
    n = len(train[0]) if num_examples is None else num_examples
    n_test = -(-n * len(test[0]) // len(train[0]))  # the same share of the test set
    return (
        BatchIterator(train[0][:n], train[1][:n], batch_size, name, resize, seed),
        BatchIterator(test[0][:n_test], test[1][:n_test], batch_size, name, resize),
    )


class BatchIterator:
    """Minibatches from uint8 images [n, 1, h, w] and labels [n], shuffled if `seed` is given.

    Epoch e is shuffled by a generator of its own seeded with (seed, e), so that neither the number of devices nor
    other random numbers change the order. `dataset` is the label for curves, `len()` the number of minibatches.
    """

    def __init__(self, images, labels, batch_size, dataset, resize=None, seed=None):
        self.images, self.labels, self.batch_size = images, labels, batch_size
        self.dataset, self.resize, self.seed = dataset, resize, seed
        self.epoch = 0

    @property
    def num_examples(self):
        """The number of examples in an epoch."""
        return len(self.labels)

    def __len__(self):
        return -(-self.num_examples // self.batch_size)

    def smallest(self):
        """Return the size of the smallest minibatch: the last one, where batch_size does not divide."""
        return self.num_examples % self.batch_size or self.batch_size

    def __iter__(self):
        if self.seed is None:
            for images, labels in zip(
                self.images.split(self.batch_size), self.labels.split(self.batch_size), strict=True
            ):
                emit("evaluation")
                yield self._to_float(images), labels
            return
        epoch, self.epoch = self.epoch, self.epoch + 1
        generator = torch.Generator().manual_seed((self.seed << 20) + epoch)
        order = torch.randperm(self.num_examples, generator=generator)
        start = time.perf_counter()
        for step, index in enumerate(order.split(self.batch_size)):
            emit("minibatch", epoch=epoch, step=step, steps=len(self), dataset=self.dataset)
            yield self._to_float(self.images.index_select(0, index)), self.labels[index]
        seconds = time.perf_counter() - start
        emit("epoch", epoch=epoch, seconds=seconds, num_examples=self.num_examples)

    def _to_float(self, images):
        X = images.float().div_(255)
        if self.resize is not None:
            X = F.interpolate(X, size=(self.resize, self.resize), mode="bilinear", antialias=True)
        return X


def location():
    """Return a line that says which data set is here and where, without downloading anything."""
    found = download.find_files()
    if found:
        return f"{FASHION_MNIST} in {found[0]}"
    return f"{FASHION_MNIST} is not here yet: downloaded on first use, else {SILHOUETTES} in {cache_folder()}"


def _dataset(num_examples):
    """Return (name, (train images, labels), (test images, labels)) with at least `num_examples` if drawn."""
    files = _find_or_download()
    if files is not None:
        return FASHION_MNIST, *_read(*files)
    n = max(_DRAWN, num_examples or 0)
    return SILHOUETTES, _drawn(n, seed=0), _drawn(-(-n // 6), seed=1)


def _find_or_download():
    """Return (folder, names) of whole files, or None where there are none to be had."""
    cache = cache_folder() / "fashion-mnist"
    found = download.find_files()
    if found and found[0] == cache:
        try:
            _read(*found)
        except ValueError as error:
            print(f"d2lite: {error} Fetching it again.", file=sys.stderr)
            shutil.rmtree(cache)
            found = None
    return found or (download.find_files() if _download_once(cache) else None)


@functools.cache
def _download_once(cache):
    """Download into `cache`; return whether that worked. A failure is told once and not tried again.

    Ranks come and go with every pool: they believe a failure of the last hour, and leave the telling to who met it.
    """
    if dist.is_available() and dist.is_initialized() and download.failed_lately():
        return False
    try:
        if os.environ.get("D2LITE_OFFLINE") == "1":
            raise OSError("D2LITE_OFFLINE=1")
        download.download(cache)
        return True
    except (OSError, RuntimeError, ImportError) as error:
        download.note_failure()
        print(
            f"d2lite: {FASHION_MNIST} is not at hand ({error}). Using {SILHOUETTES} instead: the lesson is the same, "
            "the accuracies are not. To use a copy of yours, set D2LITE_DATA to the folder that holds fashion-mnist/.",
            file=sys.stderr,
        )
        return False


@functools.lru_cache(maxsize=2)
def _read(folder, names):
    """Return ((train images, labels), (test images, labels)) as uint8 [n, 1, 28, 28] and int64 [n]."""
    about = [(str(folder / name), (folder / name).stat().st_size, (folder / name).stat().st_mtime_ns) for name in names]
    return load_or_make("fashion-mnist.pt", repr(about), lambda: _unpacked(folder, names))


def _unpacked(folder, names):
    arrays = [download.read_idx(folder / name) for name in names]
    images = [torch.from_numpy(a).unsqueeze(1) for a in arrays[0::2]]
    labels = [torch.from_numpy(a.astype("int64")) for a in arrays[1::2]]
    for X, y, name in zip(images, labels, names[1::2], strict=True):
        if X.shape[2:] != (28, 28) or len(X) != len(y) or (len(y) and int(y.max()) > 9):
            raise ValueError(
                f"broken data file {folder / name}: expected {len(X)} labels from 0 to 9 for images of "
                f"28x28, got {len(y)} for {tuple(X.shape[2:])}. Delete it; the next call fetches it again."
            )
    return tuple(zip(images, labels, strict=True))


@functools.lru_cache(maxsize=4)
def _drawn(n, seed):
    """Return images, labels of the drawn set."""
    return load_or_make(f"silhouettes-{silhouettes.VERSION}-{n}-{seed}.pt", "drawn", lambda: silhouettes.draw(n, seed))
