"""Find, download and read the Fashion-MNIST files; an incomplete file never gets the name of a complete one."""

import errno
import gzip
import math
import os
import shutil
import socket
import tempfile
import time
import urllib.request
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from d2lite.data.cache import cache_folder

__all__ = ["FILES", "download", "failed_lately", "find_files", "note_failure", "read_idx"]

# the four files and their MD5 sums, as torchvision.datasets.FashionMNIST lists them
FILES = {
    "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
    "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
    "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
}
PROBE_S = 3.0  # seconds within which a mirror must answer
STALL_S = 30.0  # seconds without a byte after which a download is given up
LATELY_S = 3600  # seconds after a failed download in which ranks do not try again
_FAILED = ".not-downloaded"


def find_files() -> tuple[Path, tuple[str, ...]] | None:
    """Return (folder, names) of the first folder that holds all four files, or None.

    The places are $D2LITE_DATA, then the cache; in each `fashion-mnist/`, then torchvision's `FashionMNIST/raw/`, then
    the place itself, with the files compressed (.gz) or not. MD5 sums are not checked here; `read_idx` checks what it
    reads.
    """
    given = os.environ.get("D2LITE_DATA")
    for root in ([Path(given).expanduser()] if given else []) + [cache_folder()]:
        for folder in (root / "fashion-mnist", root / "FashionMNIST" / "raw", root):
            for suffix in (".gz", ""):
                names = tuple(name.removesuffix(".gz") + suffix for name in FILES)
                if all((folder / name).is_file() for name in names):
                    return folder, names
    return None


def read_idx(path: Path) -> NDArray[np.uint8]:
    """Return the array (uint8) in an IDX file, compressed (.gz) or not.

    Format: http://yann.lecun.com/exdb/mnist/. Raises ValueError with the file's name if it is cut short or damaged.
    """
    try:
        with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
            head = file.read(4)
            if head[:3] != b"\x00\x00\x08" or head[3:] not in (b"\x01", b"\x03"):
                raise _broken(path, "it does not begin like an IDX file of bytes")
            shape = tuple(int.from_bytes(file.read(4), "big") for _ in range(head[3]))
            n_bytes = math.prod(shape)
            if n_bytes > 2**31:
                raise _broken(path, f"it claims to hold {n_bytes} bytes")
            array = np.empty(shape, np.uint8)  # filled in place: no second copy in memory
            got = file.readinto(array.data.cast("B")) if n_bytes else 0
            if got != n_bytes or file.read(1):
                raise _broken(
                    path, f"expected {n_bytes} bytes for shape {shape}, got {got if got != n_bytes else 'more'}"
                )
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _broken(path, f"it does not unpack ({error})") from error
    return array


def _broken(path: Path, why: str) -> ValueError:
    return ValueError(f"broken data file {path}: {why}. Delete it; the next call fetches it again.")


def download(folder: Path) -> None:
    """Fetch the four files into `folder` through torchvision, each checked by its MD5 sum, all or none.

    They are written to a temporary folder next to it and renamed when all are complete, so that an interrupt, a lost
    connection or a full disk leaves nothing behind. torchvision shows the progress of each file: a bar if tqdm is
    installed, else a percentage. Raises OSError with the reason for each mirror, or with errno ENOSPC if the disk is
    full.
    """
    from torchvision.datasets import FashionMNIST
    from torchvision.datasets.utils import download_url

    folder.parent.mkdir(parents=True, exist_ok=True)
    _sweep(folder.parent)
    reasons = []
    for mirror in FashionMNIST.mirrors:
        with tempfile.TemporaryDirectory(prefix=".download-", dir=folder.parent) as part:
            try:
                _probe(mirror + next(iter(FILES)))
                with _socket_timeout(STALL_S):
                    for name, md5 in FILES.items():
                        download_url(mirror + name, part, name, md5)
            except (OSError, RuntimeError, EOFError) as error:
                if getattr(error, "errno", None) == errno.ENOSPC:  # no other mirror helps
                    raise OSError(
                        errno.ENOSPC, f"no space left, free 40 MB or set D2LITE_DATA: {folder.parent}"
                    ) from error
                reasons.append(f"{mirror}: {error}")
                continue
            folder.mkdir(exist_ok=True)
            for name in FILES:
                os.replace(Path(part) / name, folder / name)
            return
    raise OSError("Fashion-MNIST could not be downloaded: " + "; ".join(reasons))


def note_failure() -> None:
    """Mark in the cache that a download has just failed; do nothing where the cache cannot be written."""
    with suppress(OSError):
        cache_folder().mkdir(parents=True, exist_ok=True)
        (cache_folder() / _FAILED).touch()


def failed_lately() -> bool:
    """Return whether a download has failed within the last hour, in any process."""
    try:
        return time.time() - (cache_folder() / _FAILED).stat().st_mtime < LATELY_S
    except OSError:
        return False


def _probe(url: str) -> None:
    """Raise OSError unless the mirror answers within PROBE_S seconds."""
    with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=PROBE_S):
        pass


@contextmanager
def _socket_timeout(seconds: float) -> Iterator[None]:
    """Set a time-out for torchvision's download, which sets none; restore the old one afterwards."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def _sweep(parent: Path) -> None:
    """Remove what a killed download left behind: part folders that have not been written to for an hour."""
    for part in parent.glob(".download-*"):
        if time.time() - part.stat().st_mtime > 3600:
            shutil.rmtree(part, ignore_errors=True)
