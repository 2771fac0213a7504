"""Fashion-MNIST: the images that come with d2lite, those of a learner's own files, and their minibatches."""

import gzip
import os
import re
import socket
import sys
from pathlib import Path

import pytest
import torch

from d2lite._quick import quick
from d2lite.data import fashion_mnist as data
from d2lite.data.batch_iterator import BatchIterator
from d2lite.data.download import FILES, cache_folder, find_files
from d2lite.data.fashion_mnist import SHIPPED, load_data_fashion_mnist
from d2lite.data.idx import read_idx
from d2lite.run_events import listening


@pytest.fixture
def small(monkeypatch, tmp_path):
    """A machine without a cache, a copy of the data and a network; the complete set has 12 images, 6 are shipped."""
    monkeypatch.setattr(data, "NUM_EXAMPLES", {"train": 12, "t10k": 2})
    monkeypatch.setattr(data, "NUM_SHIPPED", {"train": 6, "t10k": 2})
    monkeypatch.delenv("D2LITE_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("D2LITE_OFFLINE", "1")
    data._complete.cache_clear()
    yield
    data._complete.cache_clear()


def idx(array):
    head = bytes([0, 0, 8, array.dim()]) + b"".join(n.to_bytes(4, "big") for n in array.shape)
    return head + bytes(array.flatten().tolist())


def write_fashion_mnist(folder, n=12, n_test=2, pack=gzip.compress, suffix=".gz"):
    """Write four small files in the format of Fashion-MNIST; image i is filled with i."""
    folder.mkdir(parents=True, exist_ok=True)
    for prefix, count in (("train", n), ("t10k", n_test)):
        images = torch.arange(count).view(-1, 1, 1).expand(count, 28, 28)
        (folder / f"{prefix}-images-idx3-ubyte{suffix}").write_bytes(pack(idx(images)))
        (folder / f"{prefix}-labels-idx1-ubyte{suffix}").write_bytes(pack(idx(torch.arange(count) % 10)))


@pytest.mark.parametrize(
    ("num_examples", "n", "n_test"),
    [(None, 12_000, 10_000), (12_000, 12_000, 2_000), (3_001, 3_001, 501), (600, 600, 100), (1, 1, 1)],
)
def test_what_comes_with_the_package_needs_no_network_no_home_and_no_files(monkeypatch, num_examples, n, n_test):
    def fail(*args, **kwargs):
        raise OSError("no network, no home")

    monkeypatch.setattr(socket, "socket", fail)
    monkeypatch.setattr(Path, "home", fail)
    for name in ("XDG_CACHE_HOME", "D2LITE_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("D2LITE_DATA", "/no/such/folder")  # it is for who asks for more
    train_iter, test_iter = load_data_fashion_mnist(256, num_examples)
    assert (train_iter.num_examples, test_iter.num_examples) == (n, n_test)
    assert train_iter.dataset == test_iter.dataset == f"Fashion-MNIST, {n:,} + {n_test:,} images"
    assert train_iter.examples.shape == (n, 1, 28, 28) and train_iter.examples.dtype == torch.uint8
    assert train_iter.labels.shape == (n,) and train_iter.labels.dtype == torch.int64
    everything = load_data_fashion_mnist(256)
    for iterator, whole in zip((train_iter, test_iter), everything, strict=True):
        assert torch.equal(iterator.examples, whole.examples[: iterator.num_examples])  # the first ones
        assert torch.equal(iterator.labels, whole.labels[: iterator.num_examples])


def test_the_shipped_images_have_every_class_as_often_and_their_licence():
    for iterator in load_data_fashion_mnist(256):
        counts = iterator.labels.bincount(minlength=10) / iterator.num_examples
        assert 0.09 < float(counts.min()) <= float(counts.max()) < 0.11
    assert "Zalando" in (SHIPPED / "LICENSE").read_text(encoding="utf-8")


def test_what_is_written_to_an_image_changes_no_file_and_no_later_call():
    first, _ = load_data_fashion_mnist(4, num_examples=12)
    before = first.examples.clone()
    first.examples += 1
    assert torch.equal(load_data_fashion_mnist(4, num_examples=12)[0].examples, before)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_the_shipped_images_are_mapped_and_not_copied():
    train_iter, _ = load_data_fashion_mnist(4)
    maps = Path("/proc/self/maps").read_text()
    assert str(SHIPPED / "train-images-idx3-ubyte") in maps and train_iter.examples.sum() > 0


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "expected 9408 bytes for shape .* got 9407"),
        (lambda path: path.write_bytes(b"version https://git-lfs.github.com/spec/v1"), "does not begin like an IDX"),
        (lambda path: path.write_bytes(b""), "does not begin like an IDX"),
        (lambda path: path.unlink(), "No such file"),
    ],
)
def test_a_damaged_shipped_file_is_named_with_what_to_do(small, monkeypatch, tmp_path, damage, said):
    write_fashion_mnist(tmp_path, pack=bytes, suffix="")
    monkeypatch.setattr(data, "SHIPPED", tmp_path)
    monkeypatch.setattr(data, "NUM_SHIPPED", {"train": 12, "t10k": 2})
    assert load_data_fashion_mnist(4)[0].num_examples == 12
    damage(tmp_path / "train-images-idx3-ubyte")
    with pytest.raises(
        (ValueError, OSError), match=f"{said}.*train-images.*install d2lite again|{said}.*install d2lite"
    ):
        load_data_fashion_mnist(4)


