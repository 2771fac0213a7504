"""Load Fashion-MNIST: the images that come with d2lite, or, for a larger `num_examples`, all of them."""

import functools
from collections.abc import Sequence
from pathlib import Path

import torch

from d2lite.data.batch_iterator import MOST_SEED, BatchIterator
from d2lite.data.download import find_files, get_files, is_offline
from d2lite.data.idx import broken_file, read_idx
from notebook_ranks.shared.checks import positive_int, whole_number

__all__ = ["FASHION_MNIST", "NUM_SHIPPED", "SHIPPED", "load_data_fashion_mnist", "location"]

FASHION_MNIST = "Fashion-MNIST"
NUM_EXAMPLES = {"train": 60_000, "t10k": 10_000}  # keys: how the file names begin
# the first training images and all test images, in the format of the original files; tools/ship_images.py writes them
SHIPPED = Path(__file__).with_name("shipped")
NUM_SHIPPED = {"train": 12_000, "t10k": 10_000}

Split = tuple[torch.Tensor, torch.Tensor]  # images, uint8 [n, 1, 28, 28], and labels, int64 [n]


def load_data_fashion_mnist(
    batch_size: int, num_examples: int | None = None, resize: int | None = None, seed: int = 0
) -> tuple["BatchIterator", "BatchIterator"]:
    """Return train_iter (shuffled) and test_iter (in order) over minibatches of Fashion-MNIST.

    X is float32 [b, 1, resize, resize] with values from 0 to 1, y int64 [b] with labels from 0 to 9. The first 12,000
    training images and all 10,000 test images come with d2lite. For more training images the original files are read
    from $D2LITE_DATA, if it is set, else from the cache, into which they are downloaded. `train_iter.dataset` says
    which data set it is, and how many images it has to train and to test.

    Args:
        batch_size: Examples per minibatch; the last minibatch of an epoch may be smaller.
        num_examples: How many of the 60,000 training examples to keep, the first ones, with a sixth as many of the
            10,000 test examples. By default the 12,000 that come with d2lite and all 10,000 test examples, where
            num_examples=12_000 tests on 2,000.
        resize: Height and width of the images in pixels (default: 28, as stored).
        seed: Seed of the training order, which depends on the seed and the epoch only.

    Raises ValueError or TypeError for a wrong argument or a damaged file, OSError if a download fails, ImportError if
    it needs pooch.

    Example:
        >>> train_iter, test_iter = load_data_fashion_mnist(batch_size=256, num_examples=600)
        >>> X, y = next(iter(train_iter))
        >>> X.shape, X.dtype, y.shape, y.dtype
        (torch.Size([256, 1, 28, 28]), torch.float32, torch.Size([256]), torch.int64)
        >>> len(train_iter), train_iter.num_examples, test_iter.num_examples, train_iter.dataset
        (3, 600, 100, 'Fashion-MNIST, 600 + 100 images')
    """
    batch_size = positive_int("batch_size", batch_size)
    if resize is not None:
        resize = positive_int("resize", resize, 1024)
    if num_examples is not None:
        num_examples = positive_int("num_examples", num_examples, NUM_EXAMPLES["train"])
    seed = whole_number("seed", seed, 0, MOST_SEED)
    n = NUM_SHIPPED["train"] if num_examples is None else num_examples
    n_test = NUM_SHIPPED["t10k"] if num_examples is None else -(-n * NUM_EXAMPLES["t10k"] // NUM_EXAMPLES["train"])
    (X, y), (X_test, y_test) = _shipped() if n <= NUM_SHIPPED["train"] else _complete(tuple(get_files()))
    name = f"{FASHION_MNIST}, {n:,} + {n_test:,} images"
    return (
        BatchIterator(X[:n], y[:n], batch_size, name, resize, seed),
        BatchIterator(X_test[:n_test], y_test[:n_test], batch_size, name, resize),
    )


def location() -> str:
    """Return a line that says where the images are, without downloading anything."""
    try:
        found = find_files()
        missing = "not here" if is_offline() else "not here yet, downloaded if you ask for more images"
        where = f"in {found[0].parent}" if found else missing
    except OSError as error:
        where = f"not here ({error})"
    return (
        f"{FASHION_MNIST}: {NUM_SHIPPED['train']:,} training images in {SHIPPED}; all {NUM_EXAMPLES['train']:,} {where}"
    )


def _shipped() -> tuple[Split, Split]:
    """Return the training and the test examples that come with d2lite: mapped files, which all processes share."""
    files = [SHIPPED / f"{split}-{kind}-ubyte" for split in NUM_SHIPPED for kind in ("images-idx3", "labels-idx1")]
    try:
        return _read(files, NUM_SHIPPED)
    except (OSError, ValueError) as error:
        raise type(error)(f"{error} This file is a part of d2lite: install d2lite again.") from error


@functools.lru_cache(maxsize=1)
def _complete(files: tuple[Path, ...]) -> tuple[Split, Split]:
    """Return all training and test examples from the original files."""
    try:
        return _read(files, NUM_EXAMPLES)
    except ValueError as error:
        raise ValueError(f"{error} Replace it, or unset D2LITE_DATA: Fashion-MNIST is downloaded then.") from error


def _read(files: Sequence[Path], num_examples: dict[str, int]) -> tuple[Split, Split]:
    splits = []
    for (image_file, label_file), n in zip((files[:2], files[2:]), num_examples.values(), strict=True):
        images, labels = read_idx(image_file), read_idx(label_file)
        if images.shape != (n, 28, 28):
            raise broken_file(image_file, f"expected {n} images, shape ({n}, 28, 28), got shape {images.shape}")
        if labels.shape != (n,) or labels.max() > 9:
            got = labels.max() if labels.shape == (n,) else f"shape {labels.shape}"
            raise broken_file(label_file, f"expected {n} labels from 0 to 9, got {got}")
        splits.append((torch.from_numpy(images).unsqueeze(1), torch.from_numpy(labels.astype("int64"))))
    return splits[0], splits[1]
