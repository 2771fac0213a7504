"""Rules of collectives that the script calls itself."""

from itertools import combinations

from ddp_rehearsal.finding import Finding
from ddp_rehearsal.observations import LossReduced, NotWaited, Observed, Reduced, Update

__all__ = [
    "gathered_without_gradient",
    "loss_reduced_before_backward",
    "not_waited_for",
    "reductions_in_another_order",
]

GATHERS = ("all_gather", "all_gather_into_tensor")
CLOSE = 1e-6


def reductions_in_another_order(observed: Observed) -> list[Finding]:
    """Find reductions, at two lines of the script, that two ranks call in different orders within a step."""
    calls = [[r for r in one.of(Reduced) if r.name == "all_reduce" and r.place and not r.group] for one in observed]
    for a, b in combinations(range(len(observed)), 2):
        for i, (x, y) in enumerate(zip(calls[a], calls[b], strict=False)):
            if x.place == y.place:
                continue
            later = zip(calls[a][i + 1 :], calls[b][i + 1 :], strict=False)
            if any(p.place == y.place and q.place == x.place and p.step == x.step for p, q in later):
                lines = x.place[1], y.place[1]  # type: ignore[index]
                words = (
                    f"ranks {a} and {b} call two reductions in different orders: rank {a} that of line {lines[0]} "
                    f"first, rank {b} that of line {lines[1]}. They add up numbers of different things."
                )
                repair = "Call them in the same order on all ranks; the order of a set is not the same everywhere."
                return [Finding("arithmetic", words, repair, ranks=(a, b), step=x.step, place=x.place)]
            break
    return []


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


def not_waited_for(observed: Observed) -> list[Finding]:
    """Find updates with gradients of a collective that is not known to have ended."""
    first = next((noted for one in observed for noted in one.of(NotWaited)), None)
    if first is None:
        return []
    words = (
        f"the update of step {first.step} uses gradients of {first.name}(async_op=True), and nothing has waited for "
        "it: it may not have ended."
    )
    repair = "Keep what the call returns, and call its wait() before optimizer.step()."
    ranks = tuple(one.rank for one in observed if one.of(NotWaited))
    return [Finding("arithmetic", words, repair, ranks=ranks, step=first.step, place=first.place)]


def loss_reduced_before_backward(observed: Observed) -> list[Finding]:
    """Find a loss that is divided by the number of ranks after `all_reduce`, while DDP takes the mean once more."""
    k = len(observed)
    updates = [u for one in observed for u in one.of(Update)]
    if k < 2 or not updates or any(len(u.group) != k or u.backwards != 1 or u.hooked for u in updates):
        return []
    for one in observed:
        for found in one.of(LossReduced):
            if abs(found.factor * k - 1) < CLOSE:
                words = (
                    f"the loss is divided by {k} after all_reduce, which passes no gradient: the backward pass divides "
                    f"the gradient of the rank's own loss by {k}, and DistributedDataParallel takes the mean besides. "
                    f"It is {k} times too small."
                )
                repair = "Call backward() on the rank's own loss, and reduce loss.detach() for the log."
                ranks = tuple(range(k))
                return [Finding("arithmetic", words, repair, ranks=ranks, step=found.step, place=found.place)]
    return []
