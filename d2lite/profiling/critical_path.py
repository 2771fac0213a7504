"""What decides when a step ends: which event waited for which, from the last end back to the first start; pure."""

from collections.abc import Sequence
from dataclasses import replace

from d2lite.trace import Event

__all__ = ["critical_path", "cut_waits", "idle_events", "is_collective"]

IDLE_KINDS = ("wait", "idle")  # spans in which nothing is done
_SAME_S = 1e-9  # times that differ by less are one moment


def is_collective(event: Event) -> bool:
    """Return whether `event` sends bytes, as one rank's part of a collective: a synchronisation point of all ranks."""
    return event.n_bytes > 0


def critical_path(events: Sequence[Event]) -> list[Event]:
    """Return the chain of events that decides when the step ends, the first one first.

    The chain is found from its end: the event that ends last, then the event of the same rank that had ended last when
    it began, and so on. No rank can end a collective (events with bytes and the same kind and name) before its last
    rank has arrived: so the event of this rank stands for the collective, and the chain continues there. Waiting
    decides nothing and is left out.

    Clocks of different ranks must agree, and a backward pass must be cut where a bucket is sent, as in the events of
    predict_step and record_ddp.
    """
    if not events:
        raise ValueError("events: expected at least one Event, got none.")
    left = [event for event in events if event.kind not in IDLE_KINDS]
    chain: list[Event] = []
    event = max(left, key=lambda e: e.end_s, default=None)
    while event is not None:
        members = _members(event, left)
        event = max(members, key=lambda member: (member.start_s, _ended(_before(member, left))))  # the last to arrive
        before = _before(event, left)
        chain.append(event)
        left = [other for other in left if other not in members]  # ends the loop even if the clocks disagree
        event = before if before in left else None
    return chain[::-1]


def _members(event: Event, events: Sequence[Event]) -> list[Event]:
    """All events of the collective that `event` is a part of, itself first; only itself if it is no collective."""
    if not is_collective(event):
        return [event]
    same = (event.kind, event.name)
    return [event, *(e for e in events if is_collective(e) and (e.kind, e.name) == same and e.rank != event.rank)]


def _before(event: Event, events: Sequence[Event]) -> Event | None:
    """The event of the same rank that ended last before `event` began, or None."""
    ended = [e for e in events if e.rank == event.rank and e is not event and e.end_s <= event.start_s + _SAME_S]
    return max(ended, key=lambda e: e.end_s, default=None)


def _ended(event: Event | None) -> float:
    return event.end_s if event else float("-inf")


def cut_waits(events: Sequence[Event]) -> list[Event]:
    """Return the events with each collective cut in two where its last rank arrives: a span "wait", then the sending.

    Before that moment a rank only waits for others. Clocks of different ranks must agree.
    """
    arrived: dict[tuple[str, str], float] = {}  # (kind, name) of a collective -> when its last rank began
    for event in filter(is_collective, events):
        key = event.kind, event.name
        arrived[key] = max(arrived.get(key, event.start_s), event.start_s)
    found = []
    for event in events:
        begins = min(arrived[event.kind, event.name], event.end_s) if is_collective(event) else event.start_s
        if begins > event.start_s:
            found.append(replace(event, kind="wait", name=f"wait, {event.name}", end_s=begins, n_bytes=0))
        found.append(replace(event, start_s=begins))
    return found


def idle_events(events: Sequence[Event]) -> list[Event]:
    """Return a span "idle" for each gap in a rank's computing, from the first start of all ranks to the last end."""
    first, end = min(e.start_s for e in events), max(e.end_s for e in events)
    found = []
    for rank in sorted({event.rank for event in events}):
        busy = [e for e in events if e.rank == rank and not is_collective(e) and e.kind not in IDLE_KINDS]
        until = first
        for start_s, end_s in [*sorted((e.start_s, e.end_s) for e in busy), (end, end)]:
            if start_s > until + _SAME_S:
                found.append(Event(rank=rank, kind="idle", name="idle", start_s=until, end_s=start_s))
            until = max(until, end_s)
    return found
