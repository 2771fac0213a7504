"""The real download path against a mirror on loopback: complete, truncated, corrupted, interrupted."""

import errno
import functools
import hashlib
import http.client
import http.server
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from d2lite.data import download, fetch
from d2lite.data import fashion_mnist as data
from d2lite.workers import Workers
from tests.data.test_fashion_mnist import forget, write_fashion_mnist


class Mirror(http.server.SimpleHTTPRequestHandler):
    """Serves a folder; `spoil` maps a file name to what is done to its body, or to "cut" or "hang"."""

    spoil = {}

    def do_GET(self):
        name = self.path.rpartition("/")[2]
        how = self.spoil.get(name)
        if how is None:
            return super().do_GET()
        body = (self.directory_path / name).read_bytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if how == "cut":
            self.wfile.write(body[: len(body) // 2])
        elif how == "hang":
            self.wfile.write(body[: len(body) // 2])
            self.wfile.flush()
            self.server.asked.set()
            self.server.ending.wait(30)
        else:
            self.wfile.write(how(body))

    def log_message(self, *args):
        pass


@pytest.fixture
def mirror(tmp_path, monkeypatch):
    """Serve four small files whose sizes and MD5 sums `download` accepts as the real ones."""
    write_fashion_mnist(tmp_path / "mirror")
    handler = type("Handler", (Mirror,), {"spoil": {}, "directory_path": tmp_path / "mirror"})
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(handler, directory=str(tmp_path / "mirror"))
    )
    server.spoil, server.asked, server.ending = handler.spoil, threading.Event(), threading.Event()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    server.url = f"http://127.0.0.1:{server.server_port}/"
    bodies = {name: (tmp_path / "mirror" / name).read_bytes() for name in download.FILES}
    server.files = {name: (len(body), hashlib.md5(body).hexdigest()) for name, body in bodies.items()}
    monkeypatch.setattr(download, "MIRRORS", [server.url])
    monkeypatch.setattr(download, "FILES", server.files)
    monkeypatch.delenv("D2LITE_DATA", raising=False)
    monkeypatch.setenv("D2LITE_OFFLINE", "0")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    forget()
    yield server
    server.ending.set()
    server.shutdown()
    server.server_close()
    thread.join()


def cached_files():
    folder = download.cache_folder()
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_complete_with_a_progress_bar(mirror, capfd):
    train_iter, _ = data.load_data_fashion_mnist(4, num_examples=12)
    assert train_iter.dataset == data.FASHION_MNIST
    assert cached_files() == ["fashion-mnist.pt", *sorted(f"fashion-mnist/{name}" for name in download.FILES)]
    assert "100%" in capfd.readouterr().err  # the progress bar
    assert not list(download.cache_folder().glob("unfinished-*"))


def test_a_second_process_downloads_nothing(mirror):
    data.load_data_fashion_mnist(4)
    forget()
    mirror.spoil.update(dict.fromkeys(download.FILES, lambda body: b"gone"))
    assert data.load_data_fashion_mnist(4)[0].dataset == data.FASHION_MNIST


@pytest.mark.parametrize(
    "how",
    ["cut", lambda body: body[:-1] + bytes([body[-1] ^ 1]), lambda body: b"\x00" * len(body)],
    ids=["truncated", "one bit", "zeros"],
)
def test_truncated_or_corrupted_files_are_never_used_as_data(mirror, capsys, how):
    mirror.spoil["t10k-labels-idx1-ubyte.gz"] = how
    train_iter, _ = data.load_data_fashion_mnist(4, num_examples=60)
    assert train_iter.dataset == data.SILHOUETTES
    assert not any("idx" in name for name in cached_files())
    assert mirror.url in capsys.readouterr().err
    mirror.spoil.clear()
    forget()  # a new process
    assert data.load_data_fashion_mnist(4)[0].dataset == data.FASHION_MNIST


def test_a_mirror_that_stops_sending_is_given_up(mirror, monkeypatch):
    for module in (download, fetch):
        monkeypatch.setattr(module, "STALL_S", 0.5)
    mirror.spoil["train-images-idx3-ubyte.gz"] = "hang"
    with pytest.raises(OSError, match="could not be downloaded: .*timed out"):
        download.download(download.cache_folder() / "fashion-mnist")
    assert cached_files() == []


def test_a_mirror_that_does_not_answer_is_given_up(mirror, monkeypatch):
    monkeypatch.setattr(download, "ANSWER_S", 1)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        dead = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        monkeypatch.setattr(download, "MIRRORS", [dead])
        with pytest.raises(OSError, match=f"{dead}: timed out"):
            download.download(download.cache_folder() / "fashion-mnist")
        monkeypatch.setattr(download, "MIRRORS", [dead, mirror.url])
        download.download(download.cache_folder() / "fashion-mnist")  # the second mirror serves
    assert len(cached_files()) == 4


@pytest.mark.slow
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGKILL])
def test_interrupted(mirror, sign, tmp_path):
    mirror.spoil["train-images-idx3-ubyte.gz"] = "hang"
    code = f"""
from d2lite.data import fashion_mnist as data
from d2lite.data import download
download.MIRRORS = [{mirror.url!r}]
download.FILES = {mirror.files!r}
data.load_data_fashion_mnist(4)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE)
    assert mirror.asked.wait(60)
    process.send_signal(sign)
    _, errors = process.communicate(timeout=30)
    assert process.returncode != 0
    assert not any(name.startswith("fashion-mnist/") for name in cached_files())
    if sign == signal.SIGINT:
        assert cached_files() == [] and b"KeyboardInterrupt" in errors
    for part in download.cache_folder().glob("unfinished-*"):  # an hour later
        os.utime(part, (time.time() - 4000,) * 2)
    mirror.spoil.clear()
    assert data.load_data_fashion_mnist(4)[0].dataset == data.FASHION_MNIST
    assert not list(download.cache_folder().glob("unfinished-*"))


def damage(folder):
    path = folder / "train-labels-idx1-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-9])


def test_a_damaged_cache_is_fetched_again(mirror, capsys):
    data.load_data_fashion_mnist(4)
    damage(download.cache_folder() / "fashion-mnist")
    forget()
    assert data.load_data_fashion_mnist(4)[0].dataset == data.FASHION_MNIST
    errors = capsys.readouterr().err
    assert "Fetching it again" in errors and "elete it" not in errors
    files = sorted(f"fashion-mnist/{name}" for name in download.FILES)
    assert cached_files() == ["fashion-mnist.pt", *files]


def test_of_a_damaged_cache_behind_a_link_the_link_alone_is_replaced(mirror, tmp_path, capsys):
    data.load_data_fashion_mnist(4)
    folder = (download.cache_folder() / "fashion-mnist").rename(tmp_path / "elsewhere")
    (download.cache_folder() / "fashion-mnist").symlink_to(folder)
    damage(folder)
    forget()
    assert data.load_data_fashion_mnist(4)[0].dataset == data.FASHION_MNIST
    assert "Fetching it again" in capsys.readouterr().err
    assert len(os.listdir(folder)) == 4 and not (download.cache_folder() / "fashion-mnist").is_symlink()


def test_a_damaged_cache_that_cannot_be_fetched_again_is_drawn_and_one_message_says_why(mirror, monkeypatch, capsys):
    data.load_data_fashion_mnist(4)
    damage(download.cache_folder() / "fashion-mnist")
    mirror.spoil.update(dict.fromkeys(download.FILES, lambda body: b"gone"))
    forget()
    capsys.readouterr()
    for _ in range(2):
        assert data.load_data_fashion_mnist(4, num_examples=60)[0].dataset == data.SILHOUETTES
    assert capsys.readouterr().err.count("is not available") == 1


def test_a_damaged_cache_that_cannot_be_removed_is_drawn(mirror, monkeypatch, capsys):
    data.load_data_fashion_mnist(4)
    damage(download.cache_folder() / "fashion-mnist")
    forget()

    def read_only(*args):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(pathlib.Path, "rename", read_only)
    assert data.load_data_fashion_mnist(4, num_examples=60)[0].dataset == data.SILHOUETTES
    assert "It cannot be removed: [Errno 30] Read-only" in capsys.readouterr().err


def test_a_folder_that_another_process_has_mended_is_not_set_aside(tmp_path):
    write_fashion_mnist(tmp_path / "fashion-mnist")
    seen = download.identity(tmp_path / "fashion-mnist")
    shutil.rmtree(tmp_path / "fashion-mnist")
    download.set_aside(tmp_path / "fashion-mnist", seen)
    write_fashion_mnist(tmp_path / "fashion-mnist")
    download.set_aside(tmp_path / "fashion-mnist", seen)
    assert [path.name for path in tmp_path.iterdir()] == ["fashion-mnist"]
    download.set_aside(tmp_path / "fashion-mnist", download.identity(tmp_path / "fashion-mnist"))
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_ranks_that_find_a_damaged_cache_at_the_same_moment_all_load_the_new_one(mirror, tmp_path):
    url, files = mirror.url, mirror.files

    def load():
        import torch.distributed as dist

        from d2lite.data import download
        from d2lite.data import fashion_mnist as data

        download.MIRRORS, download.FILES = [url], files
        data._read.cache_clear()
        dist.barrier()
        train_iter, _ = data.load_data_fashion_mnist(4)
        return train_iter.dataset, int(train_iter.images.sum())

    data.load_data_fashion_mnist(4)
    with Workers(2) as workers:
        for link in (False, False, True):
            cache = download.cache_folder() / "fashion-mnist"
            if link:
                cache.symlink_to(cache.rename(tmp_path / "elsewhere"))
            damage(cache)
            assert set(workers.run(load)) == {(data.FASHION_MNIST, 784 * sum(range(12)))}
    assert not list(download.cache_folder().glob("unfinished-*"))


def test_a_folder_with_some_of_the_files_is_filled(mirror):
    cache = download.cache_folder() / "fashion-mnist"
    cache.mkdir(parents=True)
    (cache / "train-labels-idx1-ubyte.gz").write_bytes(b"old")
    assert data.load_data_fashion_mnist(4)[0].dataset == data.FASHION_MNIST


def test_a_mirror_that_misspeaks_is_followed_by_the_next_one(mirror, monkeypatch):
    """What a mirror can say wrong is in test_fetch.py."""
    reasons = iter([http.client.BadStatusLine("\x1b[31mred\n"), UnicodeError("label too long"), AttributeError("x")])

    def misspeak(url, *args):
        if url.startswith(mirror.url):
            return fetch.fetch(url, *args)
        raise next(reasons)

    monkeypatch.setattr(download, "fetch", misspeak)
    monkeypatch.setattr(download, "MIRRORS", ["http://a/", "http://b/", "http://c/", mirror.url])
    assert data.load_data_fashion_mnist(4)[0].dataset == data.FASHION_MNIST


def test_what_a_mirror_says_reaches_the_page_without_control_characters(mirror, monkeypatch):
    def misspeak(*args):
        raise http.client.BadStatusLine("\x1b[31mred\n" + "x" * 999)

    monkeypatch.setattr(download, "fetch", misspeak)
    with pytest.raises(OSError) as caught:
        download.download(download.cache_folder() / "fashion-mnist")
    assert str(caught.value).isprintable() and len(str(caught.value)) < 400


@pytest.mark.parametrize("proxy", ["::::", "http://:x"])
def test_a_malformed_proxy_ends_in_the_drawn_set(mirror, monkeypatch, capsys, proxy):
    monkeypatch.setenv("http_proxy", proxy)
    monkeypatch.setenv("no_proxy", "")
    assert data.load_data_fashion_mnist(4, num_examples=60)[0].dataset == data.SILHOUETTES
    assert capsys.readouterr().err.count("is not available") == 1


def test_a_full_disk_is_named_as_the_reason(mirror, monkeypatch):
    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(download, "fetch", full)
    with pytest.raises(OSError, match="no space left, free 40 MB or set D2LITE_DATA"):
        download.download(download.cache_folder() / "fashion-mnist")
    assert cached_files() == []
