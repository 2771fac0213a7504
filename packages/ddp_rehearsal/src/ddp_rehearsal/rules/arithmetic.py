"""Rules of arithmetic: gradients, learning rates, clipping, accumulation, BatchNorm."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import combinations

from ddp_rehearsal.finding import Finding, of_all_ranks
from ddp_rehearsal.observations import (
    Clipped,
    Drawn,
    Evaluated,
    Forward,
    LostAttributes,
    Observed,
    Reduced,
    Scheduled,
    State,
    Strangers,
    Update,
    Wrapped,
)
from ddp_rehearsal.rules.copies import meant_as_copies
from ddp_rehearsal.rules.side_by_side import GRADIENTS, WEIGHTS, aligned, all_same, side_by_side
from notebook_ranks.shared.format import listed

__all__ = [
    "clipped_before_the_reduction",
    "clipped_while_scaled",
    "gathered_without_gradient",
    "gradients_kept",
    "learning_rates",
    "left_in_evaluation_mode",
    "lost_attributes",
    "lost_gradients",
    "missing_gradients",
    "not_held",
    "reductions_in_another_order",
    "same_random_numbers",
    "scaled_updates",
    "several_backward_passes",
    "statistics_per_rank",
    "too_many_steps_of_a_scheduler",
]

GATHERS = ("all_gather", "all_gather_into_tensor")


def learning_rates(observed: Observed) -> list[Finding]:
    """Find ranks that update copies with different learning rates."""
    for updates in aligned([one.of(Update) for one in observed]):
        same = len({(u.optimizer, frozenset(u.weights)) for u in updates}) == 1
        if same and len({u.lrs for u in updates}) > 1 and not any(u.sharded for u in updates):
            said = ", ".join(f"{', '.join(f'{lr:g}' for lr in u.lrs)} on rank {r}" for r, u in enumerate(updates))
            usual = Counter(u.lrs for u in updates).most_common(1)[0]
            ranks = tuple(r for r, u in enumerate(updates) if u.lrs != usual[0]) if usual[1] > len(updates) / 2 else ()
            words = f"the learning rates of the ranks are different: {said}."
            repair = "Use the same learning rate on all ranks, and let schedulers take the same steps."
            first, tensors = updates[0], side_by_side(updates)
            averaged = all_same(tensors.grads, GRADIENTS)
            is_sure = averaged and meant_as_copies(observed, range(len(updates)), [tensors])  # else a search
            return [
                Finding("arithmetic", words, repair, ranks=ranks, step=first.step, place=first.place, is_sure=is_sure)
            ]
    return []


def gradients_kept(observed: Observed) -> list[Finding]:
    """Find updates whose gradients were added to those of the update before."""
    for one in observed:
        updates = one.of(Update)
        later = [u for u in updates[1:] if not u.closure]
        if len({u.optimizer for u in updates}) != 1 or len(later) < 2:
            return []
        if not all(u.kept and u.backwards == 1 for u in later):
            return []
    first = observed[0].of(Update)[1]
    words = "each backward pass adds its gradients to those of the update before: they are never set to zero."
    return [
        Finding("arithmetic", words, "Call optimizer.zero_grad() before each backward pass.",
                ranks=tuple(range(len(observed))), step=first.step, place=first.place)
    ]  # fmt: skip


def clipped_before_the_reduction(observed: Observed) -> list[Finding]:
    """Find gradients that each rank has clipped by its own norm before they were averaged."""
    for calls in zip(*(one.of(Clipped) for one in observed), strict=False):
        first = calls[0]
        updates = [next((u for u in one.of(Update) if u.step == first.step), None) for one in observed]
        if len(calls) < 2 or len({c.step for c in calls}) > 1 or None in updates:
            continue
        apart = any(len({c.grads.get(name) for c in calls}) > 1 for name in first.grads)
        equal_later = all_same(side_by_side([u for u in updates if u]).grads, GRADIENTS)
        if apart and equal_later and any(c.norm > c.most * (1 + WEIGHTS) for c in calls):
            norms = ", ".join(f"{c.norm:.3g} on rank {r}" for r, c in enumerate(calls))
            words = f"each rank clips its own gradients, and they are averaged afterwards: the norms are {norms}."
            repair = "Average the gradients first, then clip: one GPU would clip the norm of the average."
            return [
                Finding("arithmetic", words, repair, ranks=tuple(range(len(calls))), step=first.step, place=first.place)
            ]
    return []


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


def statistics_per_rank(observed: Observed) -> list[Finding]:
    """Note BatchNorm in DistributedDataParallel, which normalises with the statistics of each rank's examples."""
    if len(observed) < 2:
        return []
    n = max((f.batch_norms for one in observed for f in one.of(Forward) if f.in_ddp and f.training), default=0)
    if not n:
        return []
    wrapped = next((w for one in observed for w in one.of(Wrapped) if w.batch_norms), None)
    layers = "One BatchNorm layer uses" if n == 1 else f"{n} BatchNorm layers use"
    words = f"{layers} the mean and variance of each rank's own examples."
    repair = "torch.nn.SyncBatchNorm.convert_sync_batchnorm(model) uses those of all ranks; it costs messages."
    return [Finding("arithmetic", words, repair, place=wrapped.place if wrapped else None, is_sure=False)]