@pytest.mark.parametrize("place", ["fashion-mnist", "FashionMNIST/raw", "."])
@pytest.mark.parametrize(("pack", "suffix"), [(gzip.compress, ".gz"), (bytes, "")])
def test_d2lite_data_in_either_layout(small, monkeypatch, tmp_path, place, pack, suffix):
    write_fashion_mnist(tmp_path / "mine" / place, pack=pack, suffix=suffix)
    monkeypatch.setenv("D2LITE_DATA", str(tmp_path / "mine"))
    train_iter, test_iter = load_data_fashion_mnist(5, num_examples=12)
    assert train_iter.dataset == "Fashion-MNIST, 12 + 2 images" and len(test_iter) == 1
    X, y = next(iter(train_iter))
    assert X.shape == (5, 1, 28, 28) and X.dtype == torch.float32 and y.dtype == torch.int64
    assert torch.equal((X[:, 0, 0, 0] * 255).round().long() % 10, y)
    assert "12 in " in data.location() and "mine" in data.location()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda raw: raw[:-20], "does not unpack"),
        (lambda raw: b"not gzip", "does not unpack"),
        (lambda raw: gzip.compress(gzip.decompress(raw)[:-5]), r"expected 9408 bytes.*got 9403"),
        (lambda raw: gzip.compress(gzip.decompress(raw) + b"x"), r"expected 9408 bytes.*got more"),
        (lambda raw: gzip.compress(b"\x00\x00\x08\x03" + b"\xff" * 12), "it claims to hold"),
        (lambda raw: gzip.compress(b"\x00\x00\x0d\x03" + b"\x00" * 99), "does not begin like an IDX"),
        (lambda raw: gzip.compress(b""), "does not begin like an IDX"),
    ],
)
def test_a_damaged_file_is_named(small, monkeypatch, tmp_path, damage, message):
    write_fashion_mnist(tmp_path / "fashion-mnist")
    path = tmp_path / "fashion-mnist" / "train-images-idx3-ubyte.gz"
    path.write_bytes(damage(path.read_bytes()))
    monkeypatch.setenv("D2LITE_DATA", str(tmp_path))
    with pytest.raises(ValueError, match=rf"broken data file .*{path.name}: .*{message}.*[.] Replace it, or unset"):
        load_data_fashion_mnist(5, 12)
    assert path.exists()  # a learner's own file is never removed


def test_labels_that_do_not_fit_are_named(small, monkeypatch, tmp_path):
    write_fashion_mnist(tmp_path / "fashion-mnist")
    path = tmp_path / "fashion-mnist" / "t10k-labels-idx1-ubyte.gz"
    path.write_bytes(gzip.compress(idx(torch.arange(3))))
    monkeypatch.setenv("D2LITE_DATA", str(tmp_path))
    with pytest.raises(ValueError, match=r"t10k-labels.*expected 2 labels from 0 to 9, got shape \(3,\)"):
        load_data_fashion_mnist(5, 12)
    path.write_bytes(gzip.compress(idx(torch.tensor([3, 10]))))
    with pytest.raises(ValueError, match="t10k-labels.*expected 2 labels from 0 to 9, got 10"):
        load_data_fashion_mnist(5, 12)


