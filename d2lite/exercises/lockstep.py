"""Call an answer on all ranks and watch its collectives: how many it calls, and that no rank waits for another in vain.

Before a collective begins, the ranks exchange which one each is about to call. If a rank has returned, or calls another
one, the answer ends with `Unfit` on all ranks, instead of waiting for the time-out of the group. The same holds for an
all-to-all in which a rank sends another number of numbers than the receiver has room for.

Messages from one rank to another (send, recv, isend, irecv) take part: a rank that waits for one meets the others, and
the message is sent when both ends have begun it. If nobody can go on any more, the answer ends with `Unfit`.
"""

import functools
import inspect
import json
import types
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from d2lite.exercises.exercise import Mistake
from d2lite.exercises.observed import Unfit
from d2lite.exercises.rank_messages import MESSAGES, Message, Messages

__all__ = ["NEVER_ENDS", "WORLD_SIZE", "Lockstep"]

WORLD_SIZE = 3  # of exercises: one more than the ranks of the chapters, so that a 2 in place of their number is seen

COLLECTIVES = (
    "all_gather", "all_gather_into_tensor", "all_gather_object", "all_gather_single", "all_reduce",
    "all_reduce_coalesced", "all_to_all", "all_to_all_single", "barrier", "broadcast", "broadcast_object_list",
    "gather", "gather_into_tensor", "gather_object", "gather_single", "monitored_barrier", "reduce", "reduce_scatter",
    "reduce_scatter_single", "reduce_scatter_tensor", "scatter", "scatter_object_list",
)  # fmt: skip
IN_PLACE = ("all_reduce", "broadcast", "reduce")  # they write into their first argument
RETURNED = "returns"
SPLITS = (
    "How much goes from one rank to another, input_split_sizes says on the sender and output_split_sizes on the "
    "receiver. From where can the receiver know it?"
)
ROOM = "Which tensor does the one rank send, and which one has the other made for it? Compare their shapes and dtypes."
ENDS = (
    "A send ends when its receiver has called recv, and a recv when its sender has called send. Follow the function "
    "line by line, once as each of the ranks."
)
WAITS = "A collective ends when all ranks have called it. Follow the function line by line, once as each of the ranks."

NEVER_ENDS = Mistake(None, "A loop does not end, or a rank waits for a message that no other rank sends.", WAITS)


