"""One file from servers on loopback that speak HTTP, or something else: right bytes, or an error within the bounds."""

import contextlib
import errno
import gzip
import hashlib
import http.client
import os
import socket
import sys
import threading
import time

import pytest

from d2lite.data import fetch as fetching
from d2lite.data.fetch import fetch

BODY = os.urandom(20_000)
OK = b"HTTP/1.1 200 OK\r\n"
LENGTH = b"Content-Length: %d\r\n\r\n" % len(BODY)


def chunked(*chunks):
    return b"Transfer-Encoding: chunked\r\n\r\n" + b"".join(b"%x\r\n%b\r\n" % (len(c), c) for c in chunks)


class Server:
    """Answers every request by sending the blocks of `blocks()`, `pause_s` apart, until the client hangs up."""

    def __init__(self, blocks, pause_s=0.0, then_wait=False):
        self.blocks, self.pause_s, self.then_wait, self.sent = blocks, pause_s, then_wait, 0
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}/"
        self.ending, self.threads = threading.Event(), [threading.Thread(target=self.serve)]
        self.threads[0].start()

    def serve(self):
        with contextlib.suppress(OSError):  # closed
            while True:
                connection, _ = self.socket.accept()
                self.threads.append(threading.Thread(target=self.answer, args=(connection,)))
                self.threads[-1].start()

    def answer(self, connection):
        with connection, contextlib.suppress(OSError):
            while b"\r\n\r\n" not in connection.recv(65536):
                pass
            for block in self.blocks():
                if self.ending.wait(self.pause_s):
                    return
                connection.sendall(block)
                self.sent += len(block)
            if self.then_wait:
                self.ending.wait(30)

    def close(self):
        self.ending.set()
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        for thread in self.threads:
            thread.join()


