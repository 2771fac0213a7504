"""Load Fashion-MNIST into memory, and iterate over its minibatches."""

import contextlib
import functools
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F

from d2lite._checks import positive_int, whole_number
from d2lite.data import download, silhouettes
from d2lite.data.cache import Tensors, cache_folder, load_or_make
from d2lite.events import emit
from d2lite.parallel import one_intra_op_thread

__all__ = ["FASHION_MNIST", "SILHOUETTES", "BatchIterator", "load_data_fashion_mnist", "location"]

FASHION_MNIST = "Fashion-MNIST"
SILHOUETTES = "silhouettes (drawn)"
_CPU = [torch.device("cpu")]
_DRAWN = 12_000  # training examples that are drawn at least
_MOST_SEED = 2**43 - 1  # torch's generators take 64 bits; an epoch's number takes 20 of them
_given_up: list[OSError] = []  # why this process could not download; it does not try again


def load_data_fashion_mnist(
    batch_size: int, num_examples: int | None = None, resize: int | None = None, seed: int = 0
) -> tuple["BatchIterator", "BatchIterator"]:
    """Return train_iter and test_iter over minibatches of Fashion-MNIST.

    The files are looked for in $D2LITE_DATA, then in the cache, then downloaded. Where that fails, the drawn set takes
    their place, and a message on stderr explains why; `train_iter.dataset` is the name of the set that is used. Another
    message says which files $D2LITE_DATA lacks, if it is set and not complete.

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
        TypeError: If batch_size, num_examples, resize or seed is not a whole number ("256" is none).
        ValueError: If batch_size is below 1, num_examples is outside 1..60000, resize is outside 1..1024, seed is
            below 0 or above 2**43 - 1, or a data file is damaged (a downloaded one is fetched again instead).

    Example:
        >>> train_iter, test_iter = load_data_fashion_mnist(batch_size=256, num_examples=600)
        >>> X, y = next(iter(train_iter))
        >>> X.shape, X.dtype, y.shape, y.dtype
        (torch.Size([256, 1, 28, 28]), torch.float32, torch.Size([256]), torch.int64)
        >>> len(train_iter), train_iter.num_examples, test_iter.num_examples
        (3, 600, 100)
    """
    batch_size = positive_int("batch_size", batch_size)
    if resize is not None:
        resize = positive_int("resize", resize, 1024)
    if num_examples is not None:
        num_examples = positive_int("num_examples", num_examples, 60_000)
    seed = whole_number("seed", seed, 0, _MOST_SEED)
    name, (X, y, X_test, y_test) = _dataset(num_examples)
    n = len(y) if num_examples is None else num_examples
    n_test = -(-n * len(y_test) // len(y))  # the same fraction of the test set
    return (
        BatchIterator(X[:n], y[:n], batch_size, name, resize, seed),
        BatchIterator(X_test[:n_test], y_test[:n_test], batch_size, name, resize),
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
        self.images, self.labels, self.batch_size = images, labels, positive_int("batch_size", batch_size)
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

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
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
    lacking = download.lacking()
    found = download.find_files()
    if found:
        line = f"{FASHION_MNIST} in {found[0]}"
    else:
        try:
            drawn = f"in {cache_folder()}"
        except OSError as error:
            drawn = f"in memory ({error})"
        line = f"{FASHION_MNIST} is not here yet: downloaded on first use, else {SILHOUETTES} {drawn}"
    return f"{line}. {lacking}" if lacking else line


def _dataset(num_examples: int | None) -> tuple[str, Tensors]:
    """Return the name, and images and labels for training and testing; if drawn, at least `num_examples` to train."""
    tensors = _fashion_mnist()
    if tensors is not None:
        return FASHION_MNIST, tensors
    n = max(_DRAWN, num_examples or 0)
    return SILHOUETTES, (*_drawn(n, seed=0), *_drawn(-(-n // 6), seed=1))


def _fashion_mnist() -> Tensors | None:
    """Return images and labels for training and testing, or None where they cannot be had.

    A damaged copy in the cache is fetched again. Other processes may do the same between any two lines.
    """
    if lacking := download.lacking():
        _say_once(lacking)
    for _ in range(6):
        found = download.find_files()
        if found is None:
            if not _download():
                return None
            continue
        seen = download.identity(found[0])
        try:
            return _read(*found)
        except (OSError, ValueError) as error:
            if not _is_downloaded(found[0]):
                if isinstance(error, OSError):
                    raise
                raise ValueError(f"{error} Replace it, or delete it: the next call downloads the set then.") from error
            if not isinstance(error, FileNotFoundError):  # else another process has set the folder aside
                print(f"d2lite: {error} Fetching it again.", file=sys.stderr)
            try:
                download.set_aside(found[0], seen)
            except OSError as why:
                _give_up(OSError(f"{error} It cannot be removed: {why}"))
                return None
    _give_up(OSError(f"{cache_folder()}: the files are damaged after each download"))
    return None


def _is_downloaded(folder: Path) -> bool:
    with contextlib.suppress(OSError):
        return folder == cache_folder() / "fashion-mnist"
    return False


def _download() -> bool:
    """Download into the cache; return whether that worked. A failure is reported once, and this process does not retry.

    D2LITE_OFFLINE=1 is reported once and is no failure: without it the next call downloads.

    Every pool starts new ranks: a rank does not try within an hour of a failed download, and reports nothing, since the
    process that tried has already reported the failure.
    """
    if os.environ.get("D2LITE_OFFLINE") == "1":
        _say_once(_drawn_instead("D2LITE_OFFLINE=1"))
        return False
    if _given_up or (_rank() is not None and download.failed_lately()):
        return False
    try:
        download.download(cache_folder() / "fashion-mnist")
        return True
    except OSError as error:
        _give_up(error)
        return False


def _give_up(error: OSError) -> None:
    """Mark the download as failed, and say that the drawn set is used, and why."""
    _given_up.append(error)
    download.note_failure()
    print(f"d2lite: {_drawn_instead(error)}", file=sys.stderr)


def _drawn_instead(why: object) -> str:
    return (
        f"{FASHION_MNIST} is not available ({why}). Using {SILHOUETTES} instead: the lesson is the same, "
        "the accuracies are not. To use your own copy, set D2LITE_DATA to the folder that contains fashion-mnist/."
    )


@functools.cache
def _say_once(text: str) -> None:
    """Print a message on stderr, in a process group by rank 0 alone."""
    if not _rank():
        print(f"d2lite: {text}", file=sys.stderr)


def _rank() -> int | None:
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else None


@functools.lru_cache(maxsize=2)
def _read(folder: Path, names: tuple[str, ...]) -> Tensors:
    """Return images and labels for training, then those for testing, of the files."""
    about = [(str(folder / name), (folder / name).stat().st_size, (folder / name).stat().st_mtime_ns) for name in names]
    return load_or_make(
        "fashion-mnist.pt", repr(about), lambda: _unpacked(folder, names), lambda kept: _are_splits(kept, 2)
    )


def _unpacked(folder: Path, names: tuple[str, ...]) -> Tensors:
    tensors = []
    for image_name, label_name in (names[:2], names[2:]):
        images, labels = download.read_idx(folder / image_name), download.read_idx(folder / label_name)
        if images.shape[1:] != (28, 28) or not len(images):
            why = f"expected images of shape (n, 28, 28), n at least 1, got shape {images.shape}"
            raise download.broken_file(folder / image_name, why)
        if labels.shape != images.shape[:1] or labels.max() > 9:
            got = labels.max() if labels.shape == images.shape[:1] else labels.shape
            why = f"expected {len(images)} labels from 0 to 9 as in {image_name}, got {got}"
            raise download.broken_file(folder / label_name, why)
        tensors += [torch.from_numpy(images).unsqueeze(1), torch.from_numpy(labels.astype("int64"))]
    return tuple(tensors)


@functools.lru_cache(maxsize=4)
def _drawn(n: int, seed: int) -> Tensors:
    """Return images and labels of the drawn set."""
    name = f"silhouettes-{silhouettes.VERSION}-{n}-{seed}.pt"

    def fits(kept: Tensors) -> bool:
        return _are_splits(kept, 1) and len(kept[1]) == n

    return load_or_make(name, "drawn", lambda: silhouettes.draw(n, seed), fits)


def _are_splits(tensors: Tensors, how_many: int) -> bool:
    """Return whether these are `how_many` times images, uint8 [n, 1, 28, 28], and their labels 0 to 9, int64 [n]."""
    return (
        len(tensors) == 2 * how_many
        and all(
            (images.dtype, labels.dtype) == (torch.uint8, torch.int64)
            and images.shape == (len(labels), 1, 28, 28)
            and labels.dim() == 1
            and len(labels) > 0
            and 0 <= labels.numpy().min() <= labels.numpy().max() <= 9  # NumPy wakes no intra-op threads
            for images, labels in zip(tensors[0::2], tensors[1::2], strict=True)
        )
    )
