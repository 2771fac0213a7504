"""IDX files: mapped or unpacked without a second copy. What is damaged is in test_fashion_mnist.py."""

import gzip
import tracemalloc

import numpy as np
import pytest

from d2lite.data.idx import read_idx

HEAD = b"\x00\x00\x08\x03" + b"".join(n.to_bytes(4, "big") for n in (8_000, 28, 28))


@pytest.mark.parametrize(("pack", "suffix", "copies"), [(gzip.compress, ".gz", 1), (bytes, "", 0)])
def test_a_file_is_read_without_a_second_copy_in_memory(tmp_path, pack, suffix, copies):
    path = tmp_path / f"images{suffix}"
    path.write_bytes(pack(HEAD + bytes(6_272_000)))
    tracemalloc.start()
    try:
        array = read_idx(path)
        assert tracemalloc.get_traced_memory()[1] < (copies + 0.5) * array.nbytes and array.shape == (8_000, 28, 28)
    finally:
        tracemalloc.stop()


def test_a_mapped_array_may_be_written_to_and_its_file_stays(tmp_path):
    path = tmp_path / "labels"
    path.write_bytes(b"\x00\x00\x08\x01\x00\x00\x00\x03abc")
    array = read_idx(path)
    array[0] = 7
    assert isinstance(array, np.memmap) and bytes(read_idx(path)) == b"abc"


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_an_empty_array(tmp_path, suffix):
    path = tmp_path / f"empty{suffix}"
    content = b"\x00\x00\x08\x01\x00\x00\x00\x00"
    path.write_bytes(gzip.compress(content) if suffix else content)
    assert read_idx(path).shape == (0,)
