"""Rules of gradients: cleared, kept, clipped, scaled, missing, or added up over several backward passes."""

import math
import statistics
from collections.abc import Sequence

from ddp_rehearsal.finding import Finding
from ddp_rehearsal.fingerprint import Print, unpacked
from ddp_rehearsal.observations import Clipped, Forward, Observed, Update
from ddp_rehearsal.rules.optimizers import not_held
from ddp_rehearsal.rules.side_by_side import GRADIENTS, WEIGHTS, all_same, side_by_side

__all__ = [
    "clipped_in_parts",
    "left_over_minibatches",
    "clipped_before_the_reduction",
    "clipped_while_scaled",
    "gradients_kept",
    "lost_gradients",
    "missing_gradients",
    "scaled_updates",
    "several_backward_passes",
]


def gradients_kept(observed: Observed) -> list[Finding]:
    """Find updates whose gradients were added to those of the update before."""
    for one in observed:
        updates = one.of(Update)
        later = [u for u in updates[1:] if not u.closure]
        if len({u.optimizer for u in updates}) != 1 or len(later) < 2:
            return []
        if not all(u.kept and u.backwards == 1 for u in later):
            return []
    first, ranks = observed[0].of(Update)[1], tuple(range(len(observed)))
    words = "each backward pass adds its gradients to those of the update before: they are never set to zero."
    repair = "Call optimizer.zero_grad() before each backward pass."
    is_sure = not first.is_own  # an optimizer of the script's own may work with the sum
    return [Finding("arithmetic", words, repair, ranks=ranks, step=first.step, place=first.place, is_sure=is_sure)]


def lost_gradients(observed: Observed) -> list[Finding]:
    """Find an accumulation whose gradients are cleared before the update, but for those of the last minibatch."""
    updates = [u for one in observed for u in one.of(Update)]
    if len(updates) < 2 or len({u.optimizer for u in updates}) != 1 or any(u.closure for u in updates):
        return []
    n = min(u.lost for u in updates)
    if n < 1 or any(u.minibatches <= u.lost for u in updates):
        return []
    words = (
        f"each update uses the gradients of the last of {n + 1} minibatches: zero_grad() clears those of the others, "
        "which were accumulated."
    )
    repair = "Call zero_grad() once for each update, after optimizer.step()."
    ranks = tuple(range(len(observed)))
    return [Finding("arithmetic", words, repair, ranks=ranks, step=updates[0].step, place=updates[0].place)]


def several_backward_passes(observed: Observed) -> list[Finding]:
    """Note an accumulation of gradients: whether the loss is divided is not seen."""
    updates = [u for one in observed for u in one.of(Update)]
    counts = {u.backwards for u in updates}
    if len({u.optimizer for u in updates}) != 1 or len(counts) != 1 or max(counts) < 2 or any(u.kept for u in updates):
        return []
    n = max(counts)
    words = f"each update adds up the gradients of {n} backward passes. Is each loss divided by {n}?"
    repair = f"loss / {n} gives the mean over the whole minibatch."
    forwards = [f for one in observed for f in one.of(Forward) if f.in_ddp]
    if forwards and all(f.syncs for f in forwards):
        words += f" DistributedDataParallel averages the gradients {n} times, and once would do."
        repair += " All forward and backward passes but the last one belong in no_sync()."
    return [Finding("arithmetic", words, repair, step=updates[0].step, place=updates[0].place, is_sure=False)]


def missing_gradients(observed: Observed) -> list[Finding]:
    """Note parameters that never get a gradient."""
    updates = [u for one in observed for u in one.of(Update) if not u.closure and not u.sharded]
    names = [n for n in (updates[0].grads if updates else ()) if all(u.grads.get(n) is None for u in updates)]
    if not names:
        return []
    if any(found.is_sure for found in not_held(observed)):
        return []
    words = f"{len(names)} of the optimizer's parameters never got a gradient, the first one is {names[0]}."
    repair = "Leave them out of the optimizer if they are frozen; look for a part of the network that is not used."
    return [Finding("arithmetic", words, repair, step=updates[0].step, place=updates[0].place, is_sure=False)]


def clipped_before_the_reduction(observed: Observed) -> list[Finding]:
    """Find gradients that each rank has clipped by its own norm before they were averaged."""
    for calls in zip(*(one.of(Clipped) for one in observed), strict=False):
        first = calls[0]
        updates = [next((u for u in one.of(Update) if u.step == first.step), None) for one in observed]
        if len(calls) < 2 or len({c.step for c in calls}) > 1 or None in updates:
            continue
        apart = any(len({c.grads.get(name) for c in calls}) > 1 for name in first.grads)
        equal_later = all_same(side_by_side([u for u in updates if u]).grads, GRADIENTS)
        if apart and equal_later and _norms_differ(calls) and any(c.norm > c.most * (1 + WEIGHTS) for c in calls):
            words = f"each rank clips its own gradients, and they are averaged afterwards: {_norms(calls)}."
            repair = "Average the gradients first, then clip: one GPU would clip the norm of the average."
            ranks, step, place = tuple(range(len(calls))), first.step, first.place
            if not (is_sure := _is_average(calls, updates[0])):
                repair = f"If noise is added for differential privacy, nothing is wrong. Else: {repair}"
            return [Finding("arithmetic", words, repair, ranks=ranks, step=step, place=place, is_sure=is_sure)]
    return []


