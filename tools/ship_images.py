"""`python tools/ship_images.py FOLDER` writes the images that come with d2lite, from the four original files in FOLDER.

They are the first 12,000 training images and all 10,000 test images, with their labels, in the format of the original
files (IDX), unpacked: 17 MB that all processes map, of which the wheel and the repository keep 9.6 MB. The same
originals give the same bytes.
"""

import gzip
import sys
from pathlib import Path

from d2lite.data import NUM_SHIPPED, SHIPPED

__all__ = ["shipped_bytes"]


def shipped_bytes(originals):
    """Return {name: bytes} of the shipped files, from the original .gz files in the folder `originals`."""
    files = {}
    for split, n in NUM_SHIPPED.items():
        for kind, dims in (("images-idx3", 3), ("labels-idx1", 1)):
            content = gzip.decompress((Path(originals) / f"{split}-{kind}-ubyte.gz").read_bytes())
            start = 4 + 4 * dims  # two zeros, the type, the number of dimensions; then the sizes, 4 bytes each
            each = 784 if dims == 3 else 1
            head = content[:4] + n.to_bytes(4, "big") + content[8:start]
            files[f"{split}-{kind}-ubyte"] = head + content[start : start + n * each]
    return files


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    SHIPPED.mkdir(exist_ok=True)
    for name, content in shipped_bytes(sys.argv[1]).items():
        (SHIPPED / name).write_bytes(content)
        print(f"{SHIPPED / name}: {len(content):,} bytes")
