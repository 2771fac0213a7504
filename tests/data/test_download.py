"""The real download path against a mirror on loopback: complete, truncated, corrupted, interrupted."""

import errno
import functools
import hashlib
import http.server
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from d2lite.data import download
from d2lite.data import fashion_mnist as data
from tests.data.test_fashion_mnist import write_fashion_mnist

torchvision = pytest.importorskip("torchvision", reason="torchvision downloads: pip install torchvision")


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
    """Serve four small files that torchvision and the MD5 sums of `download` accept as the real ones."""
    write_fashion_mnist(tmp_path / "mirror")
    handler = type("Handler", (Mirror,), {"spoil": {}, "directory_path": tmp_path / "mirror"})
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(handler, directory=str(tmp_path / "mirror"))
    )
    server.spoil, server.asked, server.ending = handler.spoil, threading.Event(), threading.Event()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    server.url = f"http://127.0.0.1:{server.server_port}/"
    server.md5 = {name: hashlib.md5((tmp_path / "mirror" / name).read_bytes()).hexdigest() for name in download.FILES}
    monkeypatch.setattr(torchvision.datasets.FashionMNIST, "mirrors", [server.url])
    monkeypatch.setattr(download, "FILES", server.md5)
    monkeypatch.delenv("D2LITE_DATA", raising=False)
    monkeypatch.setenv("D2LITE_OFFLINE", "0")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for cached in (data._download_once, data._drawn, data._read):
        cached.cache_clear()
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
    assert not list(download.cache_folder().glob(".download-*"))


def test_a_second_process_downloads_nothing(mirror):
    data.load_data_fashion_mnist(4)
    data._download_once.cache_clear()
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
    data._download_once.cache_clear()  # a new process
    assert data.load_data_fashion_mnist(4)[0].dataset == data.FASHION_MNIST


def test_a_mirror_that_stops_sending_is_given_up(mirror, monkeypatch):
    monkeypatch.setattr(download, "STALL_S", 0.5)
    mirror.spoil["train-images-idx3-ubyte.gz"] = "hang"
    with pytest.raises(OSError, match="could not be downloaded: .*timed out"):
        download.download(download.cache_folder() / "fashion-mnist")
    assert cached_files() == [] and socket.getdefaulttimeout() is None


def test_a_mirror_that_does_not_answer_is_given_up(mirror, monkeypatch):
    monkeypatch.setattr(download, "PROBE_S", 0.5)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        dead = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        monkeypatch.setattr(torchvision.datasets.FashionMNIST, "mirrors", [dead])
        with pytest.raises(OSError, match=f"{dead}: timed out"):
            download.download(download.cache_folder() / "fashion-mnist")
        monkeypatch.setattr(torchvision.datasets.FashionMNIST, "mirrors", [dead, mirror.url])
        download.download(download.cache_folder() / "fashion-mnist")  # the second mirror serves
    assert len(cached_files()) == 4


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGKILL])
def test_interrupted(mirror, sign, tmp_path):
    mirror.spoil["train-images-idx3-ubyte.gz"] = "hang"
    code = f"""
import torchvision
from d2lite.data import fashion_mnist as data
from d2lite.data import download
torchvision.datasets.FashionMNIST.mirrors = [{mirror.url!r}]
download.FILES = {mirror.md5!r}
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
    for part in download.cache_folder().glob(".download-*"):  # an hour later
        os.utime(part, (time.time() - 4000,) * 2)
    mirror.spoil.clear()
    assert data.load_data_fashion_mnist(4)[0].dataset == data.FASHION_MNIST
    assert not list(download.cache_folder().glob(".download-*"))


def test_a_damaged_cache_is_fetched_again(mirror, capsys):
    data.load_data_fashion_mnist(4)
    path = download.cache_folder() / "fashion-mnist" / "train-labels-idx1-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-9])
    for cached in (data._download_once, data._read):
        cached.cache_clear()
    assert data.load_data_fashion_mnist(4)[0].dataset == data.FASHION_MNIST
    assert "Fetching it again" in capsys.readouterr().err


def test_a_full_disk_is_named_as_the_reason(mirror, monkeypatch):
    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(torchvision.datasets.utils, "download_url", full)
    with pytest.raises(OSError, match="no space left, free 40 MB or set D2LITE_DATA"):
        download.download(download.cache_folder() / "fashion-mnist")
    assert cached_files() == []
