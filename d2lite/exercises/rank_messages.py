"""What goes from one rank to another: which send belongs to which receive, and whether the receiver has room for it."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

__all__ = ["MESSAGES", "Message", "message_of", "pairs_in", "size_of", "unequal"]

MESSAGES = "send", "recv", "isend", "irecv"  # of torch.distributed


class Message(NamedTuple):
    """A send or a receive that a rank has begun, as all ranks know it; they sort in the order in which they began."""

    begun: tuple[int, int, int]  # meetings of the ranks before it, its rank, waiting messages of that rank before it
    route: tuple[int, int, int]  # from which rank, to which rank, tag
    size: tuple[int, str]
    is_send: bool
    words: str


def message_of(name: str, given: dict[str, Any], num_meetings: int, num_waiting: int) -> Message:
    """Return the message that a call with these arguments begins, or raise an error if they cannot be sent."""
    tensor, tag, is_send = given["tensor"], given.get("tag", 0), name.endswith("send")
    end, preposition = ("dst", "to") if is_send else ("src", "from")
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name}: expected a tensor, got {'None' if tensor is None else type(tensor).__name__}")
    if not tensor.is_contiguous():
        raise ValueError(f"{name}: expected a contiguous tensor. tensor.contiguous() returns one")
    rank, k, peer = dist.get_rank(), dist.get_world_size(), given.get(end, given.get(f"group_{end}"))
    if not isinstance(peer, int) or not 0 <= peer < k or peer == rank:
        raise ValueError(f"{name} on rank {rank}: {end} is one of the other ranks from 0 to {k - 1}, got {peer}")
    route = (rank, peer, tag) if is_send else (peer, rank, tag)
    words = f"{name} {preposition} rank {peer}" + (f" with tag {tag}" if tag else "")
    return Message((num_meetings, rank, num_waiting), route, size_of(tensor), is_send, words)


def pairs_in(begun: Sequence[Sequence[Message]]) -> Iterator[tuple[Message, Message]]:
    """Yield each send of all ranks with its receive, in the order of the sends."""
    waiting = sorted(message for messages in begun for message in messages)
    for send in [message for message in waiting if message.is_send]:
        if receive := next((one for one in waiting if not one.is_send and one.route == send.route), None):
            waiting.remove(receive)
            yield send, receive


def size_of(tensor: torch.Tensor) -> tuple[int, str]:
    """Return how many numbers a tensor has, and their type."""
    return tensor.numel(), str(tensor.dtype).removeprefix("torch.")


def unequal(route: Sequence[int], sent: tuple[int, str], room: tuple[int, str]) -> str:
    """Return in words that a rank sends what another one has no room for, or ""."""
    kinds = ("", "") if sent[1] == room[1] else (f" ({sent[1]})", f" ({room[1]})")
    words = f"rank {route[0]} sends {sent[0]} numbers{kinds[0]} to rank {route[1]}, which expects {room[0]}{kinds[1]}."
    return "" if sent == room else words
