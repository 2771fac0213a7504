"""What a rank writes, sent line by line to the calling cell: by Python's streams, C code and child processes."""

import codecs
import io
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

__all__ = ["LAST_CHARS", "Cell", "Output", "append_output", "last_output"]

POLL_S = 0.1  # between two looks at the file; also the shortest time between two states of a progress bar
MOST_BYTES = 10_000_000  # of the file that are kept after a call
LAST_CHARS = 4_000  # of the file that a report has


def append_output(path: str | os.PathLike[str]) -> None:
    """Let descriptors 1 and 2 of this process append to a file, which another process may empty."""
    with open(path, "ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)


def last_output(path: Path) -> str:
    """Return the last 4,000 characters that a process has written into a file; "" if there is no file."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 4 * LAST_CHARS))  # a character has four bytes at most
            return file.read().decode(errors="replace")[-LAST_CHARS:]
    except OSError:
        return ""


class Output(io.TextIOBase):
    """A stream that passes complete lines to `send("print", line)`, and a progress bar's states to `send("bar", line)`.

    Descriptors 1 and 2 of the process append to `file`. During a call, what they append is passed on too, in order with
    what is written to the stream before and after it. After a call the file is emptied if it has more than 10 MB. What
    a carriage return overwrites is left out.
    """

    encoding = "utf-8"

    def __init__(self, send: Callable[[str, str], None], file: BinaryIO) -> None:
        self._send, self._file = send, file
        self._rest: list[str] = []  # the parts of the line that has not ended
        self._bar_s = 0.0  # when a bar's state was sent last
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._lock, self._in_call, self._in_child = threading.RLock(), threading.Event(), False
        self.buffer: Any = open(1, "wb", buffering=0, closefd=False)  # for sys.stdout.buffer.write
        threading.Thread(target=self._watch, name="output", daemon=True).start()

    def begin(self) -> None:
        """Begin a call: become `sys.stdout` and `sys.stderr`."""
        sys.stdout = sys.stderr = self
        self._in_call.set()

    def end(self) -> None:
        """End a call: send all that is left."""
        self._in_call.clear()
        with self._lock:
            self._read_file()
            if _visible(self._rest).strip():
                self._take("\n")
            self._rest = []
            if self._file.tell() > MOST_BYTES:  # all of it is read
                self._file.truncate(0)
                self._file.seek(0)

    def write(self, text: str) -> int:
        if self._in_child:
            self.buffer.write(text.encode(errors="backslashreplace"))
            return len(text)
        with self._lock:
            self._read_file()
            self._take(text)
        return len(text)

    def leave_to_child(self) -> None:
        """In a process that the rank has forked: write to descriptor 1, as other child processes do."""
        self._in_child = True

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return 1  # subprocess.run(..., stdout=sys.stdout)

    def _watch(self) -> None:
        while self._in_call.wait():
            with self._lock:
                self._read_file()
            time.sleep(POLL_S)

    def _read_file(self) -> None:
        if data := self._file.read():
            self._take(self._decode(data))

    def _take(self, text: str) -> None:
        *lines, rest = text.split("\n")
        for line in lines:
            self._rest.append(line)
            self._send("print", _visible(self._rest))
            self._rest = []
        self._rest.append(rest)
        if "\r" in rest:
            state = _visible(self._rest)
            self._rest = [state, "\r"] if rest.endswith("\r") else [state]
            if time.monotonic() - self._bar_s >= POLL_S:
                self._send("bar", state)
                self._bar_s = time.monotonic()


def _visible(parts: list[str]) -> str:
    """Return what a terminal shows of a line: what follows its last carriage return."""
    return "".join(parts).rstrip("\r").rpartition("\r")[2]


class Cell:
    """How the calling cell shows what the ranks write: a line for each, and the bars of all ranks in one line."""

    def __init__(self) -> None:
        self._width = 0  # of the bar that the next line overwrites

    def show(self, rank: int, kind: str, text: str) -> None:
        """Print a line ("print") of a rank, or the state of its progress bar ("bar")."""
        line = f"[rank {rank}] {text}"
        print(line.ljust(self._width), end="\r" if kind == "bar" else "\n", flush=kind == "bar")
        self._width = len(line) if kind == "bar" else 0
