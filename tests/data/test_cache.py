"""Kept tensors: the same values, mapped, or made again; nothing that lies in the cache folder does harm."""

import os
import random
import threading
import time
import zlib

import pytest
import torch

from d2lite.data import cache
from d2lite.data.cache import cache_folder, load_or_make

MADE = (torch.arange(4000).remainder(256).to(torch.uint8).view(4, 1, 10, 100), torch.arange(4))


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def load(about="now", fits=lambda tensors: len(tensors) == 2 and tensors[0].shape == (4, 1, 10, 100)):
    """Return (what is loaded, whether it was made), in at most 20 seconds."""
    made, loaded = [], []

    def make():
        made.append(1)
        return MADE

    thread = threading.Thread(target=lambda: loaded.append(load_or_make("kept.pt", about, make, fits)), daemon=True)
    thread.start()
    thread.join(20)
    assert loaded, "it hangs"
    return loaded[0], bool(made)


def is_right(tensors):
    return len(tensors) == 2 and all(torch.equal(a, b) for a, b in zip(tensors, MADE, strict=True))


def save(about="now", tensors=MADE, **more):
    kept = {"about": about, "tensors": tensors} | more
    if all(isinstance(t, torch.Tensor) for t in tensors):
        kept = {"crc32": cache._crc32(tensors)} | kept
    torch.save(kept, cache_folder() / "kept.pt")


KEPT = {
    "nothing": lambda path: None,
    "text": lambda path: path.write_text("tensors"),
    "empty": lambda path: path.write_bytes(b""),
    "a folder": lambda path: path.mkdir(),
    "a pipe": lambda path: os.mkfifo(path),
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a link to nothing": lambda path: path.symlink_to("nothing"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a list": lambda path: torch.save([1], path),
    "another about": lambda path: save(about="then"),
    "no checksum": lambda path: save(crc32=None),
    "another checksum": lambda path: save(crc32=7),
    "no tensors": lambda path: save(tensors=()),
    "texts": lambda path: save(tensors=("a", "b"), crc32=0),
    "other shapes": lambda path: save(tensors=(MADE[0].view(2, 2, 10, 100), MADE[1])),
    "more tensors": lambda path: save(tensors=(*MADE, *MADE)),
    "another dtype": lambda path: save(tensors=(MADE[0].view(torch.int8), MADE[1]), crc32=cache._crc32(MADE)),
    "one value": lambda path: save(tensors=(MADE[0] + 1, MADE[1]), crc32=cache._crc32(MADE)),
    "an object": lambda path: torch.save({"about": "now", "tensors": (zlib.crc32, print), "crc32": 0}, path),
}


@pytest.mark.parametrize("name", KEPT)
def test_whatever_lies_in_the_place_is_made_again(name):
    cache_folder().mkdir(parents=True)
    KEPT[name](cache_folder() / "kept.pt")
    tensors, made = load()
    assert made and is_right(tensors)
    if name != "a folder":  # it stays, and costs the making each time
        tensors, made = load()
        assert not made and is_right(tensors)
    assert [path.name for path in cache_folder().iterdir()] == ["kept.pt"]


def test_a_kept_file_behind_a_link_is_used():
    load()
    path = cache_folder() / "kept.pt"
    path.rename(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))
    assert not load()[1]


def test_each_flipped_byte_is_noticed_or_changes_nothing():
    load()
    path = cache_folder() / "kept.pt"
    raw = path.read_bytes()
    places = random.Random(0).sample(range(len(raw)), 150)
    n_made = 0
    for place in places:
        path.unlink()
        path.write_bytes(raw[:place] + bytes([raw[place] ^ 1 << place % 8]) + raw[place + 1 :])
        tensors, made = load()
        assert is_right(tensors), f"byte {place}"
        n_made += made
    assert n_made > 100  # the rest is padding


def test_a_file_cut_anywhere_is_made_again():
    load()
    path = cache_folder() / "kept.pt"
    raw = path.read_bytes()
    for n_bytes in (*range(0, len(raw), 97), len(raw) - 1):
        path.unlink()
        path.write_bytes(raw[:n_bytes])
        tensors, made = load()
        assert made and is_right(tensors), f"{n_bytes} bytes"


def test_a_mapped_file_is_replaced_and_never_cut():
    mapped, _ = load()
    inode = (cache_folder() / "kept.pt").stat().st_ino
    assert load(about="later")[1] and (cache_folder() / "kept.pt").stat().st_ino != inode
    assert is_right(mapped)  # the old file's pages


def test_the_checksum_of_fashion_mnist_takes_milliseconds():
    tensors = (torch.zeros(60_000, 1, 28, 28, dtype=torch.uint8), torch.zeros(60_000, dtype=torch.int64))
    seconds = []
    for _ in range(3):
        begin = time.perf_counter()
        cache._crc32(tensors)
        seconds.append(time.perf_counter() - begin)
    print(f"{1e3 * min(seconds):.0f} ms")
    assert min(seconds) < 0.5  # 14 ms on an idle core


def test_the_checksum_takes_all_dtypes_and_no_elements():
    tensors = (torch.tensor(1.5, dtype=torch.bfloat16), torch.empty(0, 3), torch.ones(2, 3).T, torch.tensor([True]))
    assert len({cache._crc32(tensors[:n]) for n in range(5)}) == 5


def test_what_a_killed_process_left_is_swept_after_an_hour():
    load()
    old, new = cache.new_part(cache_folder()), cache.new_part(cache_folder())
    for part in (old, new):
        part.mkdir()
        (part / "file").write_text("")
    link = cache.new_part(cache_folder())
    link.symlink_to(new)
    for part in (old, link):
        os.utime(part, (time.time() - 4000,) * 2, follow_symlinks=False)
    load(about="later")
    assert sorted(cache_folder().iterdir()) == [cache_folder() / "kept.pt", new] and (new / "file").exists()


def test_without_a_home_it_is_made_each_time(monkeypatch):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(cache.Path, "home", no_home)
    assert load()[1] and load()[1]
    with pytest.raises(OSError, match="HOME: expected the path of a home folder, got none. Set HOME or XDG_CACHE_HOME"):
        cache_folder()