def clipped_while_scaled(observed: Observed) -> list[Finding]:
    """Find gradients that are clipped while they have the factor of a GradScaler."""
    first = next((c for one in observed for c in one.of(Clipped) if c.scaled), None)
    if first is None:
        return []
    words = "gradients are clipped while they still have the factor of the GradScaler: the clipping is far too strong."
    repair = "Call scaler.unscale_(optimizer) before clipping."
    ranks = tuple(one.rank for one in observed if any(c.scaled for c in one.of(Clipped)))
    return [Finding("arithmetic", words, repair, ranks=ranks, step=first.step, place=first.place)]


def left_in_evaluation_mode(observed: Observed) -> list[Finding]:
    """Find a network that trains in evaluation mode: after an evaluation, or up to the end of the run.

    A network may also be in evaluation mode for some steps on purpose, such as the generator in the steps of a critic.
    """
    found: list[Finding] = []
    for one in observed:
        updated = {u.step for u in one.of(Update)}
        forwards = [f for f in one.of(Forward) if f.step in updated]
        first = next((f for f in forwards if f.training and (f.drops_out or f.batch_norms)), None)
        if first is None:
            continue
        modes: dict[int, bool] = {}
        for f in forwards:
            if f.model == first.model and f.step >= first.step:
                modes[f.step] = modes.get(f.step, False) or f.training
        trained = {f.loader for f in forwards if f.training}
        evaluations = {e.step for e in one.of(Evaluated) if e.loader not in trained}
        begin = _begin_of_evaluation_mode(modes, evaluations)
        if begin:
            begins = next(f for f in forwards if f.step == begin and f.model == first.model)
            words = (
                f"from step {begin} on the network trains in evaluation mode: eval() was called before it, and train() "
                "was not."
            )
            repair = "Call model.train() after each evaluation."
            found.append(Finding("arithmetic", words, repair, ranks=(one.rank,), step=begins.step, place=begins.place))
    return of_all_ranks(found)


def _begin_of_evaluation_mode(modes: Mapping[int, bool], evaluations: Collection[int]) -> int:
    """Return the first of two steps in evaluation mode that come after an evaluation, or last to the end; else 0."""
    steps = sorted(modes)
    for before, begin, following in zip(steps, steps[1:], steps[2:], strict=False):
        if modes[before] and not modes[begin] and not modes[following]:
            to_the_end = not any(modes[step] for step in steps if step > begin)
            if to_the_end or any(before <= step <= begin for step in evaluations):
                return begin
    return 0


def scaled_updates(observed: Observed) -> list[Finding]:
    """Find updates with gradients that have the factor of a GradScaler."""
    first = next((u for one in observed for u in one.of(Update) if u.scaled), None)
    if first is None:
        return []
    words = f"{first.name}.step() uses gradients that still have the factor of the GradScaler."
    repair = "Call scaler.step(optimizer) and scaler.update(), and not optimizer.step()."
    ranks = tuple(one.rank for one in observed if any(u.scaled for u in one.of(Update)))
    return [Finding("arithmetic", words, repair, ranks=ranks, step=first.step, place=first.place)]


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


def too_many_steps_of_a_scheduler(observed: Observed) -> list[Finding]:
    """Note a scheduler that takes as many steps for each update as there are ranks."""
    first, k = observed[0], len(observed)
    taken, updates = len(first.of(Scheduled)), first.num_updates
    if k < 2 or updates < 4 or len({s.name for s in first.of(Scheduled)}) != 1 or not (k * (updates - 1) <= taken):
        return []
    if taken > k * updates:
        return []
    words = (
        f"the scheduler takes {k} steps for each update, one for each rank: {taken} in {updates} updates. It must have "
        f"been made for {k} times as many steps."
    )
    repair = "Let it take one step for each update, or count the steps of all ranks where it is made."
    place = first.of(Scheduled)[0].place
    return [Finding("arithmetic", words, repair, step=1, place=place, is_sure=False)]


