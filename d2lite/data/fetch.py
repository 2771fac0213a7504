"""Fetch one file of a known size over HTTP, in a bounded time and of a bounded size, whatever the server sends.

The look-up of the server's name is not part of that: the operating system bounds it.
"""

import errno
import hashlib
import http.client
import socket
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from d2lite._format import format_bytes

__all__ = ["SLOWEST", "STALL_S", "fetch"]

STALL_S = 30.0  # seconds without a byte after which a download is given up
SLOWEST = 50_000  # bytes/s: a file that is STALL_S behind this pace is given up


def fetch(url: str, path: Path, n_bytes: int, md5: str, answer_s: float) -> None:
    """Write the bytes at `url` to `path`; a bar shows the progress if tqdm is installed.

    Only http and https are followed. What a mirror or a proxy sends can raise nearly anything.

    Args:
        url: The address of the file.
        path: The new file.
        n_bytes: The size that the file must have.
        md5: The MD5 sum that it must have, in hexadecimal digits.
        answer_s: Seconds for a connection to each address of the server, and then for the head of its reply, redirects
            included.

    Raises:
        OSError: If the server does not answer in time, sends nothing for STALL_S, is STALL_S behind the pace SLOWEST,
            or sends other bytes than expected.
        Exception: If the reply is not HTTP, for example.
    """
    got, digest, answered = 0, hashlib.md5(usedforsecurity=False), False

    def most_s() -> float:
        return STALL_S + got / SLOWEST if answered else answer_s

    with _shut_after(most_s) as sockets:
        try:
            response = _opener(sockets).open(url, timeout=answer_s)
        except urllib.error.HTTPError as error:
            error.close()
            raise OSError(f"HTTP status {error.code}") from None
        answered = True
        with response, open(path, "wb") as file, _bar(path.name, n_bytes) as advance:
            if response.length not in (None, n_bytes):
                raise OSError(f"{path.name}: expected {n_bytes} bytes, got a Content-Length of {response.length}")
            while got <= n_bytes and (block := response.read1(1 << 16)):
                got += len(block)
                file.write(block)
                digest.update(block)
                advance(len(block))
        if got != n_bytes:
            raise OSError(f"{path.name}: expected {n_bytes} bytes, got {got if got < n_bytes else 'more'}")
    if digest.hexdigest() != md5:
        raise OSError(f"{path.name}: expected MD5 sum {md5}, got {digest.hexdigest()}")


@contextmanager
def _shut_after(most_s: Callable[[], float]) -> Iterator[list[socket.socket]]:
    """Yield a list for sockets. All of them are shut down most_s() seconds after the first was added.

    What fails then is a TimeoutError. A socket's own time-out is not enough: it begins again with each byte.
    """
    sockets: list[socket.socket] = []
    done, late = threading.Event(), threading.Event()

    def watch() -> None:
        begin = None
        while not done.wait(0.1):
            if sockets and begin is None:
                begin = time.monotonic()
            if begin is not None and time.monotonic() - begin > most_s():
                late.set()
                for connected in list(sockets):
                    with suppress(OSError):  # closed by the server
                        connected.shutdown(socket.SHUT_RDWR)

    watching = threading.Thread(target=watch, name="d2lite-download", daemon=True)
    watching.start()
    try:
        yield sockets
    except Exception as error:
        if late.is_set() and getattr(error, "errno", None) != errno.ENOSPC:  # a full disk is not the server's fault
            raise TimeoutError(f"timed out: no answer, or {STALL_S:g} s behind {SLOWEST} bytes/s") from error
        raise
    finally:
        done.set()
        watching.join()
        for connected in sockets:
            connected.close()


def _opener(sockets: list[socket.socket]) -> urllib.request.OpenerDirector:
    """Return an opener for http and https, with proxies and redirects, that adds its sockets to `sockets`."""

    def connect(*address_timeout_source: Any) -> socket.socket:
        connected = socket.create_connection(*address_timeout_source)
        sockets.append(connected.dup())  # http.client closes or wraps its own
        connected.settimeout(STALL_S)
        return connected

    def watched(kind: type[http.client.HTTPConnection]) -> Callable[..., http.client.HTTPConnection]:
        def make(host: str, **options: Any) -> http.client.HTTPConnection:
            connection = kind(host, **options)
            # private, but connect() also waits for a proxy and for TLS, and gives the socket too late
            connection._create_connection = connect  # type: ignore[attr-defined]
            return connection

        return make

    class Open(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
        def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
            return self.do_open(watched(http.client.HTTPConnection), req)

        def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
            return self.do_open(watched(http.client.HTTPSConnection), req)

    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        Open(),
        _Redirect(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.UnknownHandler(),
    ):
        opener.add_handler(handler)
    return opener


class _Redirect(urllib.request.HTTPRedirectHandler):
    """Follow redirects without reading their bodies."""

    def http_error_302(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: http.client.HTTPMessage
    ) -> Any:
        fp.close()  # urllib would read the body of a redirect, however long
        return super().http_error_302(req, fp, code, msg, headers)

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


@contextmanager
def _bar(name: str, n_bytes: int) -> Iterator[Callable[[int], object]]:
    """Yield a function that takes the number of bytes of each block; a bar on stderr shows their sum, with tqdm."""
    try:
        from tqdm import tqdm
    except ImportError:
        print(f"d2lite: fetching {name} ({format_bytes(n_bytes)})", file=sys.stderr)
        yield lambda n: None
        return
    with tqdm(total=n_bytes, unit="B", unit_scale=True, desc=name) as bar:
        yield bar.update
