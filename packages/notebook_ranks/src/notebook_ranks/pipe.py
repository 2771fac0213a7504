"""Pipes that carry whole messages between the notebook and its ranks.

A message is its length and its pickle. A rank is as trusted as the notebook that wrote its function, and a pipe is an
inherited pair of sockets without a name, so that nobody else can write to it.
"""

import os
import pickle
import socket
import struct
import threading
from collections import deque
from typing import Any

__all__ = ["NotebookEnd", "RankEnd", "pack"]

LENGTH = struct.Struct("!Q")
AT_ONCE = 2**20  # bytes that one receive may return
MOST_BYTES_OF_MESSAGE = 2**40  # bytes: no message is larger


def pack(message: object) -> tuple[bytes, bytes]:
    """Return the two parts of a message, its length and its pickle; they can be sent to several ranks."""
    body = pickle.dumps(message)
    return LENGTH.pack(len(body)), body


class NotebookEnd:
    """The notebook's end of a pipe: no call waits. What the pipe cannot take yet stays in `unsent`."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self.socket, self.unsent = end, deque[memoryview]()
        self.received, self.n_received = bytearray(), 0  # what is incomplete, and the bytes of all that has come
        self.closed = False  # whether the other end is

    def fileno(self) -> int:
        """Return the descriptor, for `select.poll`."""
        return self.socket.fileno()

    def send(self, parts: tuple[bytes, bytes]) -> None:
        """Send a packed message after all that is unsent. Nothing is sent to a rank that has ended."""
        self.unsent.extend(memoryview(part) for part in parts)
        self.flush()

    def flush(self) -> int:
        """Send what the pipe takes now; return the number of bytes."""
        sent = 0
        try:
            while self.unsent:
                n = self.socket.send(self.unsent[0])
                sent += n
                if n == len(self.unsent[0]):
                    self.unsent.popleft()
                else:
                    self.unsent[0] = self.unsent[0][n:]
        except BlockingIOError:  # the pipe is full
            pass
        except OSError:  # the rank has ended: `receive` sets `closed`
            self.unsent.clear()
        return sent

    def receive(self) -> list[Any]:
        """Read what has come; return the messages that are complete.

        Sets `closed` if the other end is closed, or if what has come is no message: the rank's function wrote to the
        pipe.
        """
        try:
            data = self.socket.recv(AT_ONCE)
            self.closed = not data
            self.received += data
            self.n_received += len(data)
        except BlockingIOError:
            pass
        except OSError:
            self.closed = True
        messages = []
        try:
            while (end := self._end_of_message()) is not None:
                with memoryview(self.received) as view, view[LENGTH.size : end] as body:
                    messages.append(pickle.loads(body))
                del self.received[:end]
        except Exception:
            self.closed = True
        return messages

    def close(self) -> None:
        """Close the pipe; may be called twice."""
        self.unsent.clear()
        self.socket.close()

    def _end_of_message(self) -> int | None:
        """Return where the first message ends in `received`, None if it is not complete."""
        if len(self.received) < LENGTH.size:
            return None
        length = LENGTH.unpack_from(self.received)[0]
        if length > MOST_BYTES_OF_MESSAGE:
            raise ValueError(f"a message of {length} bytes")
        end = LENGTH.size + length
        return end if end <= len(self.received) else None


class RankEnd:
    """The rank's end of a pipe, for several threads: each call waits for the notebook.

    A process that the rank starts does not have it: such a process cannot answer for the rank, and does not keep the
    pipe open when the rank has ended.
    """

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        self.owner = os.getpid()
        self.socket, self.lock = socket.socket(fileno=descriptor), threading.Lock()
        os.register_at_fork(after_in_child=self.socket.close)

    def send(self, message: object) -> None:
        """Send a message; raise OSError if the notebook is gone. In a fork of the rank this does nothing."""
        if self.owner != os.getpid():
            return
        length, body = pack(message)
        with self.lock:
            self.socket.sendall(length)
            self.socket.sendall(body)

    def receive(self) -> Any:
        """Return the next message; raise EOFError or OSError if the notebook is gone."""
        (length,) = LENGTH.unpack(self._read(LENGTH.size))
        return pickle.loads(self._read(length))

    def _read(self, n: int) -> bytearray:
        data = bytearray(n)
        with memoryview(data) as view:
            done = 0
            while done < n:
                got = self.socket.recv_into(view[done:])
                if not got:
                    raise EOFError
                done += got
        return data