def _is_average(calls: Sequence[Clipped], update: Update | None) -> bool:
    """Return whether the gradients of an update are the mean or the sum of what the ranks have clipped."""
    grads = update.grads if update else {}
    names = [name for name in grads if all(name in call.clipped for call in calls)]
    for name in names:
        found, sums = (
            _values(grads[name]),
            [sum(x) for x in zip(*(_values(c.clipped[name]) for c in calls), strict=False)],
        )
        close = GRADIENTS * max(map(abs, (*sums, *found)), default=0.0)
        if not any(all(abs(x / n - y) <= close for x, y in zip(sums, found, strict=False)) for n in (1, len(calls))):
            return False
    return bool(names)


def _values(print_of: Print | None) -> tuple[float, ...]:
    return unpacked(print_of[1]) if print_of else ()


def clipped_while_scaled(observed: Observed) -> list[Finding]:
    """Find gradients that are clipped while they have the factor of a GradScaler."""
    first = next((c for one in observed for c in one.of(Clipped) if c.scaled), None)
    if first is None:
        return []
    words = "gradients are clipped while they still have the factor of the GradScaler: the clipping is far too strong."
    repair = "Call scaler.unscale_(optimizer) before clipping."
    ranks = tuple(one.rank for one in observed if any(c.scaled for c in one.of(Clipped)))
    return [Finding("arithmetic", words, repair, ranks=ranks, step=first.step, place=first.place)]


def scaled_updates(observed: Observed) -> list[Finding]:
    """Find updates with gradients that have the factor of a GradScaler."""
    first = next((u for one in observed for u in one.of(Update) if u.scaled), None)
    if first is None:
        return []
    words = f"{first.name}.step() uses gradients that still have the factor of the GradScaler."
    repair = "Call scaler.step(optimizer) and scaler.update(), and not optimizer.step()."
    ranks = tuple(one.rank for one in observed if any(u.scaled for u in one.of(Update)))
    return [Finding("arithmetic", words, repair, ranks=ranks, step=first.step, place=first.place)]


def clipped_in_parts(observed: Observed) -> list[Finding]:
    """Find ranks that clip their parts of sharded gradients by the norm of the part."""
    for calls in zip(*(one.of(Clipped) for one in observed), strict=False):
        first = calls[0]
        clips = any(c.norm > c.most * (1 + WEIGHTS) for c in calls)
        if len(calls) > 1 and all(c.flat for c in calls) and _norms_differ(calls) and clips:
            words = f"each rank clips its own part of the gradients by the norm of this part: {_norms(calls)}."
            repair = "Call model.clip_grad_norm_(max_norm) of FullyShardedDataParallel: it has the norm of all parts."
            ranks = tuple(range(len(calls)))
            return [Finding("arithmetic", words, repair, ranks=ranks, step=first.step, place=first.place)]
    return []


def _norms_differ(calls: Sequence[Clipped]) -> bool:
    """Return whether gradients were clipped by norms that differ by more than rounding."""
    norms = [c.norm for c in calls if math.isfinite(c.norm)]
    return bool(norms) and max(norms) - min(norms) > GRADIENTS * max(norms)


def _norms(calls: Sequence[Clipped]) -> str:
    return f"the norms are {', '.join(f'{c.norm:.3g} on rank {r}' for r, c in enumerate(calls))}"


def left_over_minibatches(observed: Observed) -> list[Finding]:
    """Note what an accumulation leaves over at the end of an epoch: it joins the next update, or is cleared."""
    for one in observed:
        updates = [u for u in one.of(Update) if not u.closure]
        if len(updates) < 3 or len({u.optimizer for u in updates}) != 1:
            return []
        n = statistics.mode(u.backwards for u in updates)
        begins = {f.step: f.epoch for f in reversed(one.of(Forward)) if f.training and f.loader >= 0}
        ends = {f.step: f.epoch for f in one.of(Forward) if f.training and f.loader >= 0}
        for before, u in zip(updates, updates[1:], strict=False):
            if n < 2 or ends.get(before.step, -1) < 0 or before.lost or ends.get(u.step, -1) == ends[before.step]:
                continue
            more = u.backwards - n
            if more > 0 and begins.get(u.step) != ends.get(u.step):
                words = (
                    f"the first update of an epoch has {_minibatches(more, 'more')}, left over from the epoch before"
                )
            elif u.lost > 0 and u.backwards == n:
                words = f"the gradients of the last {_minibatches(u.lost)} of an epoch are cleared without an update"
            else:
                continue
            words += f": an epoch's length is no multiple of {n}."
            repair = "Let the last minibatch of an epoch end in an update, too, or leave out what is left over."
            return [Finding("arithmetic", words, repair, step=u.step, place=u.place, is_sure=False)]
    return []


def _minibatches(n: int, adjective: str = "") -> str:
    return " ".join(filter(None, [str(n) if n > 1 or adjective else "", adjective, "minibatch" + "es" * (n > 1)]))