@pytest.fixture
def serve(monkeypatch):
    """Return start(blocks, ...) -> a running Server, closed at the end."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    servers = []

    def start(blocks, **options):
        servers.append(Server(blocks if callable(blocks) else lambda: [blocks], **options))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def try_to_fetch(url, tmp_path, answer_s=20):
    before = set(threading.enumerate())
    try:
        fetch(url, tmp_path / "file.gz", len(BODY), hashlib.md5(BODY).hexdigest(), answer_s)
    finally:
        ours = {thread for thread in threading.enumerate() if thread.name == "d2lite-download"}
        assert not ours - before


@pytest.mark.parametrize(
    "reply",
    [
        OK + LENGTH + BODY,
        b"HTTP/1.0 200 OK\r\n\r\n" + BODY,  # the end of the connection ends the body
        OK + chunked(BODY[:7], BODY[7:], b""),
        b"HTTP/1.1 100 Continue\r\n\r\n" + OK + LENGTH + BODY,
        OK + b"Content-Encoding: x-gzip\r\n" + LENGTH + BODY,  # a name for what the file is already
        OK + LENGTH + BODY + b"more than was announced",
    ],
    ids=["length", "end", "chunked", "continue", "named gzip", "trailing"],
)
def test_the_right_bytes_in_any_form_that_http_knows(serve, tmp_path, reply):
    try_to_fetch(serve(reply).url, tmp_path)
    assert (tmp_path / "file.gz").read_bytes() == BODY


HTML = b"<html>Sign in to the Wi-Fi</html>"
MISSPOKEN = {
    "nothing": b"",
    "no status line": b"hello\r\n\r\n",
    "bad status": b"HTTP/1.1 abc OK\r\n\r\n",
    "not http": bytes(range(256)) * 8,
    "long status line": b"HTTP/1.1 200 " + b"x" * 70_000,
    "long header": OK + b"X: " + b"x" * 70_000 + b"\r\n\r\n",
    "200 headers": OK + b"X: y\r\n" * 200 + b"\r\n",
    "wrong length": OK + b"Content-Length: 12\r\n\r\n" + BODY,
    "negative length": OK + b"Content-Length: -5\r\n\r\n" + HTML,
    "text as length": OK + b"Content-Length: many\r\n\r\n" + HTML,
    "huge length": OK + b"Content-Length: %d\r\n\r\n" % 10**30 + BODY,
    "cut short": OK + LENGTH + BODY[:-9],
    "cut chunks": OK + chunked(BODY)[:-300],
    "bad chunk size": OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n" + BODY,
    "negative chunk": OK + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n" + BODY,
    "long chunk line": OK + b"Transfer-Encoding: chunked\r\n\r\n" + b"1" * 70_000,
    "gzip'ed twice": OK + b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(BODY),
    "HTML": OK + b"Content-Type: text/html\r\n\r\n" + HTML,
    "one bit": OK + LENGTH + BODY[:-1] + bytes([BODY[-1] ^ 1]),
    "no content": b"HTTP/1.1 204 No Content\r\n\r\n",
    "not found": b"HTTP/1.1 404 \x1b[31mred\r\nContent-Length: 3\r\n\r\nabc",
    "status 999": b"HTTP/1.1 999 What\r\n\r\n",
    "sign in": b"HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm=x\r\n\r\n",
    "redirect without a place": b"HTTP/1.1 302 Found\r\n\r\n",
    "redirect to a file": b"HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\n\r\n",
    "redirect to ftp": b"HTTP/1.1 302 Found\r\nLocation: ftp://127.0.0.1:1/x\r\n\r\n",
    "redirect to no host": b"HTTP/1.1 302 Found\r\nLocation: http://\r\n\r\n",
    "redirect to a bad port": b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:port/\r\n\r\n",
    "redirect to a long name": b"HTTP/1.1 302 Found\r\nLocation: http://" + b"a" * 300 + b"/\r\n\r\n",
    "redirect to bytes": b"HTTP/1.1 302 Found\r\nLocation: http://[\xff\xfe\r\n\r\n",
    "redirect in a loop": b"HTTP/1.1 302 Found\r\nLocation: /again\r\n\r\n",
}


@pytest.mark.parametrize("name", MISSPOKEN)
def test_what_is_not_the_file_is_an_error_whatever_the_server_says(serve, tmp_path, name):
    with pytest.raises(Exception) as caught:
        try_to_fetch(serve(MISSPOKEN[name]).url, tmp_path)
    assert not isinstance(caught.value, (MemoryError, RecursionError, AssertionError))


def test_a_redirect_is_followed_and_its_body_is_not_read(serve, tmp_path):
    target = serve(OK + LENGTH + BODY)

    def endless():
        yield b"HTTP/1.1 302 Found\r\nLocation: %b\r\n\r\n" % target.url.encode()
        while True:
            yield b"x" * 65_536

    asked = serve(endless)
    try_to_fetch(asked.url, tmp_path)
    assert (tmp_path / "file.gz").read_bytes() == BODY and asked.sent < 16e6  # what the sockets' buffers take


def drip(start, each=b"x"):
    def blocks():
        yield start
        end = time.monotonic() + 15  # so that a client without bounds fails and does not hang
        while time.monotonic() < end:
            yield each

    return blocks


@pytest.mark.parametrize(
    ("blocks", "options"),
    [
        (drip(OK + LENGTH), {"pause_s": 0.05}),
        (drip(b"HTTP/1.1 200 "), {"pause_s": 0.05}),
        (drip(OK, b"X: y\r\n"), {"pause_s": 0.05}),
        (drip(OK + b"Transfer-Encoding: chunked\r\n\r\n", b"0"), {"pause_s": 0.05}),
        (drip(OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"), {"pause_s": 0.05}),
        (drip(b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\n"), {}),
        (lambda: [b""], {"then_wait": True}),
        (lambda: [OK + LENGTH + BODY[:99]], {"then_wait": True}),
    ],
    ids=["body", "status", "headers", "chunk size", "chunks", "continue", "no answer", "stalls"],
)
def test_a_server_that_drips_or_stalls_is_given_up(serve, tmp_path, monkeypatch, blocks, options):
    monkeypatch.setattr(fetching, "STALL_S", 0.4)  # 30 s in earnest
    begin = time.monotonic()
    with pytest.raises(TimeoutError, match="timed out"):
        try_to_fetch(serve(blocks, **options).url, tmp_path, answer_s=0.4)
    assert time.monotonic() - begin < 10


def slow_tls():
    yield b"HTTP/1.1 200 OK\r\n\r\n"
    time.sleep(0.3)
    yield from drip(b"\x16\x03\x03\x10\x00")()  # the head of a TLS record of 4096 bytes


@pytest.mark.parametrize("blocks", [drip(b"HTTP/1.1 200 "), slow_tls], ids=["proxy", "TLS"])
def test_a_proxy_or_a_tls_handshake_that_drips_is_given_up(serve, tmp_path, monkeypatch, blocks):
    monkeypatch.setenv("https_proxy", serve(blocks, pause_s=0.05).url)
    monkeypatch.setenv("no_proxy", "")
    begin = time.monotonic()
    with pytest.raises(TimeoutError, match="timed out"):
        try_to_fetch("https://mirror.invalid/file.gz", tmp_path, answer_s=0.6)
    assert time.monotonic() - begin < 10


def test_a_head_that_drips_is_given_up_when_the_answer_is_due(serve, tmp_path):
    begin = time.monotonic()
    with pytest.raises(TimeoutError, match="timed out"):
        try_to_fetch(serve(drip(OK, b"X: y\r\n"), pause_s=0.05).url, tmp_path, answer_s=0.4)
    assert time.monotonic() - begin < 4  # 100 heads take 5 s


def test_a_full_disk_is_not_called_a_slow_server(serve, tmp_path, monkeypatch):
    monkeypatch.setattr(fetching, "STALL_S", 0.1)

    @contextlib.contextmanager
    def full(*args):
        def advance(n):
            time.sleep(0.5)
            raise OSError(errno.ENOSPC, "No space left on device")

        yield advance

    monkeypatch.setattr(fetching, "_bar", full)
    with pytest.raises(OSError, match="No space left") as caught:
        try_to_fetch(serve(OK + LENGTH + BODY).url, tmp_path)
    assert caught.value.errno == errno.ENOSPC


def test_a_server_that_is_slow_and_fast_enough_is_waited_for(serve, tmp_path, monkeypatch):
    monkeypatch.setattr(fetching, "SLOWEST", 10_000)
    monkeypatch.setattr(fetching, "STALL_S", 1)
    tenths = [BODY[i : i + 2000] for i in range(0, 20_000, 2000)]
    try_to_fetch(serve(lambda: [OK + LENGTH, *tenths], pause_s=0.2).url, tmp_path)
    assert (tmp_path / "file.gz").read_bytes() == BODY


def test_a_server_that_has_answered_may_pause(serve, tmp_path, monkeypatch):
    monkeypatch.setattr(fetching, "STALL_S", 20)

    def paused():
        yield OK + LENGTH
        time.sleep(1)
        yield BODY

    try_to_fetch(serve(paused).url, tmp_path, answer_s=0.6)
    with pytest.raises(TimeoutError, match="timed out"):
        try_to_fetch(serve(paused, pause_s=1).url, tmp_path, answer_s=0.6)


@pytest.mark.parametrize("announced", [b"\r\n", b"Content-Length: 400000000\r\n\r\n"])
def test_a_server_that_sends_more_than_the_file_is_given_up(serve, tmp_path, announced):
    def much():
        yield OK + announced
        for _ in range(6000):
            yield bytes(65_536)

    server = serve(much)
    with pytest.raises(OSError, match="file.gz: expected 20000 bytes, got (more|a Content-Length of 400000000)"):
        try_to_fetch(server.url, tmp_path)
    assert (tmp_path / "file.gz").stat().st_size < 200_000
    assert server.sent < 16e6  # what the sockets' buffers take


@pytest.mark.parametrize(
    "proxy", ["::::", "http://:x", "http://[", "nonsense://127.0.0.1:1", "127.0.0.1:1", "http://x:99999"]
)
def test_a_malformed_proxy_is_an_error_and_no_proxy_goes_past_it(serve, tmp_path, monkeypatch, proxy):
    server = serve(OK + LENGTH + BODY)
    monkeypatch.setenv("http_proxy", proxy)
    monkeypatch.setenv("no_proxy", "")
    with pytest.raises((OSError, http.client.HTTPException)):
        try_to_fetch(server.url, tmp_path)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    try_to_fetch(server.url, tmp_path)


def test_a_proxy_is_used(serve, tmp_path, monkeypatch):
    monkeypatch.setenv("http_proxy", serve(OK + LENGTH + BODY).url)
    monkeypatch.setenv("no_proxy", "")
    try_to_fetch("http://mirror.invalid/file.gz", tmp_path)
    assert (tmp_path / "file.gz").read_bytes() == BODY


def test_without_tqdm_the_file_is_named(serve, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    try_to_fetch(serve(OK + LENGTH + BODY).url, tmp_path)
    assert "fetching file.gz (20.0 KB)" in capsys.readouterr().err
