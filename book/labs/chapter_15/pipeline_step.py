"""What a pipeline schedule is predicted to cost: the time of a step, its bubble, and the microbatches that are held.

Nothing here is measured. All passes of a stage are taken to last equally long.
"""

from collections.abc import Sequence

from d2lite.trace import Event
from notebook_ranks.shared.checks import all_of, non_negative_number, positive_int, positive_number

from .pipeline_schedule import Pass, needs, pass_order

__all__ = ["bubble_formula", "bubble_of", "microbatches_held", "predict_pipeline"]

PASS_EVENTS = {"F": "forward", "B": "backward", "I": "backward, input", "W": "backward, weights"}  # the kind of Event


def predict_pipeline(
    schedule: Sequence[Sequence[Pass]],
    forward_s: float | Sequence[float] = 1.0,
    backward_s: float | Sequence[float] = 2.0,
    send_s: float = 0.0,
) -> list[Event]:
    """Return when each pass begins and ends: a rank begins its next pass as soon as what it needs has arrived.

    Args:
        schedule: the passes of each rank; `check_schedule` accepts them.
        forward_s: seconds of a forward pass, one number or one per stage.
        backward_s: seconds of a backward pass, likewise; its two halves I and W take half of it each.
        send_s: seconds until activations or their gradient have arrived at another rank; a rank computes meanwhile.

    Raises:
        ValueError: if the ranks wait for each other, or a time is negative or not finite.

    Example:
        >>> events = predict_pipeline([[Pass("F", 0, 0), Pass("B", 0, 0)]])
        >>> [(event.name, event.start_s, event.end_s) for event in events]
        [('0F0', 0.0, 1.0), ('0B0', 1.0, 3.0)]
    """
    num_stages = 1 + max((one.stage for passes in schedule for one in passes), default=0)
    forward, backward = _per_stage("forward_s", forward_s, num_stages), _per_stage("backward_s", backward_s, num_stages)
    send_s = non_negative_number("send_s", send_s)
    ended: dict[Pass, tuple[int, float]] = {}  # the rank that has computed it, and when
    free_s = [0.0] * len(schedule)
    events = []
    for rank, one in pass_order(schedule, num_stages):
        start_s = free_s[rank]
        for other in needs(one, num_stages):
            where, end_s = ended[other]
            start_s = max(start_s, end_s + send_s * (where != rank))
        lasts_s = forward[one.stage] if one.kind == "F" else backward[one.stage] / (1 if one.kind == "B" else 2)
        free_s[rank] = start_s + lasts_s
        ended[one] = ended[one._replace(kind="B") if one.kind == "I" else one] = rank, free_s[rank]
        events.append(Event(rank=rank, kind=PASS_EVENTS[one.kind], name=str(one), start_s=start_s, end_s=free_s[rank]))
    return events


def _per_stage(name: str, seconds: float | Sequence[float], num_stages: int) -> list[float]:
    if not isinstance(seconds, Sequence):
        return [positive_number(name, seconds)] * num_stages
    if len(seconds) != num_stages:
        raise ValueError(f"{name}: expected one number, or {num_stages} (one per stage), got {len(seconds)}.")
    return all_of(name, seconds, positive_number)


def bubble_of(events: Sequence[Event]) -> float:
    """Return the bubble: the share of the time, from the first pass to the last one, in which ranks do not compute.

    Waiting is not computing. Raises ValueError without events that compute.
    """
    computing = [event for event in events if event.kind in PASS_EVENTS.values()]
    if not computing:
        raise ValueError("events: expected at least one forward or backward pass, got none.")
    lasts_s = max(event.end_s for event in computing) - min(event.start_s for event in computing)
    busy_s = sum(event.end_s - event.start_s for event in computing)
    return 1 - busy_s / (lasts_s * len({event.rank for event in computing}))


def bubble_formula(num_stages: int, num_microbatches: int) -> float:
    """Return the bubble of GPipe and of 1F1B with equal stages: (k - 1) / (m + k - 1).

    Huang et al. 2019 (arXiv:1811.06965), for one stage per rank and free sending.

    Example:
        >>> bubble_formula(num_stages=4, num_microbatches=12)
        0.2
    """
    k, m = positive_int("num_stages", num_stages), positive_int("num_microbatches", num_microbatches)
    return (k - 1) / (m + k - 1)


def microbatches_held(passes: Sequence[Pass]) -> int:
    """Return the largest number of microbatches whose activations a rank holds at a time.

    They are held from the forward pass until the backward pass has ended, and if that is in two halves, until W has. A
    rank with two stages holds a microbatch once for each.

    Example:
        >>> microbatches_held([Pass("F", 0, 0), Pass("F", 0, 1), Pass("B", 0, 0), Pass("B", 0, 1)])
        2
    """
    held = most = 0
    for one in passes:
        held += {"F": 1, "B": -1, "W": -1, "I": 0}[one.kind]
        most = max(most, held)
    return most
