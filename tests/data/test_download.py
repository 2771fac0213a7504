"""The download of all images against a mirror on loopback: complete, truncated, corrupted, interrupted, refused."""

import builtins
import errno
import functools
import hashlib
import http.server
import multiprocessing
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading

import pytest

from d2lite.data import download
from d2lite.data import fashion_mnist as data
from tests.data.test_fashion_mnist import small, write_fashion_mnist

pooch = pytest.importorskip("pooch", reason="pooch, which downloads, is not installed")
__all__ = ["small"]  # a fixture


class Mirror(http.server.SimpleHTTPRequestHandler):
    """Serves a folder; `spoil` maps a file name to what is done to its body, to a status, or to "cut" or "hang"."""

    spoil, served = {}, []

    def do_GET(self):
        name = self.path.rpartition("/")[2]
        self.served.append(name)
        how = self.spoil.get(name)
        if how is None:
            return super().do_GET()
        if isinstance(how, int):
            return self.send_error(how)
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
def mirror(small, tmp_path, monkeypatch):
    """Serve four small files whose MD5 sums `download` accepts as the real ones; nothing is waited for."""
    write_fashion_mnist(tmp_path / "mirror")
    handler = type("Handler", (Mirror,), {"spoil": {}, "served": [], "directory_path": tmp_path / "mirror"})
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(handler, directory=str(tmp_path / "mirror"))
    )
    server.spoil, server.served = handler.spoil, handler.served
    server.asked, server.ending = threading.Event(), threading.Event()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    server.url = f"http://127.0.0.1:{server.server_port}/"
    server.files = {name: hashlib.md5((tmp_path / "mirror" / name).read_bytes()).hexdigest() for name in download.FILES}
    monkeypatch.setattr(download, "URL", server.url)
    monkeypatch.setattr(download, "FILES", server.files)
    monkeypatch.setattr(download, "RETRIES", 0)
    monkeypatch.setenv("D2LITE_OFFLINE", "0")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    yield server
    server.ending.set()
    server.shutdown()
    server.server_close()
    thread.join()


UNPACKED = sorted(name.removesuffix(".gz") for name in download.FILES)


def cached_files():
    folder = download.cache_folder()
    return sorted(path.name for path in folder.rglob("*") if path.is_file() and path.name != ".lock")


def load():
    """Load all 12 images as in a new process, and check them."""
    data._complete.cache_clear()
    train_iter, _ = data.load_data_fashion_mnist(4, num_examples=12)
    assert train_iter.dataset == "Fashion-MNIST, 12 + 2 images" and int(train_iter.examples.sum()) == 784 * sum(
        range(12)
    )


def test_complete_with_a_progress_bar(mirror, capfd):
    load()
    assert cached_files() == UNPACKED and sorted(mirror.served) == sorted(download.FILES)
    assert "100%" in capfd.readouterr().err  # the progress bar
    assert "12 in " in data.location()


def test_a_second_process_downloads_nothing(mirror, monkeypatch):
    load()
    mirror.served.clear()
    load()
    monkeypatch.setenv("D2LITE_OFFLINE", "1")
    load()
    assert not mirror.served


def test_what_comes_with_the_package_downloads_nothing(mirror, monkeypatch):
    monkeypatch.setattr(data, "NUM_EXAMPLES", {"train": 60_000, "t10k": 10_000})
    monkeypatch.setattr(data, "NUM_SHIPPED", {"train": 12_000, "t10k": 10_000})
    for num_examples in (None, 12_000, 1):
        data.load_data_fashion_mnist(4, num_examples)
    assert not mirror.served and cached_files() == []


@pytest.mark.parametrize(
    "how",
    ["cut", lambda body: body[:-1] + bytes([body[-1] ^ 1]), lambda body: b"\x00" * len(body), 404],
    ids=["truncated", "one bit", "zeros", "status 404"],
)
def test_truncated_or_corrupted_files_are_never_used_as_data(mirror, how):
    mirror.spoil["t10k-labels-idx1-ubyte.gz"] = how
    with pytest.raises(OSError, match=f"no download from {mirror.url}: .*num_examples=12_000 or less.*D2LITE_DATA"):
        load()
    assert cached_files() == [name for name in UNPACKED if name != "t10k-labels-idx1-ubyte"]
    mirror.spoil.clear()
    mirror.served.clear()
    load()
    assert mirror.served == ["t10k-labels-idx1-ubyte.gz"]  # what is complete is kept


def test_a_file_that_fails_is_tried_again(mirror, monkeypatch):
    monkeypatch.setattr(download, "RETRIES", 1)
    attempts = iter([lambda body: body[:-1], lambda body: body])
    mirror.spoil["train-labels-idx1-ubyte.gz"] = lambda body: next(attempts)(body)
    load()
    assert mirror.served.count("train-labels-idx1-ubyte.gz") == 2


def test_a_mirror_that_stops_sending_is_given_up(mirror, monkeypatch):
    monkeypatch.setattr(download, "TIMEOUT_S", (5, 0.5))
    mirror.spoil["train-images-idx3-ubyte.gz"] = "hang"
    with pytest.raises(OSError, match="no download from .*timed out"):
        load()
    assert cached_files() == []


def test_a_mirror_that_does_not_answer_is_given_up(mirror, monkeypatch):
    monkeypatch.setattr(download, "TIMEOUT_S", (0.5, 0.5))
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        monkeypatch.setattr(download, "URL", f"http://127.0.0.1:{silent.getsockname()[1]}/")
        with pytest.raises(OSError, match="no download from .*timed out"):
            load()


