"""Call an answer on all ranks and watch its collectives: how many it calls, and that no rank waits for another in vain.

Before a collective, and while a rank waits for a message (send, recv, isend, irecv), the ranks exchange what each is
about to do. A message is sent when both ends have begun it. If the ranks cannot go on together, the answer ends with
`Unfit` on all of them. Nothing waits for a time-out.
"""

import functools
import inspect
import types
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from d2lite.exercises.exercise import Mistake
from d2lite.exercises.observed import Unfit
from d2lite.exercises.rank_messages import MESSAGES, Message, message_of, pairs_in, size_of, unequal

__all__ = ["NEVER_ENDS", "WORLD_SIZE", "Lockstep"]

WORLD_SIZE = 3  # of exercises: one more than the ranks of the chapters, so that a 2 in place of their number is seen
_WATCHED_PREFIXES = "all_", "barrier", "broadcast", "gather", "monitored_barrier", "reduce", "scatter"
IN_PLACE = "all_reduce", "broadcast", "reduce"  # they write into their first argument
UNEVEN = "all_to_all_single"  # its tensors may differ in size from rank to rank
RETURNED = "returns"
SPLITS = (
    "How much goes from one rank to another, input_split_sizes says on the sender and output_split_sizes on the "
    "receiver. From where can the receiver know it?"
)
ROOM = "Which tensor does the one rank send, and which one has the other made for it? Compare their shapes and dtypes."
FOLLOW = "Follow the function line by line, once as each of the ranks."
ENDS = f"A send ends when its receiver has called recv, and a recv when its sender has called send. {FOLLOW}"
WAITS = f"A collective ends when all ranks have called it. {FOLLOW}"
NEVER_ENDS = Mistake(None, "A loop does not end, or a rank waits for a message that no other rank sends.", WAITS)