@pytest.mark.parametrize(
    ("file", "array", "got"),
    [
        ("train-images-idx3-ubyte.gz", torch.zeros(0, 28, 28), r"\(0, 28, 28\)"),
        ("train-images-idx3-ubyte.gz", torch.zeros(11, 28, 28), r"\(11, 28, 28\)"),
        ("t10k-images-idx3-ubyte.gz", torch.zeros(0, 28, 28), r"\(0, 28, 28\)"),
        ("train-images-idx3-ubyte.gz", torch.zeros(12, 32, 28), r"\(12, 32, 28\)"),
        ("train-images-idx3-ubyte.gz", torch.zeros(12), r"\(12,\)"),
        ("train-labels-idx1-ubyte.gz", torch.zeros(0), r"\(0,\)"),
        ("train-labels-idx1-ubyte.gz", torch.zeros(12, 2, 2), r"\(12, 2, 2\)"),
    ],
)
def test_a_set_of_another_size_or_shape_is_a_broken_file(small, monkeypatch, tmp_path, file, array, got):
    write_fashion_mnist(tmp_path)
    (tmp_path / file).write_bytes(gzip.compress(idx(array.int())))
    monkeypatch.setenv("D2LITE_DATA", str(tmp_path))
    with pytest.raises(ValueError, match=f"broken data file .*{file}: expected .* got .*{got}"):
        load_data_fashion_mnist(5, 12)


@pytest.mark.parametrize(
    ("fill", "got"),
    [
        (lambda folder: None, "mine, which is no folder"),
        (lambda folder: folder.write_text(""), "mine, which is no folder"),
        (lambda folder: folder.mkdir(), "mine without train-images-idx3-ubyte.gz, train-labels.*t10k-labels.*gz"),
        (
            lambda folder: (
                write_fashion_mnist(folder / "fashion-mnist"),
                (folder / "fashion-mnist" / "t10k-labels-idx1-ubyte.gz").unlink(),
            ),
            "mine/fashion-mnist without t10k-labels-idx1-ubyte.gz[.]",
        ),
    ],
    ids=["nothing", "a file", "empty", "three files"],
)
def test_d2lite_data_without_the_files_is_an_error_that_says_what_it_lacks(small, monkeypatch, tmp_path, fill, got):
    fill(tmp_path / "mine")
    monkeypatch.setenv("D2LITE_DATA", str(tmp_path / "mine"))
    with pytest.raises(FileNotFoundError, match=f"D2LITE_DATA: expected the path of a folder with the four .*{got}"):
        load_data_fashion_mnist(100, num_examples=12)
    assert re.search(got, data.location())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may look into every folder")
def test_d2lite_data_that_may_not_be_looked_into(small, monkeypatch, tmp_path):
    (tmp_path / "mine").mkdir(mode=0)
    monkeypatch.setenv("D2LITE_DATA", str(tmp_path / "mine"))
    with pytest.raises(FileNotFoundError, match="D2LITE_DATA: expected"):
        load_data_fashion_mnist(100, num_examples=12)


def test_no_home_is_an_error_for_who_asks_for_more(small, monkeypatch):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", no_home)
    assert "not here (HOME: expected" in data.location()
    with pytest.raises(OSError, match="Set HOME or XDG_CACHE_HOME"):
        load_data_fashion_mnist(100, num_examples=12)


def test_files_of_one_set_may_be_packed_and_unpacked(small, monkeypatch, tmp_path):
    write_fashion_mnist(tmp_path)
    path = tmp_path / "t10k-labels-idx1-ubyte.gz"
    path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
    path.unlink()
    monkeypatch.setenv("D2LITE_DATA", str(tmp_path))
    assert load_data_fashion_mnist(5, 12)[0].num_examples == 12


def test_of_a_packed_and_an_unpacked_file_the_unpacked_one_is_mapped(small, monkeypatch, tmp_path):
    raw = tmp_path / "FashionMNIST" / "raw"  # torchvision keeps both
    write_fashion_mnist(raw)
    write_fashion_mnist(raw, pack=bytes, suffix="")
    monkeypatch.setenv("D2LITE_DATA", str(tmp_path))
    assert [path.suffix for path in find_files()] == [""] * 4
    assert load_data_fashion_mnist(5, 12)[0].num_examples == 12


def test_location_downloads_nothing(small):
    assert "all 12 not here" in data.location() and str(SHIPPED) in data.location()
    assert not cache_folder().exists()


def originals():
    """The files of a real copy, or none: the shipped images are compared with them."""
    try:
        found = find_files() if os.environ.get("D2LITE_DATA") else []
    except FileNotFoundError:
        found = []
    return dict(zip(FILES, found, strict=False))


@pytest.mark.skipif(not originals(), reason="D2LITE_DATA names no copy of Fashion-MNIST")
def test_the_shipped_images_are_the_first_of_the_original_files():
    for name, path in originals().items():
        shipped = read_idx(SHIPPED / name.removesuffix(".gz"))
        assert len(shipped) == (12_000 if name.startswith("train") else 10_000)
        assert (shipped == read_idx(path)[: len(shipped)]).all()


def iterator(n=10, batch_size=4, **options):
    images = torch.arange(n, dtype=torch.uint8).view(-1, 1, 1, 1).expand(n, 1, 28, 28)
    return BatchIterator(images, torch.arange(n), batch_size, "toy", **options)


