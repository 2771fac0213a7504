"""Find, download and read the Fashion-MNIST files; an incomplete file never gets the name of a complete one."""

import errno
import gzip
import math
import os
import time
import zlib
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from d2lite._text import text_of
from d2lite.data.cache import cache_folder, new_part, remove, sweep
from d2lite.data.fetch import STALL_S, fetch

__all__ = [
    "FILES",
    "MIRRORS",
    "broken_file",
    "download",
    "failed_lately",
    "find_files",
    "identity",
    "lacking",
    "note_failure",
    "read_idx",
    "set_aside",
]

# where torchvision.datasets.FashionMNIST finds the four files, their sizes in bytes and their MD5 sums
MIRRORS = ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",)
FILES = {
    "train-images-idx3-ubyte.gz": (26_421_880, "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
    "train-labels-idx1-ubyte.gz": (29_515, "25c81989df183df01b3e8a0aad5dffbe"),
    "t10k-images-idx3-ubyte.gz": (4_422_102, "bef4ecab320f06d8554ea6380940ec79"),
    "t10k-labels-idx1-ubyte.gz": (5_148, "bb300cfdad3c16e7a12a480ee83cd310"),
}
ANSWER_S = 3.0  # seconds within which a mirror must be connected, and then answer, the first time
LATELY_S = 3600  # seconds after a failed download in which ranks do not try again
_FAILED = ".not-downloaded"
_BLOCK = 1 << 18  # bytes that are unpacked at a time


def find_files() -> tuple[Path, tuple[str, ...]] | None:
    """Return (folder, names) of the first folder that holds all four files, or None.

    The places are $D2LITE_DATA, then the cache; in each `fashion-mnist/`, then torchvision's `FashionMNIST/raw/`, then
    the place itself, with the files compressed (.gz) or not. The files are not opened here: `download` checks their MD5
    sums, and `read_idx` checks the format of what it reads.
    """
    roots = []
    if given := os.environ.get("D2LITE_DATA"):
        roots.append(Path(os.path.expanduser(given)))
    with suppress(OSError):  # no home: no cache
        roots.append(cache_folder())
    for folder in (folder for root in roots for folder in _places(root)):
        names = _names(folder)
        if len(names) == len(FILES):
            return folder, tuple(names.values())
    return None


def lacking() -> str:
    """Return a sentence that says what $D2LITE_DATA lacks, or "" if it is not set or holds all four files."""
    given = os.environ.get("D2LITE_DATA")
    if not given:
        return ""
    root = Path(os.path.expanduser(given))
    nearest = max(_places(root), key=lambda folder: (len(_names(folder)), os.path.isdir(folder)))
    missing = [name for name in FILES if name not in _names(nearest)]
    if not missing:
        return ""
    got = f"{nearest} without {', '.join(missing)}" if os.path.isdir(nearest) else f"{root}, which is no folder"
    return (
        "D2LITE_DATA: expected the path of a folder with the four files of Fashion-MNIST (in it, in its fashion-mnist/ "
        f"or in its FashionMNIST/raw/; .gz or unpacked), got {got}. Correct the path or add the files: until then the "
        "cache is used."
    )


def _places(root: Path) -> tuple[Path, Path, Path]:
    return root / "fashion-mnist", root / "FashionMNIST" / "raw", root


def _names(folder: Path) -> dict[str, str]:
    """Return the names that the files have in `folder`, with or without .gz, by their names in FILES."""
    both = {name: [n for n in (name, name.removesuffix(".gz")) if os.path.isfile(folder / n)] for name in FILES}
    return {name: found[0] for name, found in both.items() if found}


def read_idx(path: Path) -> NDArray[np.uint8]:
    """Return the array (uint8) in an IDX file, compressed (.gz) or not.

    Format: http://yann.lecun.com/exdb/mnist/. Raises ValueError with the file's name if it is cut short or damaged.
    """
    try:
        with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
            head = file.read(4)
            if head[:3] != b"\x00\x00\x08" or head[3:] not in (b"\x01", b"\x03"):
                raise broken_file(path, "it does not begin like an IDX file of bytes")
            shape = tuple(int.from_bytes(file.read(4), "big") for _ in range(head[3]))
            n_bytes = math.prod(shape)
            if n_bytes > 2**31:
                raise broken_file(path, f"it claims to hold {n_bytes} bytes")
            array = np.empty(shape, np.uint8)
            memory, got = array.reshape(-1).data, 0
            while n := file.readinto(memory[got : got + _BLOCK]):  # gzip would unpack all of it into a second copy
                got += n
            if got != n_bytes or file.read(1):
                raise broken_file(
                    path, f"expected {n_bytes} bytes for shape {shape}, got {got if got != n_bytes else 'more'}"
                )
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise broken_file(path, f"it does not unpack ({error})") from error
    return array


def broken_file(path: Path, why: str) -> ValueError:
    """Return the error for a damaged data file, without what to do: that depends on whose file it is."""
    return ValueError(f"broken data file {path}: {why}.")


def download(folder: Path) -> None:
    """Fetch the four files into `folder`, each checked by its size and MD5 sum.

    They are written to a temporary folder next to it, which gets the name `folder` when all are complete: an interrupt,
    a lost connection or a full disk leaves nothing behind. Where `folder` exists already, the files are moved into it
    one after another: a process that is killed there leaves some of them, each complete. A bar shows the progress of
    each file if tqdm is installed.

    Raises:
        OSError: with the reason for each mirror, or with errno ENOSPC if the disk is full. A mirror is given up if none
            of its addresses connects within 3 s each, if it does not answer within 3 s after that, sends nothing for
            30 s, falls 30 s behind 50 kB/s, or sends other bytes than those of the file.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    sweep(folder.parent)
    reasons = []
    for mirror in MIRRORS:
        part = new_part(folder.parent)
        try:
            part.mkdir()
            for i, (name, (n_bytes, md5)) in enumerate(FILES.items()):
                fetch(mirror + name, part / name, n_bytes, md5, STALL_S if i else ANSWER_S)
            _move(part, folder)
            return
        except Exception as error:  # what a mirror or a proxy sends can raise nearly anything
            if getattr(error, "errno", None) == errno.ENOSPC:  # no other mirror helps
                text = f"no space left, free 40 MB or set D2LITE_DATA: {folder.parent}"
                raise OSError(errno.ENOSPC, text) from error
            reason = " ".join(text_of(error).split())[:200]  # one line, whatever the mirror has sent
            reasons.append(f"{mirror}: {reason or type(error).__name__}")
        finally:
            remove(part)
    raise OSError("Fashion-MNIST could not be downloaded: " + "; ".join(reasons))


def identity(folder: Path) -> tuple[int, int] | None:
    """Return what tells this state of `folder` from one that is put in its place later; None if it is missing."""
    try:
        found = folder.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns  # the number of a removed folder is used again at once


def set_aside(folder: Path, seen: tuple[int, int] | None) -> None:
    """Take a damaged folder away, unless it is no longer the one whose `identity` was `seen`.

    Several processes may do so at the same time. Of a link, the link alone is taken away. Raises OSError if the folder
    cannot be renamed.
    """
    aside = new_part(folder.parent)
    if identity(folder) == seen:
        with suppress(FileNotFoundError):  # another process was faster
            folder.rename(aside)
    remove(aside)


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


def _move(part: Path, folder: Path) -> None:
    """Give the complete files their place: at once, or one after the other where the folder exists."""
    try:
        part.rename(folder)
    except OSError:  # it is a link or has some of the files, or another process was faster
        folder.mkdir(exist_ok=True)
        for name in FILES:
            os.replace(part / name, folder / name)
