"""Read IDX, the file format of MNIST, mapped into memory that processes share: http://yann.lecun.com/exdb/mnist/."""

import gzip
import math
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

__all__ = ["broken_file", "read_idx"]

_BLOCK = 1 << 18  # bytes that are unpacked at a time


def read_idx(path: Path) -> NDArray[np.uint8]:
    """Return the array (uint8) in an IDX file.

    A file that ends in .gz is unpacked into memory. Any other file is mapped: reading takes no time, all processes
    share its memory, and what is written to the array stays in this process. Raises ValueError with the file's name if
    the file is cut short or damaged.
    """
    packed = path.suffix == ".gz"
    try:
        with gzip.open(path) if packed else open(path, "rb") as file:
            head = file.read(4)
            if head[:3] != b"\x00\x00\x08" or head[3:] not in (b"\x01", b"\x03"):
                raise broken_file(path, "it does not begin like an IDX file of bytes")
            sizes = file.read(4 * head[3])
            if len(sizes) < 4 * head[3]:
                raise broken_file(path, "it ends inside its head")
            shape = tuple(int.from_bytes(sizes[i : i + 4], "big") for i in range(0, len(sizes), 4))
            n_bytes = math.prod(shape)
            if n_bytes > 2**31:
                raise broken_file(path, f"it claims to hold {n_bytes} bytes")
            if packed or not n_bytes:
                array, got = np.empty(shape, np.uint8), 0
                memory = array.reshape(-1).data
                while n := file.readinto(memory[got : got + _BLOCK]):  # gzip would unpack all of it into a second copy
                    got += n
                got += len(file.read(1))
            elif (got := path.stat().st_size - file.tell()) == n_bytes:
                array = np.memmap(path, np.uint8, mode="c", offset=file.tell(), shape=shape)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise broken_file(path, f"it does not unpack ({error})") from error
    if got != n_bytes:
        raise broken_file(path, f"expected {n_bytes} bytes for shape {shape}, got {got if got < n_bytes else 'more'}")
    return array


def broken_file(path: Path, why: str) -> ValueError:
    """Return the error for a damaged data file, without what to do: that depends on whose file it is."""
    return ValueError(f"broken data file {path}: {why}.")
