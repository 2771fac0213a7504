"""The output of one thread, kept apart from what other threads print."""

import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol, TextIO

__all__ = ["Lines", "printing_to"]


class Sink(Protocol):
    """Anything to which text can be written."""

    def write(self, text: str) -> int:
        """Take the text and return its length."""


class Lines:
    """The last lines that were written, as a terminal would show them ("\\r" writes over a line).

    It holds at most `most` lines, and of each line the last `width` characters. The time of writing is proportional to
    the length of the text, in however many pieces it comes.
    """

    def __init__(self, most: int = 200, width: int = 10_000) -> None:
        self._width, self._lock = width, threading.Lock()
        self._lines: deque[str] = deque(maxlen=most - 1)  # those that have ended
        self._under, self._length = "", 0  # what the open line writes over, and how much it has written
        self._pieces: list[str] = []

    def write(self, text: str) -> int:
        """Append text, of any number of lines."""
        with self._lock:
            for i, line in enumerate(str(text).split("\n")):
                if i:  # a "\n" came before it
                    self._lines.append(self._open_line())
                    self._begin("")
                for j, piece in enumerate(line.split("\r")):
                    if j and self._length:  # a "\r" came before it
                        self._begin(self._open_line())
                    if piece:
                        self._pieces.append(piece)
                        self._length += len(piece)
                    if self._length > 2 * self._width:  # once for each `width` characters: the work stays linear
                        self._pieces = [self._open_line()]
                        self._length = self._width
        return len(text)

    def _begin(self, under: str) -> None:
        """Begin to write, over the text `under`."""
        self._under, self._pieces, self._length = under, [], 0

    def _open_line(self) -> str:
        return "".join(self._pieces)[-self._width :] if self._length else self._under

    def __str__(self) -> str:
        with self._lock:
            return "\n".join([*self._lines, self._open_line()]).rstrip("\n")


_sink: ContextVar[Sink | None] = ContextVar("d2lite_sink", default=None)
_open: list[Sink] = []  # the sinks in use: while there is one, the streams are ours
_open_lock = threading.Lock()


class _Divert:
    """A stream that passes on what is written, except by a thread that has a sink."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        sink = _sink.get()
        return (self._stream if sink is None else sink).write(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def printing_to(sink: Sink) -> Iterator[Sink]:
    """Send what this thread writes to stdout and stderr to `sink.write`; other threads print as before."""
    with _open_lock:
        _open.append(sink)
        for name in ("stdout", "stderr"):
            if not isinstance(getattr(sys, name), _Divert):
                setattr(sys, name, _Divert(getattr(sys, name)))
    token = _sink.set(sink)
    try:
        yield sink
    finally:
        _sink.reset(token)
        with _open_lock:
            _open.remove(sink)
            for name in ("stdout", "stderr"):
                stream = getattr(sys, name)
                if not _open and isinstance(stream, _Divert):
                    setattr(sys, name, stream._stream)
