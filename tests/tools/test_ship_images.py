"""tools/ship_images.py: the same originals give the same bytes, and those are what is shipped."""

import gzip
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from d2lite.data import SHIPPED, find_files
from tools import ship_images

ROOT = Path(__file__).resolve().parents[2]


def test_the_first_examples_are_taken_and_the_sizes_are_written(tmp_path, monkeypatch):
    monkeypatch.setattr(ship_images, "NUM_SHIPPED", {"train": 2})
    images = b"\x00\x00\x08\x03" + b"".join(n.to_bytes(4, "big") for n in (3, 28, 28)) + bytes(range(3)) * 784
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(images))
    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(b"\x00\x00\x08\x01\x00\x00\x00\x03abc"))
    found = ship_images.shipped_bytes(tmp_path)
    assert found["train-labels-idx1-ubyte"] == b"\x00\x00\x08\x01\x00\x00\x00\x02ab"
    assert found["train-images-idx3-ubyte"] == images[:7] + b"\x02" + images[8 : 16 + 2 * 784]


@pytest.mark.skipif(not os.environ.get("D2LITE_DATA"), reason="D2LITE_DATA names no copy of Fashion-MNIST")
def test_it_makes_the_shipped_files():
    folder = find_files()[0].parent
    if not (folder / "train-images-idx3-ubyte.gz").exists():
        pytest.skip("the copy is unpacked")
    for name, content in ship_images.shipped_bytes(folder).items():
        assert (SHIPPED / name).read_bytes() == content


@pytest.mark.skipif(shutil.which("git") is None or not (ROOT / ".git").exists(), reason="no checkout")
def test_git_has_the_shipped_files_and_ignores_none():
    """A wheel and an sdist leave out what git ignores."""
    names = sorted(path.name for path in SHIPPED.iterdir())
    assert names == sorted([*ship_images.shipped_files(), "LICENSE"])
    command = ["git", "-C", str(ROOT), "ls-files", "--", str(SHIPPED)]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert sorted(Path(path).name for path in listed) == names
    ignored = subprocess.run(["git", "-C", str(ROOT), "check-ignore", "--no-index", *map(str, SHIPPED.iterdir())])
    assert ignored.returncode == 1
