"""Load Fashion-MNIST into memory, and iterate over its minibatches."""

import functools
import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F

from d2lite._checks import positive_int
from d2lite.data import download, silhouettes
from d2lite.data.cache import cache_folder, load_or_make
from d2lite.events import emit
from d2lite.parallel import one_intra_op_thread

__all__ = ["FASHION_MNIST", "SILHOUETTES", "BatchIterator", "load_data_fashion_mnist", "location"]

FASHION_MNIST = "Fashion-MNIST"
SILHOUETTES = "silhouettes (drawn)"
_CPU = [torch.device("cpu")]
_DRAWN = 12_000  # training examples that are drawn at least
Split = tuple[torch.Tensor, torch.Tensor]  # images uint8 [n, 1, 28, 28] and labels int64 [n]


def load_data_fashion_mnist(
    batch_size: int, num_examples: int | None = None, resize: int | None = None, seed: int = 0
) -> tuple["BatchIterator", "BatchIterator"]:
    """Return train_iter and test_iter over minibatches of Fashion-MNIST.

    The files are looked for in $D2LITE_DATA, then in the cache, then downloaded. Where that fails, the drawn set takes
    their place, and a message on stderr explains why; `train_iter.dataset` is the name of the set that is used.

    Args:
        batch_size: Examples per minibatch; the last minibatch of an epoch may be smaller.
        num_examples: How many of the 60,000 training examples to keep, the first ones (default: all; of the drawn
            set 12,000). A sixth as many of the 10,000 test examples are kept.
        resize: Height and width of the images in pixels (default: 28, as stored).
        seed: Seed of the training order, which depends on the seed and the epoch only.

    Returns:
        Two `BatchIterator`s, train_iter (shuffled) and test_iter (in order). Each yields X, float32 of shape
        [b, 1, resize, resize] with values from 0 to 1, and y, int64 of shape [b] with labels from 0 to 9.

    Raises:
        TypeError: If batch_size, num_examples or resize is not a whole number.
        ValueError: If batch_size is below 1, num_examples is outside 1..60000, resize is outside 1..1024, or a data
            file is damaged (a downloaded one is fetched again instead).

    Example:
        >>> train_iter, test_iter = load_data_fashion_mnist(batch_size=256, num_examples=600)
        >>> X, y = next(iter(train_iter))
        >>> X.shape, X.dtype, y.shape, y.dtype
        (torch.Size([256, 1, 28, 28]), torch.float32, torch.Size([256]), torch.int64)
        >>> len(train_iter), train_iter.num_examples, test_iter.num_examples
        (3, 600, 100)
    """
    positive_int("batch_size", batch_size)
    if resize is not None:
        positive_int("resize", resize, 1024)
    if num_examples is not None:
        positive_int("num_examples", num_examples, 60_000)
    name, train, test = _dataset(num_examples)
    n = len(train[0]) if num_examples is None else num_examples
    n_test = -(-n * len(test[0]) // len(train[0]))  # the same fraction of the test set
    return (
        BatchIterator(train[0][:n], train[1][:n], batch_size, name, resize, seed),
        BatchIterator(test[0][:n_test], test[1][:n_test], batch_size, name, resize),
    )


class BatchIterator:
    """Minibatches from uint8 images [n, 1, h, w] and labels [n], shuffled if `seed` is given.

    Epoch e is shuffled by its own generator, seeded with (seed, e), so that neither the number of devices nor other
    random numbers change the order. `dataset` is the name of the data set for curves, and `len()` is the number of
    minibatches per epoch.
    """

    def __init__(
        self,
        images: torch.Tensor,
        labels: torch.Tensor,
        batch_size: int,
        dataset: str,
        resize: int | None = None,
        seed: int | None = None,
    ) -> None:
        self.images, self.labels, self.batch_size = images, labels, batch_size
        self.dataset, self.resize, self.seed = dataset, resize, seed
        self.epoch = 0

    @property
    def num_examples(self) -> int:
        """The number of examples per epoch."""
        return len(self.labels)

    def __len__(self) -> int:
        return -(-self.num_examples // self.batch_size)

    def smallest(self) -> int:
        """Return the size of the smallest minibatch: the last one, where batch_size does not divide num_examples."""
        return self.num_examples % self.batch_size or self.batch_size

    def __iter__(self) -> Iterator[Split]:
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
            with one_intra_op_thread(_CPU):  # a second thread would go on spinning on a core that a replica needs
                X, y = self._to_float(self.images.index_select(0, index)), self.labels[index]
            yield X, y
        seconds = time.perf_counter() - start
        emit("epoch", epoch=epoch, seconds=seconds, num_examples=self.num_examples)

    def _to_float(self, images: torch.Tensor) -> torch.Tensor:
        X = images.float().div_(255)
        if self.resize is not None:
            X = F.interpolate(X, size=(self.resize, self.resize), mode="bilinear", antialias=True)
        return X


def location() -> str:
    """Return a line that names the data set that is here and its folder, without downloading anything."""
    found = download.find_files()
    if found:
        return f"{FASHION_MNIST} in {found[0]}"
    return f"{FASHION_MNIST} is not here yet: downloaded on first use, else {SILHOUETTES} in {cache_folder()}"


def _dataset(num_examples: int | None) -> tuple[str, Split, Split]:
    """Return (name, training split, test split); if drawn, with at least `num_examples` for training."""
    files = _find_or_download()
    if files is not None:
        return FASHION_MNIST, *_read(*files)
    n = max(_DRAWN, num_examples or 0)
    return SILHOUETTES, _drawn(n, seed=0), _drawn(-(-n // 6), seed=1)


def _find_or_download() -> tuple[Path, tuple[str, ...]] | None:
    """Return (folder, names) of the complete files, or None where they cannot be had."""
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
def _download_once(cache: Path) -> bool:
    """Download into `cache`; return whether that worked. A failure is reported once, and this process does not retry.

    Every pool starts new ranks: a rank does not try within an hour of a failed download, and reports nothing, since the
    process that tried has already reported the failure.
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
            f"d2lite: {FASHION_MNIST} is not available ({error}). Using {SILHOUETTES} instead: the lesson is the same, "
            "the accuracies are not. To use your own copy, set D2LITE_DATA to the folder that contains fashion-mnist/.",
            file=sys.stderr,
        )
        return False


@functools.lru_cache(maxsize=2)
def _read(folder: Path, names: tuple[str, ...]) -> tuple[Split, Split]:
    """Return the training split and the test split of the files."""
    about = [(str(folder / name), (folder / name).stat().st_size, (folder / name).stat().st_mtime_ns) for name in names]
    return load_or_make("fashion-mnist.pt", repr(about), lambda: _unpacked(folder, names))


def _unpacked(folder: Path, names: tuple[str, ...]) -> tuple[Split, Split]:
    arrays = [download.read_idx(folder / name) for name in names]
    images = [torch.from_numpy(a).unsqueeze(1) for a in arrays[0::2]]
    labels = [torch.from_numpy(a.astype("int64")) for a in arrays[1::2]]
    for X, y, name in zip(images, labels, names[1::2], strict=True):
        if X.shape[2:] != (28, 28) or len(X) != len(y) or (len(y) and int(y.max()) > 9):
            raise ValueError(
                f"broken data file {folder / name}: expected {len(X)} labels from 0 to 9 for images of "
                f"28x28, got {len(y)} for {tuple(X.shape[2:])}. Delete it; the next call fetches it again."
            )
    return (images[0], labels[0]), (images[1], labels[1])


@functools.lru_cache(maxsize=4)
def _drawn(n: int, seed: int) -> Split:
    """Return images and labels of the drawn set."""
    return load_or_make(f"silhouettes-{silhouettes.VERSION}-{n}-{seed}.pt", "drawn", lambda: silhouettes.draw(n, seed))