class Lockstep:
    """One call of an answer; `num_collectives` and `num_sent` count this rank's collectives and sent messages.

    `num_pending` counts the collectives that have begun (`async_op=True`) and for which nobody has waited yet.
    """

    def __init__(self) -> None:
        self.num_collectives = self.num_sent = self.num_pending = self._num_meetings = 0
        self._handles: list[weakref.ref[_Handle]] = []  # of collectives
        self._inside = False  # a collective, which may call others
        self._waiting: dict[Message, torch.Tensor] = {}  # of this rank: what is sent, or the room for what comes
        self._unfit: Unfit | None = None

    @property
    def num_held(self) -> int:
        """How many handles of collectives the answer still holds."""
        return sum(handle() is not None for handle in self._handles)

    def call(self, answer: Callable[..., Any], *args: Any) -> Any:
        """Return `answer(*args)`; all ranks of the process group call this.

        Raises Unfit on all ranks if they cannot go on together, and on the others if the answer fails on one.
        """
        failed: BaseException | None = None
        places = _places((answer, *args))
        watched = {fn: self._watched(name, fn) for name, fn in places[0][1].items()}
        try:
            for place, originals in places:
                place.update({name: watched[fn] for name, fn in originals.items()})
            result = answer(*args)
        except BaseException as error:  # sys.exit() included
            failed = error
        finally:
            for place, originals in places:
                place.update(originals)  # at once, so that no interrupt comes between
        own = "" if failed is None or isinstance(failed, Unfit) else f"{type(failed).__name__}: {str(failed)[:200]}"
        raised = [Unfit(f"on rank {rank} it raised {it}.") for rank, it in enumerate(self._meet(RETURNED, own)) if it]
        failed = failed if own else next(iter(raised), self._unfit or failed)
        if failed is not None:
            raise failed
        return result

    def _watched(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def watched(*args: Any, **named: Any) -> Any:
            given = inspect.signature(original).bind(*args, **named).arguments
            of_all = given.get("group") in (None, dist.group.WORLD)  # other groups have other ranks
            if self._inside or (name in MESSAGES and not of_all):
                return original(*args, **named)
            if name in MESSAGES:
                return self._message(name, given)
            if of_all:
                exchanges = self._meet(_words(name, given), _exchange_of(given) if name == UNEVEN else None)
                if name == UNEVEN and (misfit := _misfit(exchanges)):
                    self._unfit = Unfit(misfit, SPLITS)
                    raise self._unfit
            self.num_collectives += 1
            self.num_pending += bool(given.get("async_op"))
            self._inside = True
            try:
                if name not in IN_PLACE or not given.get("async_op"):
                    return original(*args, **named)
                first, tensor = next(iter(given.items()))
                result = tensor.detach().clone()
                original(**{**given, first: result, "async_op": False})

                def end() -> torch.Tensor:
                    self.num_pending -= 1
                    return tensor.detach().copy_(result)

                handle = _Handle(end)
                self._handles.append(weakref.ref(handle))
                return handle
            finally:
                self._inside = False

        return watched

    def _message(self, name: str, given: dict[str, Any]) -> Any:
        tensor, message = given["tensor"], message_of(name, given, self._num_meetings, len(self._waiting))
        here = self._waiting[message] = tensor.detach() if message.is_send else torch.empty_like(tensor.detach())
        self.num_sent += message.is_send

        def end() -> torch.Tensor:
            while message in self._waiting:
                self._meet(f"waits in {message.words}", waits=True)
            if not message.is_send:
                tensor.detach().copy_(here)
            return tensor

        if name in ("isend", "irecv"):
            return _Handle(end)
        end()
        return None if message.is_send else message.route[0]

    def _meet(self, doing: str, more: Any = None, waits: bool = False) -> list[Any]:
        """Exchange (doing, more) with all ranks, and return each rank's `more`.

        A rank that waits for a message does so once. Any other repeats it until no rank waits and all do the same.
        """
        while True:
            states: list[Any] = [None] * dist.get_world_size()
            self._inside, self._num_meetings = True, self._num_meetings + 1
            try:
                dist.all_gather_object(states, (doing, more, waits, list(self._waiting)))
                doings, mores, waiting, begun = zip(*states, strict=True)
                pairs, misfit = list(pairs_in(begun)), ""
                for send, receive in pairs:
                    if misfit := unequal(send.route, send.size, receive.size):
                        break
                    if send in self._waiting:
                        dist.send(self._waiting.pop(send), send.route[1])
                    elif receive in self._waiting:
                        dist.recv(self._waiting.pop(receive), send.route[0])
            finally:
                self._inside = False
            what = ", ".join(f"rank {rank} {words}" for rank, words in enumerate(doings))
            is_same = len(set(doings)) == 1 and not any(waiting)
            wrong = [
                (misfit, ROOM),
                (any(waiting) and not pairs and f"no rank can go on: {what}.", ENDS),
                (not (any(waiting) or is_same) and f"the ranks do not call the same collectives: {what}.", WAITS),
            ]
            unfit = next((Unfit(words, think) for words, think in wrong if words), None)
            self._unfit = self._unfit or unfit
            # a rank that has returned goes on here until the others, which raise, have returned too: `call` raises then
            if self._unfit and unfit and doing != RETURNED:
                raise self._unfit
            if waits or is_same:
                return list(mores)


class _Handle:
    """What a call that only begins returns: `end` gives the tensor its new numbers, at `wait` and not before."""

    def __init__(self, end: Callable[[], torch.Tensor]) -> None:
        self._end, self._future = end, torch.futures.Future[list[torch.Tensor]]()
        self.is_completed = self._future.done

    def wait(self, timeout: Any = None) -> bool:
        if not self._future.done():
            self._future.set_result([self._end()])
        return True

    def get_future(self) -> Any:
        self.wait()
        return self._future


def _places(called: Sequence[Any]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return the names of torch.distributed and of the called functions, and which of them are to be watched."""
    found = {fn for n, fn in vars(dist).items() if callable(fn) and (n in MESSAGES or n.startswith(_WATCHED_PREFIXES))}
    of_called = [place for fn in called if callable(fn) for place in _globals_of(fn)]
    return [
        (place, {name: fn for name, fn in place.items() if type(fn) is types.FunctionType and fn in found})
        for place in (vars(dist), vars(dist.distributed_c10d), *of_called)
    ]


def _globals_of(called: Callable[..., Any]) -> list[dict[str, Any]]:
    """Return the globals that a function, a method, a partial, a class or an object with __call__ looks names up in."""
    fn = inspect.unwrap(called)
    while isinstance(fn, functools.partial):
        fn = inspect.unwrap(fn.func)
    kind = fn if isinstance(fn, type) else type(fn)
    methods = [*vars(kind).values()] if kind.__module__ not in ("builtins", "functools") else []
    found = {id(place): place for it in (fn, *methods) if (place := getattr(it, "__globals__", None)) is not None}
    return list(found.values())  # C code has none


def _words(name: str, given: dict[str, Any]) -> str:
    words, tensors = f"calls {name}", [value for value in given.values() if isinstance(value, torch.Tensor)]
    if tensors and name != UNEVEN:
        numel, kind = size_of(tensors[0])
        words += f" of {numel} number{'' if numel == 1 else 's'}" + ("" if kind == "float32" else f" ({kind})")
    for end, preposition in (("src", "from"), ("dst", "to")):
        words += "" if given.get(end) is None else f" {preposition} rank {given[end]}"
    return words


def _exchange_of(given: dict[str, Any]) -> list[Any]:
    """Return how many numbers this rank sends to each rank, and how many it has room for, and their type."""
    k, counts = dist.get_world_size(), []
    for end in ("input", "output"):
        rows, splits = len(given[end]), given.get(f"{end}_split_sizes")
        parts = [rows // k] * k if splits is None else [int(n) for n in splits]
        fits = len(parts) == k and sum(parts) == rows  # else the collective raises an error on this rank alone
        counts.append([n * given[end][:1].numel() for n in parts] if fits else [])
    return [*counts, size_of(given["output"])[1]]


def _misfit(exchanges: Sequence[Sequence[Any]]) -> str:
    """Return in words which rank sends what another one has no room for, or ""."""
    for rank, (sent, room, _) in enumerate(exchanges):
        if which := "input" if not sent else "output" if not room else "":
            return (
                f"all_to_all_single on rank {rank}: {which}_split_sizes must have one number per rank, and they "
                f"must add up to the rows of {which}. Without them the rows must divide by the number of ranks."
            )
    for sender, (sent, _, kind) in enumerate(exchanges):
        for receiver, (_, room, other) in enumerate(exchanges):
            if words := unequal((sender, receiver), (sent[receiver], kind), (room[sender], other)):
                return f"all_to_all_single: {words}"
    return ""