def test_every_example_comes_once_in_an_order_of_its_own():
    train_iter = iterator(seed=3)
    torch.manual_seed(1)
    epochs = [torch.cat([y for _, y in train_iter]).tolist() for _ in range(2)]
    torch.manual_seed(2)
    again = iterator(seed=3)
    assert [torch.cat([y for _, y in again]).tolist() for _ in range(2)] == epochs
    assert epochs[0] != epochs[1] and sorted(epochs[0]) == sorted(epochs[1]) == list(range(10))
    assert torch.cat([y for _, y in iterator(seed=4)]).tolist() != epochs[0]
    assert torch.cat([y for _, y in iterator()]).tolist() == list(range(10))  # no seed, no shuffle


def test_runs_with_neighbouring_seeds_share_no_order_of_an_epoch():
    """Otherwise several seeds would repeat each other, and their spread would be too small."""
    orders = []
    for seed in range(5):
        train_iter = iterator(n=50, batch_size=50, seed=seed)
        orders += [tuple(next(iter(train_iter))[1].tolist()) for _ in range(5)]
    assert len(set(orders)) == 25


def test_minibatches_sizes_and_values():
    train_iter = iterator(seed=0)
    assert (len(train_iter), train_iter.smallest(), iterator(8).smallest()) == (3, 2, 4)
    for X, y in train_iter:
        assert X.shape == (len(y), 1, 28, 28)
        torch.testing.assert_close(X[:, 0, 5, 5], y / 255)
    assert next(iter(iterator(resize=14)))[0].shape == (4, 1, 14, 14)


def test_a_smaller_image_keeps_the_brightness_of_what_it_leaves_out():
    stripes = torch.zeros(1, 1, 28, 28, dtype=torch.uint8)
    stripes[..., ::4] = 255  # every fourth column
    X, _ = next(iter(BatchIterator(stripes, torch.zeros(1), 1, "toy", resize=7)))
    assert X.shape == (1, 1, 7, 7) and X.mean().item() == pytest.approx(0.25, abs=0.03)


def test_the_iterator_emits_steps_and_epochs():
    events = []
    with listening(lambda event, **facts: events.append((event, facts))):
        list(iterator(seed=0))
        list(iterator())
    assert [event for event, _ in events] == ["minibatch"] * 3 + ["epoch"] + ["evaluation"] * 3
    assert events[1][1] == {"epoch": 0, "step": 1, "steps": 3, "dataset": "toy"}
    assert events[3][1]["num_examples"] == 10 and events[3][1]["seconds"] > 0


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        ((0,), ValueError, "batch_size: expected a positive whole number, got 0"),
        ((2.5,), TypeError, "batch_size"),
        ((True,), TypeError, "batch_size"),
        (("256",), TypeError, r"batch_size: expected a positive whole number, got '256' \(str\)"),
        ((8, "all"), TypeError, r"num_examples: expected a whole number from 1 to 60000, got 'all' \(str\)"),
        ((8, 16, "32"), TypeError, r"resize: expected a whole number from 1 to 1024, got '32' \(str\)"),
        ((8, 16, 28, "0"), TypeError, r"seed: expected a whole number from 0 .*, got '0' \(str\)"),
        ((8, 16, 28, -1), ValueError, "seed: expected a whole number from 0 "),
        ((8, 16, 28, 2**43), ValueError, "seed: expected a whole number from 0 "),
        ((8, 60_001), ValueError, "num_examples: expected a whole number from 1 to 60000, got 60001"),
        ((8, 16, 0), ValueError, "resize: expected a whole number from 1 to 1024, got 0"),
    ],
)
def test_load_refuses_before_it_loads(args, error, message, monkeypatch):
    for name in ("_shipped", "_complete", "get_files"):
        monkeypatch.setattr(data, name, lambda *args: pytest.fail("loaded"))
    with pytest.raises(error, match=message):
        load_data_fashion_mnist(*args)


def test_the_largest_seed_shuffles():
    assert sorted(torch.cat([y for _, y in iterator(seed=2**43 - 1)]).tolist()) == list(range(10))


def test_an_iterator_refuses_text_as_batch_size():
    with pytest.raises(TypeError, match="batch_size: expected a positive whole number, got '4'"):
        iterator(batch_size="4")


def test_quick(monkeypatch):
    monkeypatch.delenv("D2LITE_QUICK", raising=False)
    assert quick(12_000, 2_000) == 12_000
    monkeypatch.setenv("D2LITE_QUICK", "1")
    assert quick(12_000, 2_000) == 2_000
