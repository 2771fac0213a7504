"""Where the files of all 60,000 training images are: in $D2LITE_DATA, in the cache, or downloaded into it."""

import contextlib
import errno
import gzip
import importlib.util
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from d2lite.data.idx import read_idx
from notebook_ranks.shared.format import text_of

__all__ = ["FILES", "URL", "cache_folder", "find_files", "get_files", "is_offline"]

# where torchvision.datasets.FashionMNIST finds the four files, and their MD5 sums
URL = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
FILES = {
    "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
    "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
    "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
}
TIMEOUT_S = (5, 30)  # seconds for a connection, and without a byte, after which an attempt ends
RETRIES = 2  # attempts for each file after the first one
STALE_S = 3600  # a part that nobody has written to for so long belongs to a process that was killed


def cache_folder() -> Path:
    """Return the folder for downloaded data: $XDG_CACHE_HOME/d2lite or ~/.cache/d2lite."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "d2lite"
    except RuntimeError as error:
        raise OSError("HOME: expected the path of a home folder, got none. Set HOME or XDG_CACHE_HOME.") from error


def is_offline() -> bool:
    """Return whether D2LITE_OFFLINE=1 forbids downloads."""
    return os.environ.get("D2LITE_OFFLINE") == "1"


def find_files() -> list[Path]:
    """Return the paths of the four files, in the order of FILES, or [] if they are not here; downloads nothing.

    If D2LITE_DATA is set, they are in `fashion-mnist/` of that folder, in torchvision's `FashionMNIST/raw/`, or in the
    folder itself, packed (.gz) or not; a FileNotFoundError says what it lacks. Else they are in the cache.
    """
    given = os.environ.get("D2LITE_DATA")
    if not given:
        found = _found(cache_folder() / "fashion-mnist")
        return list(found.values()) if len(found) == len(FILES) else []
    root = Path(os.path.expanduser(given))
    places = (root / "fashion-mnist", root / "FashionMNIST" / "raw", root)
    nearest = max(places, key=lambda place: (len(_found(place)), os.path.isdir(place)))
    found = _found(nearest)
    if len(found) == len(FILES):
        return list(found.values())
    missing = ", ".join(name for name in FILES if name not in found)
    got = f"{nearest} without {missing}" if os.path.isdir(nearest) else f"{root}, which is no folder"
    raise FileNotFoundError(
        "D2LITE_DATA: expected the path of a folder with the four files of Fashion-MNIST (in it, in its fashion-mnist/ "
        f"or in its FashionMNIST/raw/; .gz or unpacked), got {got}. Correct the path, add the files, or unset "
        "D2LITE_DATA: Fashion-MNIST is downloaded then."
    )


def get_files() -> list[Path]:
    """Return the paths of the four files; those in the cache are downloaded if they are missing or damaged.

    The cache keeps them unpacked, so that processes share their memory. An interrupt, a lost connection or a full disk
    leaves no incomplete file. Of several processes one downloads, and the others wait for it.
    """
    if os.environ.get("D2LITE_DATA"):
        return find_files()
    folder = cache_folder() / "fashion-mnist"
    paths = [folder / name.removesuffix(".gz") for name in FILES]
    if all(map(_is_whole, paths)):
        return paths
    if is_offline():
        raise OSError(_failed(f"they are not all in {folder}, and D2LITE_OFFLINE=1 forbids a download"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _one_process_at_a_time(folder):
            _download(folder, paths)
    except (OSError, ValueError) as error:  # ValueError: another MD5 sum; requests' errors are OSErrors
        reason = " ".join(text_of(error).split())[:300] or type(error).__name__  # one line, whatever was sent
        space = f" Free 100 MB in {folder}." if getattr(error, "errno", None) == errno.ENOSPC else ""
        raise OSError(_failed(f"no download from {URL}: {reason}") + space) from error
    return paths


def _failed(why: str) -> str:
    return (
        f"Fashion-MNIST: expected the four files of all 60,000 training images, but {why}. Pass num_examples=12_000 or "
        "less for the images that come with d2lite, or set D2LITE_DATA to a folder that holds the four files."
    )


def _found(folder: Path) -> dict[str, Path]:
    """Return the paths of the files in `folder` by their names in FILES: unpacked, which processes share, else .gz."""
    both = [(name, folder / kept) for name in FILES for kept in (name, name.removesuffix(".gz"))]
    return {name: path for name, path in both if os.path.isfile(path)}


def _is_whole(path: Path) -> bool:
    try:
        return len(read_idx(path)) > 0
    except (OSError, ValueError):
        return False


def _download(folder: Path, paths: Sequence[Path]) -> None:
    try:
        import pooch  # its import takes longer than loading the images that come with d2lite
    except ImportError as error:
        raise ImportError(_failed("pooch, which downloads them, is not installed: pip install pooch")) from error
    hashes = {name: f"md5:{md5}" for name, md5 in FILES.items()}
    files = pooch.create(folder, URL, registry=hashes, retry_if_failed=RETRIES)
    bar = importlib.util.find_spec("tqdm") is not None
    for name, path in zip(FILES, paths, strict=True):
        if not _is_whole(path):  # else it is here, or another process was faster
            downloader = pooch.HTTPDownloader(progressbar=bar, timeout=TIMEOUT_S)
            files.fetch(name, processor=_unpack, downloader=downloader)


def _unpack(packed: str, *_: object) -> None:
    """Write the unpacked file, which gets its name when it is complete, and remove the packed one."""
    path = Path(packed.removesuffix(".gz"))
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with gzip.open(packed) as source, open(part, "wb") as file:
            shutil.copyfileobj(source, file)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    os.remove(packed)


@contextlib.contextmanager
def _one_process_at_a_time(folder: Path) -> Iterator[None]:
    """Wait until no other process is in this block with the same folder; then remove what killed ones have left."""
    with open(folder / ".lock", "wb") as file:
        with contextlib.suppress(ImportError, OSError):  # Windows, some network file systems: go on
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)  # closing the file, or the end of the process, unlocks it
        for path in [*folder.glob("tmp*"), *folder.glob("*.part")]:  # pooch's temporary files, and ours
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > STALE_S:
                    path.unlink()
        yield
