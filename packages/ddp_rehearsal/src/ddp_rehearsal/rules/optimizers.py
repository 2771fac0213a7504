"""Rules of optimizers and schedulers: what they hold, and their learning rates."""

from collections import Counter
from dataclasses import replace

from ddp_rehearsal.finding import Finding
from ddp_rehearsal.observations import Ended, Observed, Scheduled, State, UnusedTensors, Update
from ddp_rehearsal.rules.copies import meant_as_copies
from ddp_rehearsal.rules.side_by_side import GRADIENTS, aligned, all_same, side_by_side
from notebook_ranks.shared.format import listed

__all__ = ["learning_rates", "not_held", "scheduled_for_all_ranks", "too_many_steps_of_a_scheduler"]


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
            is_sure = averaged and meant_as_copies(observed, range(len(updates)), [tensors])
            repair = repair if is_sure else f"In a search over learning rates nothing is wrong. Else: {repair}"
            return [
                Finding("arithmetic", words, repair, ranks=ranks, step=first.step, place=first.place, is_sure=is_sure)
            ]
    return []


def not_held(observed: Observed) -> list[Finding]:
    """Find parameters that get gradients and are in no optimizer; sure if it holds others that no network has."""
    for one in observed:
        unheld = {name: (state.name, shape) for state in one.of(State) for name, shape in state.unheld.items()}
        unused = one.of(UnusedTensors)
        if not unheld and unused and all(s.are_all for s in unused):
            optimizers = {u.optimizer for u in one.of(Update)}
            if optimizers == {s.optimizer for s in unused}:
                return [_holds_nothing(observed)]
        if not unheld:
            continue
        last = next((u for u in reversed(one.of(Update)) if u.optimizer >= 0), None)
        names, place = list(unheld), last.place if last else None
        who = f"{listed(names[:3])} of {unheld[names[0]][0]}" + (
            f" and {len(names) - 3} more" if len(names) > 3 else ""
        )
        get, are = ("gets", "is") if len(names) == 1 else ("get", "are")
        words = f"{who} {get} gradients, and {are} in no optimizer."
        found = Finding("arithmetic", words, "", step=last.step if last else 0, place=place)
        shapes = [shape for s in unused for shape in s.shapes]
        if sorted(shapes) == sorted(shape for _, shape in unheld.values()):  # those that were replaced
            words += (
                f" The optimizer holds {len(shapes)} tensor{'s' * (len(shapes) > 1)} that no network has: it was "
                "made before a part of the network was replaced."
            )
            return [replace(found, words=words, repair="Make the optimizer after the network is complete.")]
        repair = "Give them to an optimizer, or freeze them with requires_grad_(False) if they should not learn."
        return [replace(found, words=words, repair=repair, is_sure=False)]
    return []


def _holds_nothing(observed: Observed) -> Finding:
    """Return the finding that an optimizer has none of the parameters of the networks that were called."""
    updates = [u for one in observed for u in one.of(Update)]
    words = (
        f"none of the tensors in {updates[0].name} ever got a gradient, and none is in a network that was called: its "
        "updates change nothing. It was made before the network was wrapped or sharded, or for another one."
    )
    repair = "Make the optimizer last, with the parameters of the network that is called."
    ranks = tuple(range(len(observed)))
    return Finding("arithmetic", words, repair, ranks=ranks, step=updates[0].step, place=updates[0].place)


def too_many_steps_of_a_scheduler(observed: Observed) -> list[Finding]:
    """Note a scheduler that takes as many steps for each update as there are ranks."""
    first, k = observed[0], len(observed)
    taken, updates = len(first.of(Scheduled)), len(first.of(Update))  # of all optimizers: one may follow another
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


def scheduled_for_all_ranks(observed: Observed) -> list[Finding]:
    """Note a scheduler that was made for the steps of all ranks together, when the script has ended."""
    k, first = len(observed), observed[0]
    totals = {(s.name, s.total) for s in first.of(Scheduled)}
    if k < 2 or len(totals) != 1 or not all(end.how == "returned" for one in observed for end in one.of(Ended)):
        return []
    (name, total), taken = totals.pop(), len(first.of(Scheduled))
    if taken < 2 or total != k * taken or not first.of(Ended):
        return []
    words = f"{name} was made for {total} steps, {k} times as many as the {taken} that each rank has taken in the end."
    repair = "Count the minibatches of one rank, len(loader), where it is made: the ranks divide the examples."
    place = first.of(Scheduled)[0].place
    return [Finding("arithmetic", words, repair, step=first.num_updates, place=place, is_sure=False)]