def test_without_a_server_or_a_permission_to_download_the_error_says_what_to_do(mirror, monkeypatch):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    monkeypatch.setattr(download, "URL", f"http://127.0.0.1:{port}/")
    with pytest.raises(OSError, match="no download from .*num_examples=12_000 or less"):
        load()
    monkeypatch.setenv("D2LITE_OFFLINE", "1")
    with pytest.raises(OSError, match="D2LITE_OFFLINE=1 forbids a download. Pass num_examples=12_000 or less"):
        load()


def test_a_missing_pooch_is_named(mirror, monkeypatch):
    imported = builtins.__import__

    def without_pooch(name, *args, **kwargs):
        if name == "pooch":
            raise ImportError("No module named 'pooch'")
        return imported(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_pooch)
    with pytest.raises(ImportError, match="pip install pooch. Pass num_examples=12_000 or less"):
        load()


@pytest.mark.slow
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGKILL])
def test_interrupted(mirror, sign, monkeypatch):
    mirror.spoil["train-images-idx3-ubyte.gz"] = "hang"
    code = f"""
from d2lite.data import download
download.URL, download.FILES = {mirror.url!r}, {mirror.files!r}
download.get_files()
"""
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE)
    assert mirror.asked.wait(60)
    process.send_signal(sign)
    _, errors = process.communicate(timeout=30)
    assert process.returncode != 0
    assert not {*cached_files()} & {*UNPACKED, *download.FILES}
    if sign == signal.SIGINT:
        assert cached_files() == [] and b"KeyboardInterrupt" in errors
    mirror.spoil.clear()
    monkeypatch.setattr(download, "STALE_S", -1)
    load()
    assert cached_files() == UNPACKED  # a killed process has left parts


def test_what_killed_processes_left_is_removed_and_what_is_being_written_stays(mirror):
    folder = download.cache_folder() / "fashion-mnist"
    folder.mkdir(parents=True)
    for name in ("tmp1abc", "train-images-idx3-ubyte.123.part", "tmp2def"):
        (folder / name).write_bytes(b"part")
    for name in ("tmp1abc", "train-images-idx3-ubyte.123.part"):
        os.utime(folder / name, (0, 0))
    load()
    assert cached_files() == sorted(["tmp2def", *UNPACKED])


@pytest.mark.slow
def test_of_several_processes_one_downloads(mirror):
    """Ranks ask for the same files at the same moment."""
    processes = [multiprocessing.get_context("fork").Process(target=download.get_files) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert sorted(mirror.served) == sorted(download.FILES)


def damage(folder):
    path = folder / "train-labels-idx1-ubyte"
    content = path.read_bytes()[:-9]
    path.unlink()  # a process that has mapped a file is killed when that file is cut short
    path.write_bytes(content)


def test_a_damaged_file_in_the_cache_is_downloaded_again(mirror):
    load()
    damage(download.cache_folder() / "fashion-mnist")
    mirror.served.clear()
    load()
    assert mirror.served == ["train-labels-idx1-ubyte.gz"]


def test_a_damaged_cache_behind_a_link_is_mended(mirror, tmp_path):
    load()
    folder = (download.cache_folder() / "fashion-mnist").rename(tmp_path / "elsewhere")
    (download.cache_folder() / "fashion-mnist").symlink_to(folder)
    damage(folder)
    load()


def test_a_damaged_cache_that_cannot_be_downloaded_again_is_an_error_and_the_shipped_images_stay(mirror):
    load()
    damage(download.cache_folder() / "fashion-mnist")
    mirror.spoil.update(dict.fromkeys(download.FILES, 503))
    with pytest.raises(OSError, match="no download from .*503"):
        load()


def test_a_folder_with_some_of_the_files_is_filled(mirror):
    load()
    (download.cache_folder() / "fashion-mnist" / "train-labels-idx1-ubyte").unlink()
    load()
    assert cached_files() == UNPACKED


def test_packed_files_in_the_cache_are_unpacked(mirror):
    """Those of an older version."""
    write_fashion_mnist(download.cache_folder() / "fashion-mnist")
    assert "12 in " in data.location()
    load()
    assert cached_files() == UNPACKED and not mirror.served


def test_a_cache_that_cannot_be_written(mirror, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(OSError, match="Pass num_examples=12_000 or less"):
        load()


def test_what_a_mirror_says_reaches_the_page_without_control_characters(mirror, monkeypatch):
    def misspeak(*args, **kwargs):
        raise ValueError("\x1b[31mred\n" + "x" * 999)

    monkeypatch.setattr(pooch, "HTTPDownloader", misspeak)
    with pytest.raises(OSError) as caught:
        load()
    assert str(caught.value).isprintable() and len(str(caught.value)) < 900


@pytest.mark.parametrize("proxy", ["::::", "http://:x"])
def test_a_malformed_proxy_is_named_in_the_error(mirror, monkeypatch, proxy):
    monkeypatch.setenv("http_proxy", proxy)
    monkeypatch.setenv("no_proxy", "")
    with pytest.raises(OSError, match="no download from .*not a valid host or port"):
        load()


def test_a_full_disk_is_named_as_the_reason(mirror, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil, "move", full)
    with pytest.raises(OSError, match="No space left on device.* Free 100 MB in .*fashion-mnist"):
        load()
    assert cached_files() == []
