"""`python tools/ship_images.py FOLDER` writes the images that come with d2lite, from the four original files in FOLDER.

They are the first 12,000 training images and all 10,000 test images, with their labels, in the format of the original
files (IDX), unpacked: 17 MB, which all processes share. Packed, in the wheel and in the repository, they have 9.6 MB.
The same originals give the same bytes.
"""

import gzip
import sys
from pathlib import Path

from d2lite.data import NUM_SHIPPED, SHIPPED

__all__ = ["shipped_bytes", "shipped_files"]

KINDS = {"images-idx3": (4, 784), "labels-idx1": (2, 1)}  # the head's length in 4-byte numbers; bytes per example


def shipped_files():
    """Return {name: (split, kind)} of the shipped files; the originals have the same names and .gz."""
    return {f"{split}-{kind}-ubyte": (split, kind) for split in NUM_SHIPPED for kind in KINDS}


def shipped_bytes(originals):
    """Return {name: bytes} of the shipped files, from the original .gz files in the folder `originals`."""
    files = {}
    for name, (split, kind) in shipped_files().items():
        n, (head, each) = NUM_SHIPPED[split], KINDS[kind]
        content = gzip.decompress((Path(originals) / f"{name}.gz").read_bytes())
        # the second number of the head is how many examples there are
        files[name] = content[:4] + n.to_bytes(4, "big") + content[8 : 4 * head + n * each]
    return files


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    SHIPPED.mkdir(exist_ok=True)
    for name, content in shipped_bytes(sys.argv[1]).items():
        (SHIPPED / name).write_bytes(content)
        print(f"{SHIPPED / name}: {len(content):,} bytes")
