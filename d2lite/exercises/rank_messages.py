"""Messages between two ranks: which send belongs to which recv, from what all ranks have begun so far."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

__all__ = ["MESSAGES", "Message", "Messages"]

MESSAGES = "send", "recv", "isend", "irecv"  # of torch.distributed
_SENDS = "send", "isend"


@dataclass
class Message:
    """A send or a receive that a rank has begun; the other ranks know all of it but `tensor` and `result`."""

    name: str
    rank: int
    peer: int
    tag: int
    numel: int
    dtype: str
    done: bool = False
    tensor: torch.Tensor | None = None
    result: torch.Tensor | None = None  # what a receive has got

    @property
    def is_send(self) -> bool:
        """Whether it is a send."""
        return self.name in _SENDS

    def belongs_to(self, send: "Message") -> bool:
        """Return whether this is a receive for that send."""
        return (self.is_send, self.rank, self.peer, self.tag) == (False, send.peer, send.rank, send.tag)

    def __str__(self) -> str:
        tag = f" with tag {self.tag}" if self.tag else ""
        return f"{self.name} {'to' if self.is_send else 'from'} rank {self.peer}{tag}"


class Messages:
    """The messages of one call of an answer. On all ranks `meet` gets the same lists, and finds the same pairs."""

    def __init__(self) -> None:
        self._send, self._recv = dist.send, dist.recv  # before they are replaced
        self._new: list[Message] = []
        self._open: list[Message] = []  # of all ranks, in the order of the meetings

    def begin(self, name: str, given: dict[str, Any]) -> Message:
        """Return the message that a call begins; `given` are its arguments by their names.

        Raises:
            TypeError: if the tensor is none.
            ValueError: if there is no such rank, or the tensor is not contiguous.
        """
        tensor, end = given["tensor"], "dst" if name in _SENDS else "src"
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{name}: expected a tensor, got {'None' if tensor is None else type(tensor).__name__}")
        if not tensor.is_contiguous():
            raise ValueError(f"{name}: expected a contiguous tensor. tensor.contiguous() returns one")
        rank, k = dist.get_rank(), dist.get_world_size()
        peer = given.get(end, given.get(f"group_{end}"))
        if not isinstance(peer, int) or not 0 <= peer < k or peer == rank:
            raise ValueError(f"{name} on rank {rank}: {end} is one of the other ranks from 0 to {k - 1}, got {peer}")
        message = Message(name, rank, peer, given.get("tag", 0), tensor.numel(), _name_of(tensor.dtype), tensor=tensor)
        self._new.append(message)
        return message

    def begun(self) -> list[list[Any]]:
        """Return what the other ranks have to know of this rank's messages since the last meeting."""
        return [[m.name, m.peer, m.tag, m.numel, m.dtype] for m in self._new]

    def meet(self, begun: Sequence[Sequence[Sequence[Any]]]) -> tuple[bool, str]:
        """Carry out the messages of which both ends have begun, in the order of their sends; all ranks call this.

        Returns whether there was one, and in words the first that the receiver has no room for, or "".
        """
        own = dist.get_rank()
        for rank, messages in enumerate(begun):
            self._open += self._new if rank == own else [Message(m[0], rank, *m[1:]) for m in messages]
        self._new = []
        found = False
        for send in [m for m in self._open if m.is_send]:
            receive = next((m for m in self._open if m.belongs_to(send)), None)
            if receive is None:
                continue
            if misfit := _misfit(send, receive):
                return found, misfit
            self._open = [m for m in self._open if m is not send and m is not receive]
            self._carry_out(send, receive)
            send.done = receive.done = found = True
        return found, ""

    def _carry_out(self, send: Message, receive: Message) -> None:
        if send.tensor is not None:
            self._send(send.tensor.detach(), dst=send.peer)
        elif receive.tensor is not None:
            receive.result = torch.empty_like(receive.tensor.detach())
            self._recv(receive.result, src=receive.peer)


def _name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _misfit(send: Message, receive: Message) -> str:
    if (send.numel, send.dtype) == (receive.numel, receive.dtype):
        return ""
    kinds = ("", "") if send.dtype == receive.dtype else (f" ({send.dtype})", f" ({receive.dtype})")
    return (
        f"rank {send.rank} sends {send.numel} numbers{kinds[0]} to rank {receive.rank}, "
        f"which expects {receive.numel}{kinds[1]}."
    )
