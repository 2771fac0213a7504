"""Rules: from what was observed on all ranks to findings. Pure functions.

A finding is sure. What may be intended, such as tensors that differ because ranks hold different parts of a network,
is a note.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from ddp_rehearsal.finding import Finding
from ddp_rehearsal.fingerprint import NOT_READ, Print, unpacked
from ddp_rehearsal.observations import (
    Clipped,
    DataSet,
    Ended,
    Failed,
    Forward,
    Joined,
    Loaded,
    LoaderBegins,
    Observed,
    Place,
    RankObservations,
    Saved,
    Uneven,
    Update,
    Wrapped,
)
from notebook_ranks.shared.format import listed

__all__ = [
    "RULES",
    "UNFINISHED",
    "clipped_before_the_reduction",
    "copies",
    "data_sets",
    "equal_minibatches",
    "forgotten_set_epoch",
    "gradients_kept",
    "learning_rates",
    "loaded_to_gpu_0",
    "minibatch_rows",
    "missing_gradients",
    "module_in_names",
    "num_steps",
    "one_file",
    "one_gpu",
    "replicas",
    "several_backward_passes",
    "shared_examples",
    "statistics_per_rank",
    "train_on_cpu",
]

ENOUGH = 4  # values that are not 0: so many are not close to each other by chance
VERY_CLOSE = 1e-6  # as WEIGHTS, for fewer values
WEIGHTS, GRADIENTS = 1e-4, 1e-3  # of the largest value of a tensor: what sums in a different order explain
FEWEST_SHARED = 8  # rows; equal examples of a data set would show within a rank as often as between two
REDUCE = (
    "Wrap the network in DistributedDataParallel and call the wrapped one, or average each gradient over the ranks "
    "before optimizer.step()."
)
UNFINISHED = "Expected to have finished reduction in the prior iteration"  # an error of DistributedDataParallel
OR_ON_PURPOSE = (
    "Either their gradients should be averaged, or each rank trains a network of its own on purpose: a fold of a cross-"
    "validation, a member of an ensemble, a setting of a search."
)
IF_ONE = f"If there should be one network: {REDUCE} Otherwise nothing is wrong."


# copies


@dataclass(frozen=True, kw_only=True)
class _Tensors:
    """One update on several ranks: {name: [its print on each rank]}."""

    step: int
    place: Place | None
    grads: Mapping[str, Sequence[Print | None]]
    weights: Mapping[str, Sequence[Print | None]]
    before: Mapping[str, Sequence[Print | None]]
    start: Mapping[str, Sequence[Print | None]]


def copies(observed: Observed) -> list[Finding]:
    """Find weights that are not equal on all ranks, and say why: the first step and tensor that shows it."""
    found: list[Finding] = []
    for ranks, updates in _comparable(observed):
        found += _not_copies(observed, ranks, updates)
    return found


def replicas(observed: Observed) -> bool:
    """Return whether the weights were compared, and equal on all ranks after each update, rounding aside."""
    compared = _comparable(observed)
    return bool(compared) and not any(_weights_apart(u) for _, updates in compared for u in updates)


def _not_copies(observed: Observed, ranks: tuple[int, ...], updates: Sequence[_Tensors]) -> list[Finding]:
    first = next((u for u in updates if _weights_apart(u)), None)
    if first is None:
        return []
    begin, name = updates[0], _weights_apart(first)[0]
    found = Finding("copies", "", REDUCE, ranks=ranks, step=first.step, place=first.place)
    if _averaged_later(first, updates):
        words = f"the weights ({name}) differ after step {first.step}, and are equal again later: are they averaged?"
        return [replace(found, words=words, is_sure=False)]
    if started_apart := _apart(begin.before):
        if _all_same(begin.grads, GRADIENTS):
            words = (
                f"the ranks begin with different weights ({started_apart[0]}). Their gradients are averaged, so that "
                "the copies stay apart."
            )
            repair = (
                "Make the network with the same torch.manual_seed on all ranks, or broadcast its weights first, as "
                "DistributedDataParallel does."
            )
            return [replace(found, words=words, repair=repair)]
        if set(started_apart) < set(_not_constant(begin.before)) or _equal_rows(observed, ranks):
            words = f"{started_apart[0]} is not the same tensor on all ranks. Do the ranks hold parts of one network?"
            return [replace(found, words=words, is_sure=False)]
        words = f"each rank trains a network of its own: their weights ({name}) differ from the beginning."
        return [_or_on_purpose(replace(found, words=words), _divide_examples(observed, ranks))]
    meant = _meant_as_copies(observed, ranks, updates)
    if not first.grads:
        words = f"the weights ({name}) are no longer the same on all ranks after step {first.step}."
        return [_or_on_purpose(replace(found, words=words), meant)]
    apart = _apart(first.grads, GRADIENTS)
    if name in apart and any(UNFINISHED in raised.report["message"] for one in observed for raised in one.of(Failed)):
        return []  # the end of the run says so
    if name in apart:
        return [_not_reduced(observed, first, replace(found, words=_before_the_update(apart, first)), apart, meant)]
    if len({u.lrs for rank in ranks for u in observed[rank].of(Update) if u.step == first.step}) > 1:
        return []  # `learning_rates` says so
    words = (
        f"the gradient of {name} is the same on all ranks in step {first.step}, and its weights are not afterwards: "
        "something else changes them, such as the state of the optimizer."
    )
    repair = "Let all ranks load the same checkpoint, and change weights on all ranks alike."
    return [_or_on_purpose(replace(found, words=words, repair=repair), meant)]


def _or_on_purpose(found: Finding, is_sure: bool) -> Finding:
    """Return a finding of weights that are no copies; if they may be none on purpose, as a note that says both."""
    return found if is_sure else replace(found, words=f"{found.words} {OR_ON_PURPOSE}", repair=IF_ONE, is_sure=False)


def _averaged_later(first: _Tensors, updates: Sequence[_Tensors]) -> bool:
    """Return whether weights that differ after an update are equal after, or before, a later one."""
    apart = _weights_apart(first)
    later = [u for u in updates if u.step > first.step]
    return any(
        not _weights_apart(u) or any(n in apart and _shown_alike(prints, WEIGHTS) for n, prints in u.start.items())
        for u in later
    )


def _meant_as_copies(observed: Observed, ranks: Sequence[int], updates: Sequence[_Tensors]) -> bool:
    """Return whether something shows that the ranks should hold copies.

    Equal weights at the start do not: networks that are trained apart, one for each fold or learning rate, often begin
    with the same seed. What does: DistributedDataParallel; a DistributedSampler; weights that were broadcast; gradients
    that are equal although the minibatches are not, so that something averages them.
    """
    if _divide_examples(observed, ranks):
        return True
    if any(u.group or u.broadcast for rank in ranks for u in observed[rank].of(Update)):
        return True
    rows = [minibatch_rows(observed[rank]) for rank in ranks]
    return any(
        any(of.get(u.step) != rows[0].get(u.step) for of in rows) and _all_same(u.grads, WEIGHTS) for u in updates
    )


def _divide_examples(observed: Observed, ranks: Iterable[int]) -> bool:
    """Return whether a DistributedSampler divides the examples of training among ranks."""
    return any(
        begins.sampler == "DistributedSampler" and any(f.loader == begins.loader for f in observed[rank].of(Forward))
        for rank in ranks
        for begins in observed[rank].of(LoaderBegins)
    )


def _before_the_update(apart: Sequence[str], first: _Tensors) -> str:
    return f"the gradients ({apart[0]}) were not the same on all ranks before the update of step {first.step}"


def _not_reduced(
    observed: Observed, first: _Tensors, found: Finding, apart: Sequence[str], meant_as_copies: bool
) -> Finding:
    """Return the finding that gradients, or some of them, were not the same on all ranks before an update."""
    said, step, ones = found.words, found.step, [observed[rank] for rank in found.ranks]
    forwards = [f for one in ones for f in one.of(Forward) if f.step == step]
    in_ddp = any(u.group for one in ones for u in one.of(Update))
    past = next((f for f in forwards if f.around_ddp), None)
    if past is not None and not any(f.in_ddp for f in forwards):
        words = f"{said}: the forward pass calls the network inside of DistributedDataParallel, which averages nothing."
        repair = "Call the wrapped network: model(X) and not model.module(X)."
        return replace(found, words=words, repair=repair, place=past.place)
    lasts = [f for one in ones for f in [g for g in one.of(Forward) if g.step == step][-1:]]
    if in_ddp and any(f.in_ddp and not f.syncs for f in lasts):
        words = f"{said}: the last forward pass of the step was in no_sync(), so that nothing was averaged."
        return replace(found, words=words, repair="Leave no_sync() before the last microbatch of each update.")
    if in_ddp and any(u.hooked for one in ones for u in one.of(Update)):
        words = f"{said}: the communication hook of DistributedDataParallel does not average them in each step."
        return replace(found, words=words, repair="Look at what the hook does.", is_sure=False)
    if in_ddp:
        words = f"{said}, although the network is in DistributedDataParallel."
        return replace(found, words=words, repair="Change gradients on all ranks alike, or on none.")
    others = [name for name, prints in first.grads.items() if any(prints) and _shown_alike(prints, GRADIENTS)]
    if others:
        same = f"{len(others)} others were" if len(others) > 1 else f"that of {others[0]} was"
        words = f"{said}, and {same}. Do the ranks hold different parts?"
        return replace(found, words=words, is_sure=False)
    if not any(one.of(Joined) for one in ones):
        words = f"{said}: the script never joins a process group, and trains {len(ones)} networks."
        repair = f"Call torch.distributed.init_process_group(). {REDUCE}"
        return _or_on_purpose(replace(found, words=words, repair=repair), meant_as_copies)
    return _or_on_purpose(replace(found, words=f"{said}: nothing averages them."), meant_as_copies)


def _comparable(observed: Observed) -> list[tuple[tuple[int, ...], list[_Tensors]]]:
    """Return [(ranks, updates)] of the ranks that should hold copies, for each optimizer."""
    by_optimizer: dict[tuple[int, tuple[int, ...]], dict[int, list[Update]]] = {}
    for one in observed:
        for update in one.of(Update):
            group = update.group or tuple(range(len(observed)))
            by_optimizer.setdefault((update.optimizer, group), {}).setdefault(one.rank, []).append(update)
    found = []
    for (_, group), of in by_optimizer.items():
        if len(group) < 2 or set(of) != set(group) or any(u.sharded for us in of.values() for u in us):
            continue
        steps = list(zip(*of.values(), strict=False))
        if all(len({frozenset(u.weights) for u in us}) == 1 for us in steps):
            found.append((tuple(sorted(group)), [_side_by_side(us) for us in steps]))
    return found


def _side_by_side(updates: Sequence[Update]) -> _Tensors:
    def of(all_prints: Iterable[Mapping[str, Print | None]]) -> dict[str, list[Print | None]]:
        prints = list(all_prints)
        return {name: [p.get(name) for p in prints] for name in prints[0]}

    grads = {} if any(u.closure for u in updates) else of(u.grads for u in updates)
    first = updates[0]
    return _Tensors(
        step=first.step,
        place=first.place,
        grads=grads,
        weights=of(u.weights for u in updates),
        before=of(u.before for u in updates),
        start=of(u.start for u in updates),
    )


def _weights_apart(update: _Tensors) -> list[str]:
    """Return the names of weights that are not equal after an update, and not by rounding."""
    unequal = [name for name, prints in update.weights.items() if len({p and p[0] for p in prints}) > 1]
    apart = _apart(update.grads, GRADIENTS)  # a small learning rate may leave weights close to each other
    return [name for name in unequal if name in apart or _apart({name: update.weights[name]})]


def _apart(tensors: Mapping[str, Sequence[Print | None]], rtol: float = WEIGHTS) -> list[str]:
    """Return the names of the tensors that differ between ranks by more than rounding."""
    return [name for name, prints in tensors.items() if any(_differ(prints[0], p, rtol) for p in prints[1:])]


def _shown_alike(prints: Sequence[Print | None], rtol: float) -> bool:
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


def _all_same(tensors: Mapping[str, Sequence[Print | None]], rtol: float) -> bool:
    """Return whether no tensor differs between ranks by more than rounding, and enough values show it."""
    values = [unpacked(p[1]) for prints in tensors.values() for p in prints[:1] if p]
    return sum(map(_num_not_zero, values)) >= ENOUGH and not _apart(tensors, rtol)


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


def _not_constant(tensors: Mapping[str, Sequence[Print | None]]) -> list[str]:
    return [name for name, prints in tensors.items() if any(p and len(set(unpacked(p[1]))) > 1 for p in prints)]


# examples


def minibatch_rows(one: RankObservations) -> dict[int, list[str]]:
    """Return {step: the rows of its minibatch} of the network that was called first."""
    rows: dict[int, list[str]] = {}
    for forward in _forwards(one):
        rows.setdefault(forward.step, []).extend(forward.rows)
    return rows


def _forwards(one: RankObservations) -> list[Forward]:
    forwards = one.of(Forward)
    return [f for f in forwards if f.rows and f.model == forwards[0].model]


def _equal_rows(observed: Observed, ranks: Iterable[int]) -> bool:
    """Return whether two of the ranks had equal minibatches in all steps that both have made."""
    return any(_same_steps(observed[a], observed[b]) for a, b in combinations(ranks, 2))


def _same_steps(one: RankObservations, other: RankObservations) -> list[int]:
    """Return the steps of two ranks if their minibatches are equal in all of them, else []."""
    rows, others = minibatch_rows(one), minibatch_rows(other)
    steps = sorted(set(rows) & set(others))
    return steps if all(rows[s] == others[s] for s in steps) else []


def equal_minibatches(observed: Observed) -> list[Finding]:
    """Find ranks that train copies on the same minibatch in each step.

    It is sure if what comes out is the same too, or not because of a dropout: otherwise each rank may compute a part.
    """
    same = [(a, b) for a, b in combinations(observed, 2) if _same_steps(a, b)]
    if not same:
        return []
    surely = [(a, b) for a, b in same if _equal_weights(a, b) and _equal_outputs(a, b)]
    ranks = tuple(sorted({one.rank for pair in surely or same for one in pair}))
    one = observed[ranks[0]]
    rows, first = minibatch_rows(one), _forwards(one)[0]
    loader = _loader(one, first.loader)
    place = loader.place if loader else first.place
    found = Finding("examples", "", "", ranks=ranks, step=first.step, place=place, is_sure=bool(surely))
    made_up = len(rows) > 1 and len(set(map(tuple, rows.values()))) == 1
    if made_up or len({row for of in rows.values() for row in of}) < 2 or len(rows) < 2:
        words = f"{_ranks_words(ranks)} had the same input, which is the same in all steps seen. Is it made up?"
        return [replace(found, words=words, repair="Give each rank examples of its own.", is_sure=False)]
    words = (
        f"{_ranks_words(ranks)} had the same minibatch in each step, row by row: {len(rows)} of {len(rows)} steps are "
        "equal."
    )
    repair = "Give the DataLoader sampler=DistributedSampler(dataset) and no shuffle=True."
    if loader is None:
        repair = "Let each rank take a part of its own: examples[rank::world_size], or a generator with seed + rank."
    return [replace(found, words=words, repair=repair)]


def _equal_weights(one: RankObservations, other: RankObservations) -> bool:
    """Return whether two ranks hold copies: equal weights after each update that both have made."""
    pairs = list(zip(one.of(Update), other.of(Update), strict=False))
    if not pairs or any(u.sharded or set(u.weights) != set(v.weights) for u, v in pairs):
        return False
    return not any(_weights_apart(_side_by_side(pair)) for pair in pairs)


def _equal_outputs(one: RankObservations, other: RankObservations) -> bool:
    pairs = list(zip(_forwards(one), _forwards(other), strict=False))
    if all(a.output == b.output != "" for a, b in pairs):
        return True
    return all(a.drops_out and a.in_ddp and a.loader >= 0 for a, _ in pairs)


def shared_examples(observed: Observed) -> list[Finding]:
    """Find ranks that draw minibatches for copies from the whole data set, each in an order of its own."""
    if any(not finding.is_sure for finding in copies(observed)):
        return []  # networks of their own, such as those of a cross-validation, may have examples in common
    seen: dict[int, list[str]] = {}
    loaders: dict[int, LoaderBegins] = {}
    for one in observed:
        of = [f for f in _forwards(one) if f.loader >= 0 and f.epoch == 0]
        loader = _loader(one, of[0].loader) if of else None
        if loader is None or loader.sampler not in ("RandomSampler", "SequentialSampler") or loader.num_examples < 0:
            return []
        seen[one.rank] = [row for f in of if f.loader == of[0].loader for row in f.rows]
        loaders[one.rank] = loader
        if len(set(seen[one.rank])) < len(seen[one.rank]):  # examples of the data set may be equal
            return []
    if len({loader.num_examples for loader in loaders.values()}) > 1:
        return []
    for a, b in combinations(seen, 2):
        if seen[a] == seen[b] or _same_steps(observed[a], observed[b]):
            continue  # `equal_minibatches` says so
        shared = len(set(seen[a]) & set(seen[b]))
        if shared >= FEWEST_SHARED:
            words = (
                f"ranks {a} and {b} trained on the same examples in one epoch: {shared} of the {len(seen[a])} of rank "
                f"{a}. Each rank draws from all {loaders[a].num_examples}."
            )
            repair = "Give the DataLoader sampler=DistributedSampler(dataset) and no shuffle=True."
            return [Finding("examples", words, repair, ranks=tuple(seen), step=1, place=loaders[a].place)]
    return []


def forgotten_set_epoch(observed: Observed) -> list[Finding]:
    """Find a DistributedSampler that gives the same order in two epochs of training."""
    found: dict[int, tuple[LoaderBegins, int]] = {}
    for one in observed:
        began = {(b.loader, b.epoch): b for b in one.of(LoaderBegins) if b.sampler == "DistributedSampler"}
        trained = [key for key in dict.fromkeys((f.loader, f.epoch) for f in one.of(Forward)) if key in began]
        for (loader, epoch), (other, following) in combinations(trained, 2):
            first, second = began[loader, epoch], began[other, following]
            if loader == other and first.shuffles and first.sampler_epoch == second.sampler_epoch:
                found.setdefault(one.rank, (second, following))
    if not found:
        return []
    second, epoch = next(iter(found.values()))
    words = f"epoch {epoch + 1} has the same order of examples as an epoch before: the sampler was not told its number."
    repair = "Call sampler.set_epoch(epoch) at the beginning of each epoch."
    return [Finding("examples", words, repair, ranks=tuple(found), step=second.step, place=second.place)]


def data_sets(observed: Observed) -> list[Finding]:
    """Find ranks whose data sets differ, although a DistributedSampler gives each rank a part of one data set."""
    by_loader: dict[int, dict[int, DataSet]] = {}
    for one in observed:
        for data in one.of(DataSet):
            by_loader.setdefault(data.loader, {})[one.rank] = data
    for loader, of in by_loader.items():
        trained = all(any(f.loader == loader for f in observed[rank].of(Forward)) for rank in of)
        if trained and len(of) == len(observed) and len({data.items for data in of.values()}) > 1:
            begins = _loader(observed[0], loader)
            words = (
                "the ranks have different data sets: the first or the last example is not the same on all. The sampler "
                "gives each rank a part of the numbers, so that some examples are never seen."
            )
            repair = (
                "Make the same data set on all ranks (a random one with the same seed), or leave the sampler out if "
                "each rank has a part of its own."
            )
            return [Finding("examples", words, repair, ranks=tuple(of), step=1, place=begins.place if begins else None)]
    return []


def num_steps(observed: Observed) -> list[Finding]:
    """Find ranks that have made fewer updates of their copies than others, and have ended by themselves."""
    ends = {one.rank: end.how for one in observed for end in one.of(Ended)}
    if len(ends) < len(observed) or any(how not in ("returned", "enough") for how in ends.values()):
        return []
    shared = set.intersection(*({u.optimizer for u in one.of(Update)} for one in observed))
    updates = [[u for u in one.of(Update) if u.optimizer in shared] for one in observed]
    most = max(map(len, updates))
    fewer = tuple(rank for rank, of in enumerate(updates) if len(of) < most)
    if not fewer or any(one.of(Uneven) for one in observed):
        return []
    said = ", ".join(f"{len(of)} on rank {rank}" for rank, of in enumerate(updates))
    last = updates[fewer[0]][-1]
    repair = "Give all ranks as many minibatches: DistributedSampler does, and so does drop_last=True of equal parts."
    words = f"the ranks made different numbers of updates: {said}."
    return [
        Finding("examples", words, repair, ranks=fewer, step=last.step, place=last.place, is_sure=replicas(observed))
    ]


def _loader(one: RankObservations, loader: int) -> LoaderBegins | None:
    return next((begins for begins in one.of(LoaderBegins) if begins.loader == loader), None)


# arithmetic


def learning_rates(observed: Observed) -> list[Finding]:
    """Find ranks that update copies with different learning rates."""
    for updates in zip(*(one.of(Update) for one in observed), strict=False):
        same = len({(u.optimizer, frozenset(u.weights)) for u in updates}) == 1
        if same and len({u.lrs for u in updates}) > 1 and not any(u.sharded for u in updates):
            said = ", ".join(f"{', '.join(f'{lr:g}' for lr in u.lrs)} on rank {r}" for r, u in enumerate(updates))
            usual = Counter(u.lrs for u in updates).most_common(1)[0]
            ranks = tuple(r for r, u in enumerate(updates) if u.lrs != usual[0]) if usual[1] > len(updates) / 2 else ()
            words = f"the learning rates of the ranks are different: {said}."
            repair = "Use the same learning rate on all ranks, and let schedulers take the same steps."
            first, side_by_side = updates[0], _side_by_side(updates)
            averaged = _all_same(side_by_side.grads, GRADIENTS)
            is_sure = averaged and _meant_as_copies(observed, range(len(updates)), [side_by_side])  # else a search
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
        equal_later = _all_same(_side_by_side([u for u in updates if u]).grads, GRADIENTS)
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
    wrapped = [w for one in observed for w in one.of(Wrapped) if w.batch_norms and len(w.ranks) > 1]
    if not wrapped:
        return []
    n = wrapped[0].batch_norms
    layers = "One BatchNorm layer uses" if n == 1 else f"{n} BatchNorm layers use"
    words = f"{layers} the mean and variance of each rank's own examples."
    repair = "torch.nn.SyncBatchNorm.convert_sync_batchnorm(model) uses those of all ranks; it costs messages."
    return [Finding("arithmetic", words, repair, place=wrapped[0].place, is_sure=False)]


# devices and files


def one_gpu(observed: Observed) -> list[Finding]:
    """Find ranks whose parameters are on the same GPU."""
    on: dict[tuple[str, str], list[int]] = {}
    for one in observed:
        for update in one.of(Update)[:1]:
            for device in update.devices:
                if device.startswith("cuda"):
                    on.setdefault((update.visible, device), []).append(one.rank)
    for (_, device), ranks in on.items():
        if len(ranks) > 1:
            first = observed[ranks[0]]
            place = next((one.place for one in [*first.of(Wrapped), *first.of(Update)]), None)
            words = f"{_ranks_words(ranks)} all have their parameters on {device}, and the other GPUs are idle."
            repair = (
                'local_rank = int(os.environ["LOCAL_RANK"]), then torch.cuda.set_device(local_rank) and '
                ".to(local_rank) for the network and each minibatch."
            )
            return [Finding("devices", words, repair, ranks=tuple(ranks), step=1, place=place)]
    return []


def train_on_cpu(observed: Observed) -> list[Finding]:
    """Note a training on the CPU."""
    updates = [u for one in observed for u in one.of(Update)]
    if not updates or any(u.devices != ("cpu",) for u in updates):
        return []
    words, repair = "the network is on the CPU on all ranks.", "Move it, and each minibatch, to cuda:LOCAL_RANK."
    return [Finding("devices", words, repair, step=1, place=updates[0].place, is_sure=False)]


def one_file(observed: Observed) -> list[Finding]:
    """Find a file that several ranks write."""
    writers: dict[str, dict[int, Saved]] = {}
    for one in observed:
        for saved in one.of(Saved):
            writers.setdefault(saved.path, {}).setdefault(one.rank, saved)
    found = []
    for path, of in writers.items():
        if len(of) > 1:
            first = next(iter(of.values()))
            words = f"{_ranks_words(of)} write the same file, {path.rpartition('/')[2]}: it may hold parts of several."
            repair = "Let rank 0 alone save it, and let the others wait in torch.distributed.barrier()."
            found.append(Finding("files", words, repair, ranks=tuple(of), step=first.step, place=first.place))
    return found[:1]


def loaded_to_gpu_0(observed: Observed) -> list[Finding]:
    """Find a checkpoint that ranks load to the GPU that saved it, rank 0's."""
    on_gpu = {saved.path for one in observed for saved in one.of(Saved) if saved.on_gpu}
    loads = {
        one.rank: load
        for one in observed[1:]
        for load in one.of(Loaded)
        if not load.mapped and (load.path in on_gpu or "cuda:0" in load.devices)
    }
    if not loads:
        return []
    first = next(iter(loads.values()))
    file = first.path.rpartition("/")[2]
    words = f"{_ranks_words(loads)} load{'s' * (len(loads) == 1)} {file} to the GPU of rank 0, from which it was saved."
    repair = 'torch.load(path, map_location="cpu"), or map_location=f"cuda:{local_rank}".'
    return [Finding("files", words, repair, ranks=tuple(loads), step=first.step, place=first.place)]


def module_in_names(observed: Observed) -> list[Finding]:
    """Note a state dict whose names begin with "module."."""
    saved = next((saved for one in observed for saved in one.of(Saved) if saved.module_names), None)
    if saved is None:
        return []
    words = f'all names in {saved.path.rpartition("/")[2]} begin with "module.": a network without DDP cannot load it.'
    return [
        Finding("files", words, "Save model.module.state_dict().", step=saved.step, place=saved.place, is_sure=False)
    ]  # fmt: skip


def _ranks_words(ranks: Iterable[int]) -> str:
    """Return "rank 1", "ranks 0 and 1" or "ranks 0, 1 and 2"."""
    ranks = sorted(ranks)
    return f"rank{'s' * (len(ranks) > 1)} {listed(ranks)}"


RULES: tuple[Callable[[Observed], list[Finding]], ...] = (
    one_gpu,
    copies,
    equal_minibatches,
    shared_examples,
    data_sets,
    forgotten_set_epoch,
    num_steps,
    learning_rates,
    gradients_kept,
    clipped_before_the_reduction,
    one_file,
    loaded_to_gpu_0,
    train_on_cpu,
    several_backward_passes,
    missing_gradients,
    statistics_per_rank,
    module_in_names,
)
