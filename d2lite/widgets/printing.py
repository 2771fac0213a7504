"""What one thread prints, kept apart from what the others print."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol, TextIO

__all__ = ["Lines", "Sink", "printing_to"]


class Sink(Protocol):
    """What text can be written to."""

    def write(self, text: str) -> int:
        """Take the text and return its length."""


class Lines:
    """The last lines that were written, as a terminal would show them ("\\r" writes over a line)."""

    def __init__(self, most: int = 200) -> None:
        self._most, self._lines, self._lock = most, [""], threading.Lock()

    def write(self, text: str) -> int:
        """Append text, of any number of lines."""
        with self._lock:
            first, *rest = str(text).split("\n")
            for i, part in enumerate([self._lines.pop() + first, *rest]):
                shown = [piece for piece in part.split("\r") if piece]
                self._lines.append((shown or [""])[-1] + ("\r" if i == len(rest) and part.endswith("\r") else ""))
            del self._lines[: -self._most]
        return len(text)

    def __str__(self) -> str:
        with self._lock:
            return "\n".join(line.rstrip("\r") for line in self._lines).rstrip("\n")


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
