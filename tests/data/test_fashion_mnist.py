import gzip
import os
import re
import time
import tracemalloc
from pathlib import Path

import pytest
import torch

from d2lite.data import download
from d2lite.data import fashion_mnist as data
from d2lite.data.cache import cache_folder
from d2lite.data.fashion_mnist import FASHION_MNIST, SILHOUETTES, BatchIterator, load_data_fashion_mnist
from d2lite.data.quick import quick
from d2lite.events import listening


@pytest.fixture
def no_copy(monkeypatch, tmp_path):
    """A machine with neither data nor network: nothing but the drawn set."""
    monkeypatch.delenv("D2LITE_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("D2LITE_OFFLINE", "1")
    forget()


def forget():
    """What a process remembers is forgotten, as in a new one."""
    data._given_up.clear()
    for cached in (data._say_once, data._drawn, data._read):
        cached.cache_clear()


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


def test_without_network_the_set_is_drawn_and_one_message_explains_it(no_copy, capsys):
    train_iter, test_iter = load_data_fashion_mnist(100, num_examples=600)
    load_data_fashion_mnist(100, num_examples=600)
    assert (train_iter.dataset, train_iter.num_examples, test_iter.num_examples) == (SILHOUETTES, 600, 100)
    message = capsys.readouterr().err
    assert message.count("Fashion-MNIST is not available") == 1 and "set D2LITE_DATA" in message
    cached = [p.name for p in cache_folder().iterdir()]
    assert len(cached) == 2 and all(name.startswith("silhouettes-") for name in cached)


def test_offline_is_no_failed_download(no_copy, monkeypatch, capsys):
    load_data_fashion_mnist(100, num_examples=600)
    assert "(D2LITE_OFFLINE=1). Using" in capsys.readouterr().err and not download.failed_lately()
    monkeypatch.setattr(download, "download", write_fashion_mnist)
    monkeypatch.setenv("D2LITE_OFFLINE", "0")  # in the same process
    assert load_data_fashion_mnist(4)[0].dataset == FASHION_MNIST


def test_ranks_do_not_try_within_an_hour_of_a_failure_and_other_processes_do(no_copy, monkeypatch, capsys):
    def fail(folder):
        raise OSError("no network")

    monkeypatch.setattr(download, "download", fail)
    monkeypatch.setenv("D2LITE_OFFLINE", "0")
    load_data_fashion_mnist(100, num_examples=600)
    for in_a_rank, age_s, n_messages in ((True, 0, 0), (True, 4000, 1), (False, 0, 1)):
        forget()
        capsys.readouterr()
        then = time.time() - age_s
        os.utime(cache_folder() / ".not-downloaded", (then, then))
        monkeypatch.setattr(data, "_rank", lambda answer=0 if in_a_rank else None: answer)
        assert load_data_fashion_mnist(100, num_examples=600)[0].dataset == SILHOUETTES
        assert capsys.readouterr().err.count("is not available") == n_messages


def test_a_failure_leaves_no_mark_where_nothing_can_be_written(monkeypatch, tmp_path):
    (tmp_path / "d2lite").write_text("a file where the folder would be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    download.note_failure()
    assert not download.failed_lately()


def test_drawn_set_comes_from_the_cache_and_survives_a_damaged_one(no_copy):
    first, _ = load_data_fashion_mnist(100, num_examples=600)
    for path in cache_folder().glob("silhouettes-*"):
        begin = path.read_bytes()[:1000]
        path.unlink()  # a new file: to cut a mapped one short kills the process that reads it
        path.write_bytes(begin)
    data._drawn.cache_clear()
    again, _ = load_data_fashion_mnist(100, num_examples=600)
    assert torch.equal(first.images, again.images)


def test_unpacked_files_are_kept_and_mapped_and_made_again_when_the_files_change(no_copy, monkeypatch, tmp_path):
    monkeypatch.setenv("D2LITE_DATA", str(tmp_path))
    write_fashion_mnist(tmp_path)
    first, _ = load_data_fashion_mnist(4, num_examples=12)
    kept = cache_folder() / "fashion-mnist.pt"
    assert [path.name for path in cache_folder().iterdir()] == [kept.name]
    first.images[0] = 7  # a copy of the page, this process's own
    inode = kept.stat().st_ino
    data._read.cache_clear()
    again, _ = load_data_fashion_mnist(4, num_examples=12)
    assert kept.stat().st_ino == inode and int(again.images[0].max()) == 0
    write_fashion_mnist(tmp_path, 24)
    data._read.cache_clear()
    changed, _ = load_data_fashion_mnist(4, num_examples=24)
    assert changed.num_examples == 24 and int(changed.images[23].max()) == 23 and kept.stat().st_ino != inode
    monkeypatch.setattr(download, "read_idx", lambda path: pytest.fail("read again"))
    data._read.cache_clear()
    assert load_data_fashion_mnist(4, num_examples=24)[0].num_examples == 24


def test_drawn_set_without_a_cache_to_write(no_copy, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert load_data_fashion_mnist(100, num_examples=60)[0].dataset == SILHOUETTES


@pytest.mark.parametrize("place", ["fashion-mnist", "FashionMNIST/raw", "."])
@pytest.mark.parametrize(("pack", "suffix"), [(gzip.compress, ".gz"), (bytes, "")])
def test_d2lite_data_in_either_layout(no_copy, monkeypatch, tmp_path, place, pack, suffix):
    write_fashion_mnist(tmp_path / "mine" / place if place != "." else tmp_path / "mine", pack=pack, suffix=suffix)
    monkeypatch.setenv("D2LITE_DATA", str(tmp_path / "mine"))
    train_iter, test_iter = load_data_fashion_mnist(5, num_examples=12)
    assert train_iter.dataset == FASHION_MNIST and len(test_iter) == 1
    X, y = next(iter(train_iter))
    assert X.shape == (5, 1, 28, 28) and X.dtype == torch.float32 and y.dtype == torch.int64
    assert torch.equal((X[:, 0, 0, 0] * 255).round().long() % 10, y)
    assert "mine" in data.location() and FASHION_MNIST in data.location()


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
def test_a_damaged_file_is_named(no_copy, monkeypatch, tmp_path, damage, message):
    write_fashion_mnist(tmp_path / "fashion-mnist")
    path = tmp_path / "fashion-mnist" / "train-images-idx3-ubyte.gz"
    path.write_bytes(damage(path.read_bytes()))
    monkeypatch.setenv("D2LITE_DATA", str(tmp_path))
    with pytest.raises(ValueError, match=rf"broken data file .*{path.name}: .*{message}.*[.] Replace it, or delete"):
        load_data_fashion_mnist(5)
    assert path.exists()  # a learner's own file is never removed


@pytest.mark.parametrize(("pack", "suffix"), [(gzip.compress, ".gz"), (bytes, "")])
def test_a_file_is_unpacked_without_a_second_copy_in_memory(tmp_path, pack, suffix):
    path = tmp_path / f"images{suffix}"
    path.write_bytes(
        pack(b"\x00\x00\x08\x03" + b"".join(n.to_bytes(4, "big") for n in (8_000, 28, 28)) + bytes(6272_000))
    )
    tracemalloc.start()
    try:
        array = download.read_idx(path)
        assert tracemalloc.get_traced_memory()[1] < 1.5 * array.nbytes and array.shape == (8_000, 28, 28)
    finally:
        tracemalloc.stop()


def test_labels_that_do_not_fit_are_named(no_copy, monkeypatch, tmp_path):
    write_fashion_mnist(tmp_path / "fashion-mnist")
    path = tmp_path / "fashion-mnist" / "t10k-labels-idx1-ubyte.gz"
    path.write_bytes(gzip.compress(idx(torch.arange(3))))
    monkeypatch.setenv("D2LITE_DATA", str(tmp_path))
    with pytest.raises(ValueError, match=r"t10k-labels.*expected 2 labels from 0 to 9 .* got \(3,\)"):
        load_data_fashion_mnist(5)
    path.write_bytes(gzip.compress(idx(torch.tensor([3, 10]))))
    with pytest.raises(ValueError, match="t10k-labels.*expected 2 labels from 0 to 9 .* got 10"):
        load_data_fashion_mnist(5)


@pytest.mark.parametrize(
    ("file", "array", "got"),
    [
        ("train-images-idx3-ubyte.gz", torch.zeros(0, 28, 28), r"\(0, 28, 28\)"),
        ("t10k-images-idx3-ubyte.gz", torch.zeros(0, 28, 28), r"\(0, 28, 28\)"),
        ("train-images-idx3-ubyte.gz", torch.zeros(12, 32, 28), r"\(12, 32, 28\)"),
        ("train-images-idx3-ubyte.gz", torch.zeros(12), r"\(12,\)"),
        ("train-labels-idx1-ubyte.gz", torch.zeros(0), r"\(0,\)"),
        ("train-labels-idx1-ubyte.gz", torch.zeros(12, 2, 2), r"\(12, 2, 2\)"),
    ],
)
def test_a_set_without_examples_or_of_another_shape_is_a_broken_file(no_copy, monkeypatch, tmp_path, file, array, got):
    write_fashion_mnist(tmp_path)
    (tmp_path / file).write_bytes(gzip.compress(idx(array.int())))
    monkeypatch.setenv("D2LITE_DATA", str(tmp_path))
    with pytest.raises(ValueError, match=f"broken data file .*{file}: expected .* got .*{got}"):
        load_data_fashion_mnist(5)


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
def test_d2lite_data_without_the_files_says_once_what_it_lacks(no_copy, monkeypatch, tmp_path, capsys, fill, got):
    fill(tmp_path / "mine")
    monkeypatch.setenv("D2LITE_DATA", str(tmp_path / "mine"))
    for _ in range(2):
        assert load_data_fashion_mnist(100, num_examples=60)[0].dataset == SILHOUETTES
    errors = capsys.readouterr().err
    assert len(re.findall(f"D2LITE_DATA: expected the path of a folder with the four files.*{got}", errors)) == 1
    assert re.search(got, data.location())
    forget()
    monkeypatch.setattr(data, "_rank", lambda: 1)  # rank 0 has said it
    load_data_fashion_mnist(100, num_examples=60)
    assert capsys.readouterr().err == ""


@pytest.mark.skipif(os.geteuid() == 0, reason="root may look into every folder")
def test_d2lite_data_that_may_not_be_looked_into(no_copy, monkeypatch, tmp_path, capsys):
    (tmp_path / "mine").mkdir(mode=0)
    monkeypatch.setenv("D2LITE_DATA", str(tmp_path / "mine"))
    assert load_data_fashion_mnist(100, num_examples=60)[0].dataset == SILHOUETTES
    assert "D2LITE_DATA: expected" in capsys.readouterr().err


def test_no_home_is_no_traceback(no_copy, monkeypatch, capsys):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", no_home)
    monkeypatch.setenv("D2LITE_OFFLINE", "0")
    assert "in memory (HOME: expected" in data.location()
    assert load_data_fashion_mnist(100, num_examples=60)[0].dataset == SILHOUETTES
    assert "Set HOME or XDG_CACHE_HOME" in capsys.readouterr().err


def test_files_of_one_set_may_be_packed_and_unpacked(no_copy, monkeypatch, tmp_path):
    write_fashion_mnist(tmp_path)
    path = tmp_path / "t10k-labels-idx1-ubyte.gz"
    path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
    path.unlink()
    monkeypatch.setenv("D2LITE_DATA", str(tmp_path))
    assert load_data_fashion_mnist(5)[0].dataset == FASHION_MNIST


def test_where_without_data_downloads_nothing(no_copy):
    assert "not here yet" in data.location() and not cache_folder().exists()


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


def test_minibatches_sizes_and_values():
    train_iter = iterator(seed=0)
    assert (len(train_iter), train_iter.smallest(), iterator(8).smallest()) == (3, 2, 4)
    for X, y in train_iter:
        assert X.shape == (len(y), 1, 28, 28)
        torch.testing.assert_close(X[:, 0, 5, 5], y / 255)
    assert next(iter(iterator(resize=14)))[0].shape == (4, 1, 14, 14)


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
    monkeypatch.setattr(data, "_dataset", lambda n: pytest.fail("loaded"))
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
