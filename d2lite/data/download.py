"""Where the Fashion-MNIST files are, and how they get there: never a half file under a whole name."""

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
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from d2lite.data.cache import cache_folder

__all__ = ["FILES", "download", "failed_lately", "find_files", "note_failure", "read_idx"]

# the four files and their MD5 sums, as torchvision.datasets.FashionMNIST lists them
FILES = {
    "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
    "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
    "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
}
PROBE_S = 3  # seconds a mirror has to answer
STALL_S = 30  # seconds without a byte after which a download is given up
LATELY_S = 3600  # seconds for which ranks believe a failure and do not try themselves
_FAILED = ".not-downloaded"


def find_files():
    """Return (folder, names) of the first place that holds all four files, or None.

    Looked through in turn: $D2LITE_DATA and the cache, each with `fashion-mnist/` and torchvision's
    `FashionMNIST/raw/`, packed (.gz) or not. Sums are not checked here; `read_idx` checks what it reads.
    """
    given = os.environ.get("D2LITE_DATA")
    for root in ([Path(given).expanduser()] if given else []) + [cache_folder()]:
        for folder in (root / "fashion-mnist", root / "FashionMNIST" / "raw", root):
            for suffix in (".gz", ""):
                names = tuple(name.removesuffix(".gz") + suffix for name in FILES)
                if all((folder / name).is_file() for name in names):
                    return folder, names
    return None


def read_idx(path):
    """Return the array (uint8) in an IDX file, packed (.gz) or not.

    Format: http://yann.lecun.com/exdb/mnist/. Raises ValueError naming the file if it is cut short or damaged.
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
            got = file.readinto(memoryview(array).cast("B")) if n_bytes else 0
            if got != n_bytes or file.read(1):
                raise _broken(
                    path, f"expected {n_bytes} bytes for shape {shape}, got {got if got != n_bytes else 'more'}"
                )
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _broken(path, f"it does not unpack ({error})") from error
    return array


def _broken(path, why):
    return ValueError(f"broken data file {path}: {why}. Delete it; the next call fetches it again.")


def download(folder):
    """Fetch the four files into `folder` through torchvision, each checked by its MD5 sum, all or none.

    They are written to a temporary folder beside it and renamed when whole, so that an interrupt, a broken
    line or a full disk leaves nothing behind. Raises OSError or RuntimeError with each mirror's reason.
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


def note_failure():
    """Leave a mark in the cache that a download has just failed; where nothing can be written, leave none."""
    with suppress(OSError):
        cache_folder().mkdir(parents=True, exist_ok=True)
        (cache_folder() / _FAILED).touch()


def failed_lately():
    """Return whether a download has failed within the last hour, in whatever process."""
    try:
        return time.time() - (cache_folder() / _FAILED).stat().st_mtime < LATELY_S
    except OSError:
        return False


def _probe(url):
    """Raise OSError unless the mirror answers within PROBE_S seconds."""
    with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=PROBE_S):
        pass


@contextmanager
def _socket_timeout(seconds):
    """A time-out for torchvision's download, which sets none; the old one comes back."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def _sweep(parent):
    """Remove what a killed download left behind: part folders that nobody has written to for an hour."""
    for part in parent.glob(".download-*"):
        if time.time() - part.stat().st_mtime > 3600:
            shutil.rmtree(part, ignore_errors=True)
