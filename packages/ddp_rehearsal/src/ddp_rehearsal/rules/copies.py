"""Rules of copies: weights and other tensors that are not equal on all ranks, and why."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ddp_rehearsal.finding import Finding
from ddp_rehearsal.fingerprint import Print
from ddp_rehearsal.observations import (
    Failed,
    Forward,
    JoinBegins,
    Joined,
    LoaderBegins,
    NotWaited,
    Observed,
    RankObservations,
    Reduced,
    State,
    Update,
)
from ddp_rehearsal.rules.minibatches import equal_rows, minibatch_rows
from ddp_rehearsal.rules.script_text import averages_weights, saves_for_each_rank
from ddp_rehearsal.rules.side_by_side import (
    GRADIENTS,
    WEIGHTS,
    Tensors,
    all_same,
    comparable,
    known,
    names_apart,
    not_constant,
    ranks_words,
    shown_alike,
    side_by_side,
    weights_apart,
)
from notebook_ranks.shared.format import listed

__all__ = [
    "UNFINISHED",
    "are_copies",
    "copies",
    "left_out_updates",
    "meant_as_copies",
    "said_of_copies",
    "unlike_at_the_end",
    "unlike_buffers",
    "unlike_when_evaluated",
]


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
ELSEWHERE = "The script averages or sends weights elsewhere, and did not in these steps: see more with --steps."
FIRST_UPDATES = 4
STATISTICS = ("running_mean", "running_var", "num_batches_tracked")  # of BatchNorm


def copies(observed: Observed) -> list[Finding]:
    """Find weights that are not equal on all ranks, and say why: the first step and tensor that shows it."""
    found: list[Finding] = []
    for ranks, updates in comparable(observed):
        found += _not_copies(observed, ranks, updates)
    return found


def are_copies(observed: Observed) -> bool:
    """Return whether the weights were compared, and equal on all ranks after each update, rounding aside.

    Of several groups of ranks each holds copies of its own.
    """
    compared = comparable(observed)
    return bool(compared) and not any(weights_apart(u) or not known(u.weights) for _, of in compared for u in of)


def said_of_copies(observed: Observed) -> str:
    """Return a sentence about weights that are the same on all ranks after each update; "" if they are not."""
    compared = comparable(observed)
    if len(observed) < 2 or not compared or any(weights_apart(u) for _, of in compared for u in of):
        return ""
    if not are_copies(observed):
        return "The weights on the ranks differ by rounding at most, as far as they were read."
    of = "" if _compared_at_the_end(observed) else " in the optimizer"
    if any(u.ignores for one in observed for u in one.of(Update)):
        of = " that DistributedDataParallel does not ignore"
    on = " and on ".join(dict.fromkeys(ranks_words(ranks) for ranks, _ in compared))
    on = "all ranks" if all(len(ranks) == len(observed) for ranks, _ in compared) else on
    return f"The weights{of} are the same on {on} after each update."


def _not_copies(observed: Observed, ranks: tuple[int, ...], updates: Sequence[Tensors]) -> list[Finding]:
    first = next((u for u in updates if weights_apart(u)), None)
    if first is None or _leaves_out(observed, ranks) or any(one.of(NotWaited) for one in observed):
        return []  # rules of updates and of collectives say so
    begin, name = updates[0], weights_apart(first)[0]
    found = Finding("copies", "", REDUCE, ranks=ranks, step=first.step, place=first.place)
    if _averaged_later(first, updates):
        words = f"the weights ({name}) differ after step {first.step}, and are equal again later: are they averaged?"
        return [replace(found, words=words, is_sure=False)]
    if started_apart := names_apart(begin.before):
        if all_same(begin.grads, GRADIENTS):
            words = (
                f"the ranks begin with different weights ({started_apart[0]}). Their gradients are averaged, so that "
                "the copies stay apart."
            )
            repair = (
                "Make the network with the same torch.manual_seed on all ranks, or broadcast its weights first, as "
                "DistributedDataParallel does."
            )
            return [replace(found, words=words, repair=repair)]
        if set(started_apart) < set(not_constant(begin.before)) or equal_rows(observed, ranks):
            words = f"{started_apart[0]} is not the same tensor on all ranks. Do the ranks hold parts of one network?"
            return [replace(found, words=words, is_sure=False)]
        words = f"each rank trains a network of its own: their weights ({name}) differ from the beginning."
        return [_or_on_purpose(replace(found, words=words), meant_as_copies(observed, ranks, updates))]
    meant = meant_as_copies(observed, ranks, updates)
    if not first.grads:
        words = f"the weights ({name}) are no longer the same on all ranks after step {first.step}."
        if any(u.optimizer < 0 for rank in ranks for u in observed[rank].of(Update)):
            words = (
                f"the weights ({name}) are not the same on all ranks after the update by hand of step {first.step}: "
                "nothing averages the gradients."
            )
            if averages_weights(first.place):
                return [replace(found, words=f"{words} {ELSEWHERE}", is_sure=False)]
        return [_or_on_purpose(replace(found, words=words), meant)]
    apart = names_apart(first.grads, GRADIENTS)
    if name in apart and any(UNFINISHED in raised.report["message"] for one in observed for raised in one.of(Failed)):
        return []  # the end of the run says so
    if name in apart:
        found = replace(found, words=_before_the_update(apart, first))
        return [_not_reduced(observed, updates[updates.index(first) :], found, apart, meant)]
    if len({u.lrs for rank in ranks for u in observed[rank].of(Update) if u.step == first.step}) > 1:
        return []  # `learning_rates` says so
    if any(one.of(JoinBegins) for one in observed):
        words = (
            f"the weights ({name}) differ after step {first.step}, although their gradients do not: in a Join a rank "
            "with fewer minibatches makes fewer updates, and its optimizer has another state from then on."
        )
        repair = "If that matters, use an optimizer without momentum, or send its state from one rank after each Join."
        return [replace(found, words=words, repair=repair, is_sure=False)]
    words = (
        f"the gradient of {name} is the same on all ranks in step {first.step}, and its weights are not afterwards: "
        "something else changes them, such as the state of the optimizer."
    )
    repair = "Let all ranks load the same checkpoint, and change weights on all ranks alike."
    return [_or_on_purpose(replace(found, words=words, repair=repair), meant)]


def _or_on_purpose(found: Finding, is_sure: bool) -> Finding:
    """Return a finding of weights that are no copies; if they may be none on purpose, as a note that says both."""
    return found if is_sure else replace(found, words=f"{found.words} {OR_ON_PURPOSE}", repair=IF_ONE, is_sure=False)


def _averaged_later(first: Tensors, updates: Sequence[Tensors]) -> bool:
    """Return whether weights that differ after an update are equal after, or before, a later one."""
    apart = weights_apart(first)
    later = [u for u in updates if u.step > first.step]
    return any(
        not weights_apart(u) or any(n in apart and shown_alike(prints, WEIGHTS) for n, prints in u.start.items())
        for u in later
    )


def meant_as_copies(observed: Observed, ranks: Sequence[int], updates: Sequence[Tensors]) -> bool:
    """Return whether something shows that the ranks should hold copies.

    Equal weights at the start do not, nor weights that were broadcast: networks that are trained apart, one for each
    fold or learning rate, often begin alike. What does: DistributedDataParallel; a DistributedSampler, unless each rank
    saves a network of its own; gradients that are equal although the minibatches are not, so that something averages
    them. With an all-to-all each rank may hold a part, such as an expert or a table, for the examples of all.
    """
    if any(r.name.startswith("all_to_all") for rank in ranks for r in observed[rank].of(Reduced)):
        return False
    if any(u.group for rank in ranks for u in observed[rank].of(Update)):
        return True
    if _divide_examples(observed, ranks) and not saves_for_each_rank(updates[0].place):
        return True
    rows = [minibatch_rows(observed[rank]) for rank in ranks]
    return any(
        any(of.get(u.step) != rows[0].get(u.step) for of in rows) and all_same(u.grads, WEIGHTS) for u in updates
    )


def _divide_examples(observed: Observed, ranks: Iterable[int]) -> bool:
    """Return whether a DistributedSampler divides the examples of training among ranks."""
    return any(
        begins.sampler == "DistributedSampler" and any(f.loader == begins.loader for f in observed[rank].of(Forward))
        for rank in ranks
        for begins in observed[rank].of(LoaderBegins)
    )


def _before_the_update(apart: Sequence[str], first: Tensors) -> str:
    return f"the gradients ({apart[0]}) were not the same on all ranks before the update of step {first.step}"


def _not_reduced(
    observed: Observed, updates: Sequence[Tensors], found: Finding, apart: Sequence[str], meant: bool
) -> Finding:
    """Return the finding that gradients, or some of them, were not the same on all ranks before the first update."""
    first = updates[0]
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
    if in_ddp and (left := [name for name in apart if _is_left_out_by_ddp(ones, name)]):
        words = (
            f"the gradients ({left[0]}) were not the same on all ranks before the update of step {step}: "
            "DistributedDataParallel averages what could be trained when it was made, and this came later."
        )
        repair = "Add and unfreeze all parameters before DistributedDataParallel is made, or make it again afterwards."
        return replace(found, words=words, repair=repair)
    passes = max((u.backwards for one in ones for u in one.of(Update) if u.step == step), default=1)
    if in_ddp and passes > 1:
        words = (
            f"{said}, although the network is in DistributedDataParallel: it averages in the first backward pass after "
            f"a forward pass, and this update has {passes} backward passes."
        )
        repair = "Add up the losses and call backward() once, or let a forward pass come before each backward pass."
        return replace(found, words=words, repair=repair)
    if in_ddp:
        words = f"{said}, although the network is in DistributedDataParallel."
        return replace(found, words=words, repair="Change gradients on all ranks alike, or on none.")
    others = [  # in the first update a gradient may be 0, which shows nothing
        name
        for name in first.grads
        if any(any(u.grads[name]) and shown_alike(u.grads[name], GRADIENTS) for u in updates[:FIRST_UPDATES])
    ]
    if others:
        same = f"{len(others)} others were" if len(others) > 1 else f"that of {others[0]} was"
        divided = meant and _divide_examples(observed, found.ranks)
        if divided and not names_apart(first.before or first.start):
            words = f"{said}, and {same}: only a part of the gradients is averaged."
            repair = f"Average {listed(apart[:3])} too: all parameters that get a gradient, or the network by DDP."
            return replace(found, words=words, repair=repair)
        words = f"{said}, and {same}. Do the ranks hold different parts?"
        return replace(found, words=words, is_sure=False)
    if not any(one.of(Joined) for one in ones):
        words = f"{said}: the script never joins a process group, and trains {len(ones)} networks."
        repair = f"Call torch.distributed.init_process_group(). {REDUCE}"
        return _or_on_purpose(replace(found, words=words, repair=repair), meant)
    if averages_weights(found.place):
        return replace(found, words=f"{said}. {ELSEWHERE}", is_sure=False)
    return _or_on_purpose(replace(found, words=f"{said}: nothing averages them."), meant)


def _is_left_out_by_ddp(ones: Sequence[RankObservations], name: str) -> bool:
    return any(name in state.not_averaged for one in ones for state in one.of(State))


def left_out_updates(observed: Observed) -> list[Finding]:
    """Find ranks that leave out updates which others make after as many backward passes."""
    for number in sorted({u.optimizer for one in observed for u in one.of(Update)}):
        of_ranks = [[u for u in one.of(Update) if u.optimizer == number] for one in observed]
        if not all(of_ranks):
            continue
        keyed = [{(u.joins, u.passes): u for u in updates} for updates in of_ranks]
        until = [{(joins, n) for joins, n in of if n <= _passes_of_all(keyed, joins)} for of in keyed]
        most = max(until, key=len)
        fewer = tuple(rank for rank, of in enumerate(until) if of < most)
        if not fewer or not all(of <= most for of in until) or not 2 * len(until[fewer[0]]) >= len(most):
            continue
        missing = min(most - until[fewer[0]])
        left_out = keyed[until.index(most)][missing]
        said = ", ".join(f"{len(of)} on rank {rank}" for rank, of in enumerate(until))
        words = (
            f"{ranks_words(fewer)} leave{'s' * (len(fewer) == 1)} out updates: after as many backward passes there "
            f"were {said}. From then on the weights differ."
        )
        if not any(weights_apart(side_by_side(us)) for us in zip(*of_ranks, strict=False)):
            continue  # a backward pass of something else was counted, and one update after the other is the same
        repair = "Decide on all ranks alike whether to update: combine the decision of all ranks with all_reduce."
        is_sure = any(u.group for updates in of_ranks for u in updates) or _divide_examples(observed, fewer)
        return [
            Finding("copies", words, repair, ranks=fewer, step=left_out.step, place=left_out.place, is_sure=is_sure)
        ]
    return []


def _passes_of_all(keyed: Sequence[Mapping[tuple[int, int], Update]], joins: int) -> int:
    """Return how many backward passes before an update all ranks have made in a Join, or in none (0)."""
    return min(max((n for number, n in of if number == joins), default=0) for of in keyed)


def _leaves_out(observed: Observed, ranks: Sequence[int]) -> bool:
    return any(set(found.ranks) & set(ranks) for found in left_out_updates(observed))


def unlike_at_the_end(observed: Observed) -> list[Finding]:
    """Find parameters of copies that no optimizer holds, and that differ between the ranks at the end of the run."""
    compared = {name for one in observed for u in one.of(Update) for name in u.weights}
    last = next((u for u in reversed(observed[0].of(Update))), None)
    for states in _states(observed):
        apart = [name for name in names_apart(_of_all([state.params for state in states])) if name not in compared]
        if apart and last is not None and not states[0].evaluated:
            words = (
                f"{listed(apart[:3])} of {states[0].name} {'differs' if len(apart) == 1 else 'differ'} between the "
                "ranks at the end of the run, and no optimizer holds it: something else changes these weights."
            )
            repair = (
                "DistributedDataParallel averages gradients only. Average these weights over the ranks, or compute "
                "their change from what all ranks have together."
            )
            # what is not trained may belong to the rank's own examples, unless a sampler hands these round
            is_shared = any(name not in states[0].untrained for name in apart) or _divide_examples(observed, [0])
            sure = bool(states[0].group) and is_shared
            return [Finding("copies", words, repair, ranks=tuple(range(len(observed))), step=last.step, is_sure=sure)]
    return []


def unlike_when_evaluated(observed: Observed) -> list[Finding]:
    """Note a network that all ranks evaluate, such as an average of weights, and that is not the same on all."""
    if not are_copies(observed):
        return []
    for states in _states(observed):
        apart = names_apart(_of_all([state.params for state in states])) if states[0].evaluated else []
        if apart:
            words = (
                f"all ranks evaluate {states[0].name}, which is not trained itself, and its weights ({apart[0]}) are "
                "not the same on all. Does each rank change it?"
            )
            repair = "Change it on all ranks alike, or send it from one rank before the evaluation."
            last = observed[0].of(Update)[-1]
            return [Finding("copies", words, repair, ranks=tuple(range(len(observed))), step=last.step, is_sure=False)]
    return []


def unlike_buffers(observed: Observed) -> list[Finding]:
    """Note buffers that differ between ranks at the end, but for the statistics of BatchNorm."""
    for states in _states(observed):
        buffers = names_apart(_of_all([state.buffers for state in states]))
        apart = [name for name in buffers if not name.endswith(STATISTICS)]
        if apart and not states[0].syncs_buffers:
            which = f"the buffer{'s' * (len(apart) > 1)} {listed(apart[:3])}"
            words = f"{which} of {states[0].name} differ{'s' * (len(apart) == 1)} between the ranks at the end."
            repair = "If it belongs to the network, send it from one rank, or average it."
            return [Finding("copies", words, repair, is_sure=False)]
    return []


def _states(observed: Observed) -> list[list[State]]:
    """Return the states of each module at the end on all ranks, if all have made the same updates."""
    ends = {(u.joins, u.passes) for one in observed for u in one.of(Update)[-1:]}
    by_model = [{state.model: state for state in one.of(State)} for one in observed]
    if len(observed) < 2 or len(ends) != 1 or any(one.of(JoinBegins) for one in observed):
        return []
    found = [[of[number] for of in by_model] for number in by_model[0] if all(number in of for of in by_model)]
    return [states for states in found if len({(state.name, *state.params) for state in states}) == 1]


def _of_all(prints: Sequence[Mapping[str, Print | None]]) -> dict[str, list[Print | None]]:
    return {name: [of.get(name) for of in prints] for name in prints[0]}


def _compared_at_the_end(observed: Observed) -> bool:
    """Return whether all parameters of the modules were compared at the end of the run, and were equal."""
    states = [of for of in _states(observed) if not of[0].evaluated]
    return bool(states) and not any(names_apart(_of_all([state.params for state in of])) for of in states)
