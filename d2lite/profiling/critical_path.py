"""What decides when a step ends: which event waited for which, from the last end backwards; pure."""

from dataclasses import replace

__all__ = ["IDLE_KINDS", "critical_path", "cut_waits", "idle_events", "is_collective"]

IDLE_KINDS = ("wait", "idle")  # spans in which nothing is done
_SAME_S = 1e-9  # times that differ by less are one moment


def is_collective(event):
    """Return whether `event` is a part of a collective, to which all ranks must come: it sends bytes."""
    return event.n_bytes > 0


def critical_path(events):
    """Return the chain of events that decides when the step ends, the first one first.

    It starts with the event that ends last and goes backwards: an event could not begin before the one of the same
    rank that ended last until then. A collective (events with bytes and one name) is a meeting: it cannot begin before
    the last rank has come, so the chain goes on with that rank, and its event stands for the meeting. Spans of
    waiting are not in the chain: they decide nothing. Clocks of different ranks must agree; a backward pass must be cut
    where a bucket is sent, as predict_step and recorded_steps cut it. Raises ValueError without events.
    """
    if not events:
        raise ValueError("events: expected at least one Event, got none.")
    left = [event for event in events if event.kind not in IDLE_KINDS]
    chain, event = [], max(left, key=lambda e: e.end_s, default=None)
    while event is not None:
        members = _members(event, left)
        event = max(members, key=lambda member: (member.start_s, _ended(_before(member, left))))  # the last to come
        before = _before(event, left)
        chain.append(event)
        left = [other for other in left if other not in members]  # so that it ends, whatever the clocks say
        event = before if before in left else None
    return chain[::-1]


def _members(event, events):
    """All events of the meeting that `event` belongs to, itself first; only itself if it is none."""
    if not is_collective(event):
        return [event]
    same = (event.kind, event.name)
    return [event, *(e for e in events if is_collective(e) and (e.kind, e.name) == same and e.rank != event.rank)]


def _before(event, events):
    """The event of the same rank that ended last before `event` began, or None."""
    ended = [e for e in events if e.rank == event.rank and e is not event and e.end_s <= event.start_s + _SAME_S]
    return max(ended, key=lambda e: e.end_s, default=None)


def _ended(event):
    return event.end_s if event else float("-inf")


def cut_waits(events):
    """Return the events with each rank's time in a collective before the last rank came cut off, as a span "wait".

    That part is waiting for others; only the rest is sending. Clocks of different ranks must agree.
    """
    last = {}
    for event in filter(is_collective, events):
        key = event.kind, event.name
        last[key] = max(last.get(key, event.start_s), event.start_s)
    found = []
    for event in events:
        begins = min(last[event.kind, event.name], event.end_s) if is_collective(event) else event.start_s
        if begins > event.start_s:
            found.append(replace(event, kind="wait", name=f"wait, {event.name}", end_s=begins, n_bytes=0))
        found.append(replace(event, start_s=begins))
    return found


def idle_events(events):
    """Return a span "idle" for each gap of a rank's computing, from the first start of all ranks to the last end."""
    first, end = min(e.start_s for e in events), max(e.end_s for e in events)
    found = []
    for rank in sorted({event.rank for event in events}):
        busy = [e for e in events if e.rank == rank and not is_collective(e) and e.kind not in IDLE_KINDS]
        until, name = first, "idle"
        for start_s, end_s in [*sorted((e.start_s, e.end_s) for e in busy), (end, end)]:
            if start_s > until + _SAME_S:
                found.append(
                    replace(events[0], rank=rank, kind="idle", name=name, start_s=until, end_s=start_s, n_bytes=0)
                )
            until = max(until, end_s)
    return found
