"""Where the files of all 60,000 training images are: in $D2LITE_DATA, in the cache, or downloaded into it."""

import contextlib
import errno
import gzip
import importlib.util
import os
import shutil
import time
from collections.abc import Iterator
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
    """Return the folder for downloaded data: $XDG_CACHE_HOME/d2lite or ~/.cache/d2lite.

    Raises OSError if neither XDG_CACHE_HOME nor a home folder is known.
    """
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
    folder itself, compressed (.gz) or not. Else they are in `fashion-mnist/` of the cache. The files are not opened.

    Raises:
        FileNotFoundError: if $D2LITE_DATA lacks a file.
        OSError: if no home folder is known.
    """
    given = os.environ.get("D2LITE_DATA")
    if not given:
        kept = _found(cache_folder() / "fashion-mnist")
        return list(kept.values()) if len(kept) == len(FILES) else []
    root = Path(os.path.expanduser(given))
    places = {folder: _found(folder) for folder in (root / "fashion-mnist", root / "FashionMNIST" / "raw", root)}
    nearest, found = max(places.items(), key=lambda place: (len(place[1]), os.path.isdir(place[0])))
    missing = [name for name in FILES if name not in found]
    if not missing:
        return list(found.values())
    got = f"{nearest} without {', '.join(missing)}" if os.path.isdir(nearest) else f"{root}, which is no folder"
    raise FileNotFoundError(
        "D2LITE_DATA: expected the path of a folder with the four files of Fashion-MNIST (in it, in its fashion-mnist/ "
        f"or in its FashionMNIST/raw/; .gz or unpacked), got {got}. Correct the path, add the files, or unset "
        "D2LITE_DATA: Fashion-MNIST is downloaded then."
    )


def get_files() -> list[Path]:
    """Return the paths of the four files; those in the cache are downloaded if they are missing or damaged.

    pooch downloads each file under a temporary name and compares its MD5 sum; a bar shows the progress if tqdm is
    installed. The cache keeps it unpacked, so that processes share its memory. An interrupt, a lost connection or a
    full disk leaves no incomplete file. Of several processes one downloads, and the others wait for it.

    Raises:
        FileNotFoundError: if $D2LITE_DATA lacks a file.
        OSError: with the reason and what to do, if the files cannot be downloaded.
        ImportError: if pooch, which downloads them, is not installed.
    """
    if os.environ.get("D2LITE_DATA"):
        return find_files()
    folder = cache_folder() / "fashion-mnist"
    paths = [folder / name.removesuffix(".gz") for name in FILES]
    if not all(map(_is_whole, paths)):
        if is_offline():
            raise OSError(_failed(f"they are not all in {folder}, and D2LITE_OFFLINE=1 forbids a download"))
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with _one_process_at_a_time(folder):
                _remove_stale_parts(folder)
                _download(folder)
        except (OSError, ValueError) as error:  # ValueError: another MD5 sum; requests' errors are OSErrors
            reason = " ".join(text_of(error).split())[:300] or type(error).__name__  # one line, whatever was sent
            space = f" Free 100 MB in {folder}." if getattr(error, "errno", None) == errno.ENOSPC else ""
            raise OSError(_failed(f"no download from {URL}: {reason}") + space) from error
    return paths


def _download(folder: Path) -> None:
    try:
        import pooch  # its import takes longer than loading the images that come with d2lite
    except ImportError as error:
        raise ImportError(_failed("pooch, which downloads them, is not installed: pip install pooch")) from error
    hashes = {name: f"md5:{md5}" for name, md5 in FILES.items()}
    files = pooch.create(folder, URL, registry=hashes, retry_if_failed=RETRIES)
    bar = importlib.util.find_spec("tqdm") is not None
    for name in FILES:
        path = folder / name.removesuffix(".gz")
        if not _is_whole(path):  # else it is here, or another process was faster
            files.fetch(name, downloader=pooch.HTTPDownloader(progressbar=bar, timeout=TIMEOUT_S))
            _unpack(folder / name, path)


def _remove_stale_parts(folder: Path) -> None:
    """Remove the incomplete files of processes that were killed: pooch's temporary files, and ours."""
    for path in [*folder.glob("tmp*"), *folder.glob("*.part")]:
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > STALE_S:
                path.unlink()


def _unpack(packed: Path, path: Path) -> None:
    """Write the unpacked file, which gets its name when it is complete, and remove the packed one."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with gzip.open(packed) as source, open(part, "wb") as file:
            shutil.copyfileobj(source, file)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    packed.unlink(missing_ok=True)


def _failed(why: str) -> str:
    return (
        f"Fashion-MNIST: expected the four files of all 60,000 training images, but {why}. Pass num_examples=12_000 or "
        "less for the images that come with d2lite, or set D2LITE_DATA to a folder that holds the four files."
    )


def _found(folder: Path) -> dict[str, Path]:
    """Return the paths of the files in `folder`, with or without .gz, by their names in FILES."""
    both = {name: [folder / name, folder / name.removesuffix(".gz")] for name in FILES}
    found = {name: [path for path in paths if os.path.isfile(path)] for name, paths in both.items()}
    return {name: paths[0] for name, paths in found.items() if paths}


def _is_whole(path: Path) -> bool:
    try:
        return len(read_idx(path)) > 0
    except (OSError, ValueError):
        return False


@contextlib.contextmanager
def _one_process_at_a_time(folder: Path) -> Iterator[None]:
    """Wait until no other process is in this block with the same folder; where files cannot be locked, go on."""
    with open(folder / ".lock", "wb") as file:
        with contextlib.suppress(ImportError, OSError):  # Windows, some network file systems
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)  # closing the file, or the end of the process, unlocks it
        yield
