"""The tensors of an update on several ranks, side by side: which are equal, which differ by more than rounding."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ddp_rehearsal.fingerprint import NOT_READ, Print, unpacked
from ddp_rehearsal.observations import Observed, Place, Update
from notebook_ranks.shared.format import listed

__all__ = [
    "GRADIENTS",
    "WEIGHTS",
    "Tensors",
    "aligned",
    "all_same",
    "comparable",
    "known",
    "names_apart",
    "not_constant",
    "ranks_words",
    "shown_alike",
    "side_by_side",
    "weights_apart",
]

ENOUGH = 4  # values that are not 0: so many are not close to each other by chance
VERY_CLOSE = 1e-6  # as WEIGHTS, for fewer values
WEIGHTS, GRADIENTS = 1e-4, 1e-3  # of the largest value of a tensor: what sums in a different order explain


@dataclass(frozen=True, kw_only=True)
class Tensors:
    """One update on several ranks: {name: [its print on each rank]}."""

    step: int
    place: Place | None
    grads: Mapping[str, Sequence[Print | None]]
    weights: Mapping[str, Sequence[Print | None]]
    before: Mapping[str, Sequence[Print | None]]
    start: Mapping[str, Sequence[Print | None]]


def comparable(observed: Observed) -> list[tuple[tuple[int, ...], list[Tensors]]]:
    """Return [(ranks, updates)] of the ranks that may hold copies, for each optimizer."""
    by_optimizer: dict[tuple[int, tuple[int, ...]], dict[int, list[Update]]] = {}
    for one in observed:
        for update in one.of(Update):
            group = update.group or tuple(range(len(observed)))
            by_optimizer.setdefault((update.optimizer, group), {}).setdefault(one.rank, []).append(update)
    found = []
    for (_, group), of in by_optimizer.items():
        if len(group) < 2 or set(of) != set(group) or any(u.sharded for us in of.values() for u in us):
            continue
        steps = aligned(list(of.values()))
        if all(len({frozenset(u.weights) for u in us}) == 1 for us in steps):
            found.append((tuple(sorted(group)), [side_by_side(us) for us in steps]))
    return found


def aligned(of_ranks: Sequence[Sequence[Update]]) -> list[tuple[Update, ...]]:
    """Return the updates of one optimizer that belong together: those after as many backward passes on all ranks.

    A rank may leave updates out, and in a `Join` one rank may have fewer minibatches: then numbers of updates do not
    tell which belong together. Passes that ranks count apart (each accumulates as it likes, or one of them makes a pass
    for something else) do not tell, either: then updates belong together that are alike one after the other.
    """
    in_turn = list(zip(*of_ranks, strict=False))
    as_many = len({len(of) for of in of_ranks}) == 1
    if as_many and not any(weights_apart(side_by_side(us)) for us in in_turn):
        return in_turn
    keyed = [{(u.joins, u.passes): u for u in updates} for updates in of_ranks]
    shared = [key for key in keyed[0] if all(key in of for of in keyed)]
    fewest = min(map(len, of_ranks))
    if any(len(of) < len(updates) for of, updates in zip(keyed, of_ranks, strict=True)) or 2 * len(shared) < fewest:
        return in_turn
    return [tuple(of[key] for of in keyed) for key in shared]


def side_by_side(updates: Sequence[Update]) -> Tensors:
    """Return one update of several ranks as one thing."""

    def of(all_prints: Iterable[Mapping[str, Print | None]]) -> dict[str, list[Print | None]]:
        prints = list(all_prints)
        return {name: [p.get(name) for p in prints] for name in prints[0]}

    grads = {} if any(u.closure for u in updates) else of(u.grads for u in updates)
    first = updates[0]
    return Tensors(
        step=first.step,
        place=first.place,
        grads=grads,
        weights=of(u.weights for u in updates),
        before=of(u.before for u in updates),
        start=of(u.start for u in updates),
    )


def weights_apart(update: Tensors) -> list[str]:
    """Return the names of weights that are not equal after an update, and not by rounding."""
    unequal = [name for name, prints in update.weights.items() if len({p and p[0] for p in prints}) > 1]
    apart = names_apart(update.grads, GRADIENTS)  # a small learning rate may leave weights close to each other
    return [name for name in unequal if name in apart or names_apart({name: update.weights[name]})]


def names_apart(tensors: Mapping[str, Sequence[Print | None]], rtol: float = WEIGHTS) -> list[str]:
    """Return the names of the tensors that differ between ranks by more than rounding."""
    return [name for name, prints in tensors.items() if any(_differ(prints[0], p, rtol) for p in prints[1:])]


def known(tensors: Mapping[str, Sequence[Print | None]]) -> bool:
    """Return whether the prints tell for each tensor if it is equal on all ranks, or differs by rounding.

    They do not where digests of all values differ and the values that were read are the same.
    """
    for prints in tensors.values():
        read = [p for p in prints if p is not None]
        if len({p[0] for p in read}) > 1 and len({p[1] for p in read}) == 1:
            return False
    return True


def shown_alike(prints: Sequence[Print | None], rtol: float) -> bool:
    """Return whether something shows that tensors are equal, or different by rounding only; zeros show nothing.

    A few values may be close by chance: then they must be closer.
    """
    read = [p for p in prints if p is not None and p[0] != NOT_READ]
    values = [unpacked(p[1]) for p in read]
    if len(read) < len(prints) or any(of and not any(of) for of in values):
        return False
    if len({p[0] for p in read}) == 1:
        return True
    rtol = rtol if all(_num_not_zero(of) >= ENOUGH for of in values) else VERY_CLOSE
    return all(values) and not any(_differ(read[0], p, rtol) for p in read)


def all_same(tensors: Mapping[str, Sequence[Print | None]], rtol: float) -> bool:
    """Return whether no tensor differs between ranks by more than rounding, and enough values show it."""
    values = [unpacked(p[1]) for prints in tensors.values() for p in prints[:1] if p]
    return sum(map(_num_not_zero, values)) >= ENOUGH and not names_apart(tensors, rtol)


def _num_not_zero(values: Iterable[float]) -> int:
    return sum(x != 0 for x in values)


def _differ(one: Print | None, other: Print | None, rtol: float) -> bool:
    if one is None or other is None:
        return one is not other
    if one[0] == other[0]:
        return False
    values, others = unpacked(one[1]), unpacked(other[1])
    size = max((abs(x) for x in (*values, *others) if math.isfinite(x)), default=0.0)
    return any(
        not (x == y or abs(x - y) <= rtol * size or (math.isnan(x) and math.isnan(y)))
        for x, y in zip(values, others, strict=False)
    )


def not_constant(tensors: Mapping[str, Sequence[Print | None]]) -> list[str]:
    """Return the names of tensors that have two different values at least."""
    return [name for name, prints in tensors.items() if any(p and len(set(unpacked(p[1]))) > 1 for p in prints)]


def ranks_words(ranks: Iterable[int]) -> str:
    """Return "rank 1", "ranks 0 and 1" or "ranks 0, 1 and 2"."""
    ranks = sorted(ranks)
    return f"rank{'s' * (len(ranks) > 1)} {listed(ranks)}"