def gathered_without_gradient(observed: Observed) -> list[Finding]:
    """Note a gathering of tensors that have a gradient to come: it does not pass through all_gather."""
    gathered = next((r for one in observed for r in one.of(Reduced) if r.name in GATHERS and r.with_grad), None)
    if gathered is None:
        return []
    words = f"{gathered.name} passes no gradient: what it has gathered counts as constant in the backward pass."
    repair = (
        "torch.distributed.nn.functional.all_gather passes it. If the rank's own part is put in again, each rank has "
        "1/k of the gradient after the average: compare with --same."
    )
    return [Finding("arithmetic", words, repair, step=gathered.step, place=gathered.place, is_sure=False)]


def lost_attributes(observed: Observed) -> list[Finding]:
    """Find attributes that replicas of nn.DataParallel change, which has no effect."""
    for one in observed:
        if lost := one.of(LostAttributes):
            names = listed(list(lost[0].names[:3]))
            words = (
                f"the forward pass counts {names} up in replicas of nn.DataParallel, which are thrown away: it is lost."
            )
            repair = "Count outside of the forward pass, keep it in a buffer, or use DistributedDataParallel."
            return [Finding("arithmetic", words, repair, step=lost[0].step, place=lost[0].place)]
    return []


def not_held(observed: Observed) -> list[Finding]:
    """Find parameters that get gradients and are in no optimizer; sure if it holds others that no network has."""
    for one in observed:
        unheld = [(state, name) for state in one.of(State) for name in state.unheld]
        if not unheld:
            continue
        last = next((u for u in reversed(one.of(Update)) if u.optimizer >= 0), None)
        names, place = [name for _, name in unheld], last.place if last else None
        who = f"{listed(names[:3])} of {unheld[0][0].name}" + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        get, are = ("gets", "is") if len(names) == 1 else ("get", "are")
        words = f"{who} {get} gradients, and {are} in no optimizer."
        found = Finding("arithmetic", words, "", step=last.step if last else 0, place=place)
        strangers = [shape for s in one.of(Strangers) for shape in s.shapes]
        if len(strangers) == len(unheld):  # as many as were replaced
            words += (
                f" The optimizer holds {len(strangers)} tensor{'s' * (len(strangers) > 1)} that no network has: it was "
                "made before a part of the network was replaced."
            )
            return [replace(found, words=words, repair="Make the optimizer after the network is complete.")]
        repair = "Give them to an optimizer, or freeze them with requires_grad_(False) if they should not learn."
        return [replace(found, words=words, repair=repair, is_sure=False)]
    return []


def same_random_numbers(observed: Observed) -> list[Finding]:
    """Note ranks that draw the same random numbers in a step."""
    drawn = [one.of(Drawn) for one in observed]
    if len(observed) < 2 or not all(drawn) or len({of[0].states for of in drawn}) > 1:
        return []
    words = "all ranks draw the same random numbers in a step: their dropout, noise or augmentation is the same."
    repair = "If it should differ, set the seed to seed + rank after the network is made."
    return [Finding("arithmetic", words, repair, step=drawn[0][0].step, place=drawn[0][0].place, is_sure=False)]


def reductions_in_another_order(observed: Observed) -> list[Finding]:
    """Find reductions, at two lines of the script, that two ranks call in different orders."""
    calls = [[r for r in one.of(Reduced) if r.name == "all_reduce" and r.place and not r.group] for one in observed]
    for a, b in combinations(range(len(observed)), 2):
        for i, (x, y) in enumerate(zip(calls[a], calls[b], strict=False)):
            if x.place == y.place:
                continue
            later = zip(calls[a][i + 1 :], calls[b][i + 1 :], strict=False)
            if any(p.place == y.place and q.place == x.place for p, q in later):
                lines = x.place[1], y.place[1]  # type: ignore[index]
                words = (
                    f"ranks {a} and {b} call two reductions in different orders: rank {a} that of line {lines[0]} "
                    f"first, rank {b} that of line {lines[1]}. They add up numbers of different things."
                )
                repair = "Call them in the same order on all ranks; the order of a set is not the same everywhere."
                return [Finding("arithmetic", words, repair, ranks=(a, b), step=x.step, place=x.place)]
            break
    return []