class Lockstep:
    """One call of an answer on all ranks of the process group.

    `num_collectives` counts the collectives that this rank called, `num_sent` the messages that it sent to one rank.
    """

    def __init__(self) -> None:
        self.num_collectives = self.num_sent = 0
        self._inside = False  # a collective, which may call others
        self._exchange = dist.all_gather  # before it is replaced
        self._unmatched: Unfit | None = None
        self._messages = Messages()

    def call(self, answer: Callable[..., Any], *args: Any) -> Any:
        """Return `answer(*args)`. All ranks call this.

        Raises:
            Unfit: On all ranks, if one of them calls a collective that another one does not call, or if they wait for
            messages that nobody sends. If the answer raises an error on one rank, the other ranks raise it.
        """
        failed: BaseException | None = None
        functions = [inspect.unwrap(fn) for fn in (answer, *args) if callable(fn)]
        undo = self._replace([vars(dist), vars(dist.distributed_c10d), *(_names_of(fn) for fn in functions)])
        try:
            result = answer(*args)
        except BaseException as error:  # sys.exit() included
            failed = error
        finally:
            for names, name, original in undo:
                names[name] = original
        own = "" if failed is None or isinstance(failed, Unfit) else _described(failed)
        states = self._states(RETURNED, own)
        while any(doing != RETURNED for doing, _ in states):
            self._note(states)  # the collectives of the others end by this
            states = self._states(RETURNED, own)
        if failed is not None and not isinstance(failed, Unfit):
            raise failed
        for rank, (_, message) in enumerate(states):
            if message:
                raise Unfit(f"on rank {rank} it raised {message}.")
        if self._unmatched is not None:
            raise self._unmatched
        if failed is not None:
            raise failed
        return result

    def _replace(self, places: list[dict[str, Any]]) -> list[tuple[dict[str, Any], str, Any]]:
        """Replace the collectives in all places, also under other names, by watched ones; return what was there."""
        undo, watched = [], {}
        for name in COLLECTIVES:
            if hasattr(dist, name):
                watched[getattr(dist, name)] = self._watched(name, getattr(dist, name))
        for name in MESSAGES:
            watched[getattr(dist, name)] = self._watched_message(name, getattr(dist, name))
        for names in places:
            for name, value in list(names.items()):
                if type(value) is types.FunctionType and value in watched:
                    undo.append((names, name, value))
                    names[name] = watched[value]
        return undo

    def _watched(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        signature = _signature(original)

        @functools.wraps(original)
        def collective(*args: Any, **named: Any) -> Any:
            given = signature.bind(*args, **named).arguments
            if self._inside:
                return original(*args, **named)
            if given.get("group") in (None, dist.group.WORLD):  # other groups have other ranks
                self._meet(name, given)
            self.num_collectives += 1
            self._inside = True
            try:
                if given.get("async_op") and name in IN_PLACE:
                    return _started(original, given)
                return original(*args, **named)
            finally:
                self._inside = False

        return collective

    def _watched_message(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        signature = _signature(original)

        @functools.wraps(original)
        def message(*args: Any, **named: Any) -> Any:
            given = signature.bind(*args, **named).arguments
            if self._inside or given.get("group") not in (None, dist.group.WORLD):
                return original(*args, **named)
            began = self._messages.begin(name, given)
            self.num_sent += began.is_send
            if name in ("isend", "irecv"):
                return _Handle(lambda: self._end(began))
            self._end(began)
            return None if began.is_send else began.peer

        return message

    def _end(self, message: Message) -> Any:
        """Wait until a message has been sent or received; return its tensor."""
        while not message.done:
            self._round(f"waits in {message}", waits=True)
        if message.result is not None and message.tensor is not None:
            message.tensor.detach().copy_(message.result)
        return message.tensor

    def _states(self, doing: str, error: str = "") -> list[tuple[str, str]]:
        """Return what each rank is about to do, and the error that has ended its answer or "".

        A rank that waits for a message is about to do nothing: this returns when none does.
        """
        while True:
            states = self._round(doing, error)
            if not any(state["waits"] for state in states):
                return [(state["doing"], state["error"]) for state in states]

    def _round(self, doing: str, error: str = "", waits: bool = False) -> list[dict[str, Any]]:
        """Meet all other ranks; return what each of them does, whether it waits for a message, and its error or "".

        Raises:
            Unfit: If ranks wait for messages and none of them can go on, unless this rank has returned.
        """
        mine = {"doing": doing, "error": error, "waits": waits, "begun": self._messages.begun()}
        self._inside = True
        try:
            states = [json.loads(text) for text in self._texts(json.dumps(mine))]
            found, misfit = self._messages.meet([state["begun"] for state in states])
        finally:
            self._inside = False
        stuck = any(state["waits"] for state in states) and not found
        if misfit or stuck:
            what = ", ".join(f"rank {rank} {state['doing']}" for rank, state in enumerate(states))
            unfit = Unfit(misfit, ROOM) if misfit else Unfit(f"no rank can go on: {what}.", ENDS)
            self._unmatched = self._unmatched or unfit
            if doing != RETURNED:
                raise self._unmatched
        return states

    def _texts(self, mine: str) -> list[str]:
        """Return the texts of all ranks."""
        own = torch.tensor(list(mine.encode()), dtype=torch.uint8)
        lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(dist.get_world_size())]
        self._exchange(lengths, torch.tensor([len(own)]))
        longest = int(torch.cat(lengths).max())
        texts = [torch.zeros(longest, dtype=torch.uint8) for _ in lengths]
        self._exchange(texts, torch.nn.functional.pad(own, (0, longest - len(own))))
        return [bytes(text[: int(length)].tolist()).decode() for text, length in zip(texts, lengths, strict=True)]

    def _meet(self, name: str, given: dict[str, Any]) -> None:
        if name == "all_to_all_single":  # its tensors may differ in size from rank to rank
            states = self._states(f"calls {name}", _exchange_of(given))
        else:
            states = self._states(f"calls {name}{_size(given)}{_root(given)}")
        if len({doing for doing, _ in states}) > 1:
            raise self._note(states)
        if name == "all_to_all_single":
            misfit = _misfit([json.loads(text) for _, text in states])
            if misfit:
                self._unmatched = Unfit(misfit, SPLITS)
                raise self._unmatched

    def _note(self, states: list[tuple[str, str]]) -> Unfit:
        doing = [f"rank {rank} {doing}" for rank, (doing, _) in enumerate(states)]
        if self._unmatched is None:
            self._unmatched = Unfit(f"the ranks do not call the same collectives: {', '.join(doing)}.", WAITS)
        return self._unmatched


class _Handle:
    """What a call that only begins returns: `end` gives the tensor its new numbers, at `wait` and not before."""

    def __init__(self, end: Callable[[], Any]) -> None:
        self.end, self.waited = end, False
        self.tensor: Any = None

    def wait(self, timeout: Any = None) -> bool:
        if not self.waited:
            self.tensor = self.end()
            self.waited = True
        return True

    def is_completed(self) -> bool:
        return self.waited

    def get_future(self) -> Any:
        self.wait()
        future: torch.futures.Future[list[torch.Tensor]] = torch.futures.Future()
        future.set_result([self.tensor])
        return future


_signature = functools.cache(inspect.signature)


def _names_of(function: Any) -> dict[str, Any]:
    names: dict[str, Any] = getattr(function, "__globals__", {})  # functions of C code have none
    return names


def _size(given: dict[str, Any]) -> str:
    tensor = next((value for value in given.values() if isinstance(value, torch.Tensor)), None)
    if tensor is None:
        return ""
    kind = "" if tensor.dtype == torch.float32 else f" ({str(tensor.dtype).removeprefix('torch.')})"
    return f" of {tensor.numel()} number{'' if tensor.numel() == 1 else 's'}{kind}"


def _exchange_of(given: dict[str, Any]) -> str:
    """Return as JSON how many numbers this rank sends to each rank, and how many it has room for, and their type."""
    counts = []
    for tensor, splits in (("input", "input_split_sizes"), ("output", "output_split_sizes")):
        rows, k = len(given[tensor]), dist.get_world_size()
        parts = [rows // k] * k if given.get(splits) is None else [int(n) for n in given[splits]]
        fits = len(parts) == k and sum(parts) == rows  # else the collective raises an error on this rank alone
        counts.append([n * given[tensor][:1].numel() for n in parts] if fits else [])
    return json.dumps([*counts, str(given["output"].dtype).removeprefix("torch.")], separators=(",", ":"))


def _misfit(exchanges: list[Any]) -> str:
    """Return in words which rank sends what another one has no room for, or ""."""
    for rank, (*counts, _) in enumerate(exchanges):
        for which, parts in zip(("input", "output"), counts, strict=True):
            if not parts:
                return (
                    f"all_to_all_single on rank {rank}: {which}_split_sizes must have one number per rank, and they "
                    f"must add up to the rows of {which}. Without them the rows must divide by the number of ranks."
                )
    for sender, (sent, _, kind) in enumerate(exchanges):
        for receiver, (_, room, other_kind) in enumerate(exchanges):
            if (sent[receiver], kind) != (room[sender], other_kind):
                kinds = ("", "") if kind == other_kind else (f" ({kind})", f" ({other_kind})")
                return (
                    f"all_to_all_single: rank {sender} sends {sent[receiver]} numbers{kinds[0]} to rank {receiver}, "
                    f"which expects {room[sender]}{kinds[1]}."
                )
    return ""


def _root(given: dict[str, Any]) -> str:
    ends = {"src": "from", "dst": "to"}
    return next((f" {word} rank {given[end]}" for end, word in ends.items() if given.get(end) is not None), "")


def _started(original: Callable[..., Any], given: dict[str, Any]) -> _Handle:
    name = next(iter(given))
    tensor = given[name]
    result = tensor.detach().clone()
    original(**{**given, name: result, "async_op": False})
    return _Handle(lambda: tensor.detach().copy_(result))


def _described(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error)[:200]}"
