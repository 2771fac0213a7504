"""Rules of examples: which ones the ranks train on, how often, and in which order."""

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

from ddp_rehearsal.finding import Finding, of_all_ranks
from ddp_rehearsal.observations import (
    DataSet,
    Ended,
    Evaluated,
    Forward,
    JoinBegins,
    Joined,
    LoaderBegins,
    Observed,
    RankObservations,
    Reduced,
    Update,
)
from ddp_rehearsal.repairs import OF_ITERABLE
from ddp_rehearsal.rules.copies import are_copies, copies, left_out_updates
from ddp_rehearsal.rules.minibatches import forwards_of, loader_of, minibatch_rows, same_steps, training_loader
from ddp_rehearsal.rules.script_text import runs_to_the_end
from ddp_rehearsal.rules.side_by_side import (
    ranks_words,
    side_by_side,
    weights_apart,
)

__all__ = [
    "copies_of_workers",
    "data_sets",
    "equal_minibatches",
    "forgotten_set_epoch",
    "left_out_alone",
    "num_steps",
    "padded_evaluation",
    "same_order_again",
    "sampler_seeds",
    "shared_examples",
    "uneven_loaders",
]


SAMPLER = "Give the DataLoader sampler=DistributedSampler(dataset) and no shuffle=True."
GROUP = "Call torch.distributed.init_process_group() first. "
OF_ALL = ("RandomSampler", "SequentialSampler")  # samplers of all examples
FEWEST_SHARED = 8  # rows; equal examples of a data set would show within a rank as often as between two


def equal_minibatches(observed: Observed) -> list[Finding]:
    """Find ranks that train copies on the same minibatch in each step.

    It is sure if what comes out is the same too, or not because of a dropout after the first layer: otherwise each rank
    may compute a part, or change the examples in a way of its own.
    """
    same = [(a, b) for a, b in combinations(observed, 2) if same_steps(a, b)]
    if not same:
        return []
    parts = any(r.in_forward for one in observed for r in one.of(Reduced))  # a rank may compute a part of the forward
    surely = [(a, b) for a, b in same if not parts and _equal_weights(a, b) and _equal_outputs(a, b)]
    pairs = [(a.rank, b.rank) for a, b in surely or same]
    ranks = (pairs[0][0], *(b for a, b in pairs if a == pairs[0][0]))  # those that had what the first of them had
    one = observed[ranks[0]]
    rows, first = minibatch_rows(one), forwards_of(one)[0]
    loader = loader_of(one, first.loader)
    place = loader.place if loader else first.place
    found = Finding("examples", "", "", ranks=ranks, step=first.step, place=place, is_sure=bool(surely))
    made_up = len(rows) > 1 and len(set(map(tuple, rows.values()))) == 1
    if made_up or len({row for of in rows.values() for row in of}) < 2 or len(rows) < 2:
        words = f"{ranks_words(ranks)} had the same input, which is the same in all steps seen. Is it made up?"
        return [replace(found, words=words, repair="Give each rank examples of its own.", is_sure=False)]
    words = (
        f"{ranks_words(ranks)} had the same minibatch in each step, row by row: the minibatches of all {len(rows)} "
        "compared steps are equal."
    )
    repair = "Let each rank take a part of its own: examples[rank::world_size], or a generator with seed + rank."
    if loader is not None:
        repair = _division_of(loader, has_group=bool(one.of(Joined)))
    return [replace(found, words=words, repair=repair)]


def _division_of(loader: LoaderBegins, has_group: bool) -> str:
    """Return how to give each rank a part of the examples of a DataLoader."""
    if loader.iterable:
        return OF_ITERABLE
    if loader.sampler in OF_ALL:
        return SAMPLER if has_group else GROUP + SAMPLER
    if loader.sampler == "DistributedSampler":
        return "Give DistributedSampler num_replicas=world_size and rank=rank, or neither: it asks the process group."
    return f"Let {loader.sampler} give each rank a part of its own, such as its minibatches [rank::world_size]."


def _equal_weights(one: RankObservations, other: RankObservations) -> bool:
    """Return whether two ranks hold copies: equal weights after each update that both have made."""
    pairs = list(zip(one.of(Update), other.of(Update), strict=False))
    if not pairs or any(u.sharded or set(u.weights) != set(v.weights) for u, v in pairs):
        return False
    return not any(weights_apart(side_by_side(pair)) for pair in pairs)


def _equal_outputs(one: RankObservations, other: RankObservations) -> bool:
    pairs = list(zip(forwards_of(one), forwards_of(other), strict=False))
    if all(a.output == b.output != "" for a, b in pairs):
        return True
    enters_alike = all(a.entry == b.entry for a, b in pairs) and any(a.entry for a, _ in pairs)
    return enters_alike and all(a.drops_out and a.in_ddp and a.loader >= 0 for a, _ in pairs)


def shared_examples(observed: Observed) -> list[Finding]:
    """Find ranks that draw minibatches for copies from the whole data set, each in an order of its own."""
    if any(not finding.is_sure for finding in copies(observed)):
        return []  # networks of their own, such as those of a cross-validation, may have examples in common
    firsts = [one.of(Update)[0] for one in observed if one.of(Update)]
    if len({frozenset(u.weights) for u in firsts}) > 1:
        return []  # different networks
    seen: dict[int, list[str]] = {}
    loaders: dict[int, LoaderBegins] = {}
    for one in observed:
        of = [f for f in forwards_of(one) if f.loader >= 0 and f.epoch == 0]
        loader = loader_of(one, of[0].loader) if of else None
        if (
            loader is None
            or loader.repeats_at_random
            or not (loader.iterable or (loader.sampler in OF_ALL and loader.num_examples >= 0))
        ):
            return []
        seen[one.rank] = [row for f in of if f.loader == of[0].loader for row in f.rows]
        loaders[one.rank] = loader
        if len(set(seen[one.rank])) < len(seen[one.rank]):  # examples of the data set may be equal
            return []
    if len({loader.num_examples for loader in loaders.values()}) > 1:
        return []
    for a, b in combinations(seen, 2):
        if seen[a] == seen[b] or same_steps(observed[a], observed[b]):
            continue  # `equal_minibatches` says so
        shared = len(set(seen[a]) & set(seen[b]))
        if shared >= FEWEST_SHARED:
            words = (
                f"ranks {a} and {b} trained on the same examples in one epoch: {shared} of the {len(seen[a])} of rank "
                f"{a}." + ("" if loaders[a].iterable else f" Each rank draws from all {loaders[a].num_examples}.")
            )
            repair = _division_of(loaders[a], has_group=bool(observed[a].of(Joined)))
            return [Finding("examples", words, repair, ranks=tuple(seen), step=1, place=loaders[a].place)]
    return []


def forgotten_set_epoch(observed: Observed) -> list[Finding]:
    """Find a DistributedSampler that gives the same order in two epochs of training.

    It is not sure if the script has set an epoch once: it may go over the examples twice in one.
    """
    found: dict[int, tuple[LoaderBegins, int]] = {}
    for one in observed:
        began = {(b.loader, b.epoch): b for b in one.of(LoaderBegins) if b.sampler == "DistributedSampler"}
        trained = [
            key for key in dict.fromkeys((f.loader, f.epoch) for f in one.of(Forward) if f.training) if key in began
        ]
        for (loader, epoch), (other, following) in combinations(trained, 2):
            first, second = began[loader, epoch], began[other, following]
            same_number = first.sampler_epoch == second.sampler_epoch >= 0 and first.seed == second.seed
            if loader == other and first.shuffles and same_number:
                found.setdefault(one.rank, (second, following))
    if not found:
        return []
    second, epoch = next(iter(found.values()))
    words = f"epoch {epoch + 1} has the same order of examples as an epoch before: "
    words += ("set_epoch was not called.", "set_epoch was called once.")[n] if (n := second.epochs_set) < 2 else (
        f"set_epoch was called {n} times, and not with another number in between."
    )  # fmt: skip
    repair = "Call sampler.set_epoch(epoch) with a number of its own at the beginning of each epoch."
    ranks, place = tuple(found), second.place
    return [Finding("examples", words, repair, ranks=ranks, step=second.step, place=place, is_sure=n != 1)]


def sampler_seeds(observed: Observed) -> list[Finding]:
    """Find DistributedSamplers that shuffle with another seed on each rank, so that their parts overlap."""
    loaders = [training_loader(one) for one in observed]
    known = [begins for begins in loaders if begins and begins.shuffles and begins.parts == len(observed)]
    if len(known) < len(observed) or len({begins.seed for begins in known}) == 1:
        return []
    said = ", ".join(f"{begins.seed} on rank {rank}" for rank, begins in enumerate(known))
    words = f"DistributedSampler shuffles with different seeds: {said}. The parts of the ranks overlap."
    repair = "Give it the same seed on all ranks: rank and number of ranks choose the part."
    ranks = tuple(range(len(observed)))
    return [Finding("examples", words, repair, ranks=ranks, step=1, place=known[0].place)]


def data_sets(observed: Observed) -> list[Finding]:
    """Find ranks whose data sets differ, although a DistributedSampler gives each rank a part of one data set."""
    by_loader: dict[int, dict[int, DataSet]] = {}
    for one in observed:
        for data in one.of(DataSet):
            by_loader.setdefault(data.loader, {})[one.rank] = data
    for loader, of in by_loader.items():
        trained = all(any(f.loader == loader for f in observed[rank].of(Forward)) for rank in of)
        if trained and len(of) == len(observed) and len({data.items for data in of.values()}) > 1:
            begins = loader_of(observed[0], loader)
            words = (
                "the ranks have different data sets: the first or the last example is not the same on all. The sampler "
                "gives each rank a part of the numbers, so that some examples are never seen."
            )
            repair = (
                "Make the same data set on all ranks (a random one with the same seed), or leave the sampler out if "
                "each rank has a part of its own."
            )
            labels = {data.labels for data in of.values()}
            chosen = {data.chosen for data in of.values()}
            # else the examples may be alike, and changed at random on each rank
            is_sure = len(labels) > 1 or len(chosen) > 1
            place = begins.place if begins else None
            return [Finding("examples", words, repair, ranks=tuple(of), step=1, place=place, is_sure=is_sure)]
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
    if not fewer or any(one.of(JoinBegins) for one in observed) or left_out_updates(observed):
        return []
    said = ", ".join(f"{len(of)} on rank {rank}" for rank, of in enumerate(updates))
    last = updates[fewer[0]][-1]
    repair = "Give all ranks as many minibatches: DistributedSampler does, and so does drop_last=True of equal parts."
    words = f"the ranks made different numbers of updates: {said}."
    return [
        Finding("examples", words, repair, ranks=fewer, step=last.step, place=last.place, is_sure=are_copies(observed))
    ]


def same_order_again(observed: Observed) -> list[Finding]:
    """Find minibatches of a shuffled epoch that come again in the same order, not by a DistributedSampler's number."""
    if forgotten_set_epoch(observed):
        return []
    rows = {one.rank: [of for _, of in sorted(minibatch_rows(one).items()) if of] for one in observed}
    for one in observed:
        period, forwards, begins = _period(rows[one.rank]), forwards_of(one), training_loader(one)
        if period and begins is not None and begins.shuffles and len({f.loader for f in forwards}) == 1:
            step = forwards[0].step + period
            words = f"from step {step} on the minibatches of the first {period} steps come again, in the same order."
            repair = "Iterate over the DataLoader again in each epoch: what keeps the first one repeats its order."
            if is_sure := len({f.epoch for f in forwards}) > 1:
                repair = "Set the seed once, before the first epoch, and not again in each: it makes the order."
            is_sure |= period == begins.num_batches  # a part that is repeated may be meant to be
            ranks = tuple(rank for rank, of in rows.items() if len(of) > period and _comes_again(of, period))
            return [Finding("examples", words, repair, ranks=ranks, step=step, place=begins.place, is_sure=is_sure)]
    return []


def _comes_again(rows: Sequence[Sequence[str]], n: int) -> bool:
    return all(rows[i] == rows[i + n] for i in range(len(rows) - n))


def _period(rows: Sequence[Sequence[str]]) -> int:
    """Return after how many minibatches (2 or more) all come again in their order, two of them at least; 0 if not."""
    for n in range(2, len(rows) - 1):
        if len({tuple(of) for of in rows[:n]}) == n and _comes_again(rows, n):
            return n
    return 0


def copies_of_workers(observed: Observed) -> list[Finding]:
    """Find an IterableDataset that each worker of a DataLoader reads completely."""
    found: list[Finding] = []
    for one in observed:
        begins = training_loader(one)
        if begins is None or not begins.iterable or begins.workers < 2:
            continue
        rows = [tuple(of) for _, of in sorted(minibatch_rows(one).items())]
        w = begins.workers
        groups = [rows[i : i + w] for i in range(0, len(rows) - w + 1, w)]
        if any(u.minibatches != 1 for u in one.of(Update)[1:]):
            continue  # several updates for a minibatch
        if len(groups) > 1 and all(len(set(of)) == 1 for of in groups) and len({of[0] for of in groups}) > 1:
            words = f"each minibatch comes {w} times: each of the {w} workers of the DataLoader reads all examples."
            repair = "Let each worker read its own part in __iter__: torch.utils.data.get_worker_info() tells which."
            found.append(Finding("examples", words, repair, ranks=(one.rank,), step=2, place=begins.place))
    return of_all_ranks(found)


def uneven_loaders(observed: Observed) -> list[Finding]:
    """Find DataLoaders of training that have more minibatches on one rank than on another.

    It is sure if a `for` runs to their end and the gradients are averaged: then one rank waits for the others at last.
    """
    loaders = [training_loader(one) for one in observed]
    known = [begins for begins in loaders if begins is not None]
    if len(known) < len(observed):
        return []
    sizes = [_length_of_epoch(one, begins) for one, begins in zip(observed, known, strict=True)]
    if any(not f.syncs for one in observed for f in one.of(Forward)):
        each = statistics.mode([1, *(max(1, u.minibatches) for one in observed for u in one.of(Update))])
        if len({(n // each, n % each > 0) for n in sizes}) == 1:  # as many updates, and nobody waits in between
            return []
    if min(sizes) < 1 or len(set(sizes)) == 1 or any(one.of(JoinBegins) for one in observed):
        return []
    ends = [one.of(Ended)[-1].how if one.of(Ended) else "" for one in observed]
    if num_steps(observed) or all(how == "returned" for how in ends):
        return []
    said = ", ".join(f"{n} on rank {rank}" for rank, n in enumerate(sizes))
    few = sizes.index(min(sizes))
    words = (
        f"an epoch has different numbers of minibatches: {said}. Rank {few} makes fewer updates, and the others wait "
        "for it in the end."
    )
    repair = (
        "Give all ranks as many: DistributedSampler over one data set does. Or wrap the loop in `with model.join():`, "
        "or stop all ranks after the smallest number."
    )
    is_sure = any(u.group for one in observed for u in one.of(Update)) and runs_to_the_end(known[few].place)
    place = known[few].place
    return [Finding("examples", words, repair, ranks=(few,), step=min(sizes) + 1, place=place, is_sure=is_sure)]


def _length_of_epoch(one: RankObservations, begins: LoaderBegins) -> int:
    """Return how many minibatches an epoch of a DataLoader has; of an iterable those of the first, if it was seen."""
    if begins.num_batches > 0 and not begins.iterable:
        return begins.num_batches
    steps = [b.step for b in one.of(LoaderBegins) if b.loader == begins.loader]
    each = {u.minibatches for u in one.of(Update)[1:]}
    return steps[1] - steps[0] if len(steps) > 1 and each == {1} else -1


def left_out_alone(observed: Observed) -> list[Finding]:
    """Find ranks that leave out a backward pass in which DistributedDataParallel averages."""
    updates = [u for one in observed for u in one.of(Update)]
    if len({u.optimizer for u in updates}) != 1 or any(one.of(JoinBegins) for one in observed):
        return []
    if any(u.backwards != 1 or len(u.group) != len(observed) for u in updates) or left_out_updates(observed):
        return []
    last = min(one.num_updates for one in observed)
    passes = [[f for f in one.of(Forward) if f.training and f.in_ddp] for one in observed]
    per_step = [Counter(f.step for f in of) for of in passes]
    step = next((s for s in range(1, last + 1) if len({of[s] for of in per_step}) > 1), 0)
    fewest, most = (choose(of[step] for of in per_step) for choose in (min, max))
    if not step or not fewest:
        return []
    ranks = tuple(rank for rank, of in enumerate(per_step) if of[step] > fewest)
    drawn = [max((u.minibatches for u in one.of(Update) if u.step == step), default=0) for one in observed]
    if any(drawn[rank] <= min(drawn) for rank in ranks):
        return []  # another look at the same minibatch
    begins = training_loader(observed[ranks[0]])
    words = (
        f"{ranks_words(ranks)} called the network {most} times in step {step}, and others {fewest}: a backward pass is "
        "left out. The others wait for it, and get that of a later minibatch."
    )
    repair = "Decide on all ranks alike, by all_reduce, or multiply the loss by 0 where it should not count."
    place = next(f.place for f in passes[ranks[0]] if f.step == step)
    is_sure = begins is not None and runs_to_the_end(begins.place)
    return [Finding("examples", words, repair, ranks=ranks, step=step, place=place, is_sure=is_sure)]


def padded_evaluation(observed: Observed) -> list[Finding]:
    """Find an evaluation over examples that a DistributedSampler repeats, whose counts are then added up.

    It is sure if a rank that has a repeat adds up the size of its part, and nothing if it adds up the size without it.
    """
    found: list[Finding] = []
    for one in observed:
        trained = {forward.loader for forward in one.of(Forward) if forward.training}
        evaluated: LoaderBegins | None = None
        sums: Counter[object] = Counter()  # of the numbers that are given to a collective at one line
        for noted in one.noted:
            if isinstance(noted, Evaluated):  # a pass for minibatches of training is of a teacher, not an evaluation
                evaluated = None if noted.loader in trained else loader_of(one, noted.loader)
                sums.clear()
            elif isinstance(noted, Forward) and noted.training:
                evaluated = None
            elif isinstance(noted, Reduced) and evaluated is not None and evaluated.repeats and noted.adds_up:
                sums.update({(noted.place, i): x for i, x in enumerate(noted.values)})
                counts, has_repeat = set(sums.values()), one.rank >= evaluated.parts - evaluated.repeats
                if has_repeat and any(0 < evaluated.part - n <= evaluated.repeats for n in counts if n == n // 1):
                    return []
                found.append(_repeated(evaluated, noted.step, has_repeat and evaluated.part in counts))
    return sorted(found, key=lambda one: not one.is_sure)[:1]


def _repeated(evaluated: LoaderBegins, step: int, is_sure: bool) -> Finding:
    n, them = evaluated.repeats, "it" if evaluated.repeats == 1 else "them"
    words = f"DistributedSampler repeats {n} of the {evaluated.num_examples} examples, so that all ranks have as many: "
    words += (
        f"what the evaluation adds up counts {them} twice." if is_sure else f"does the evaluation count {them} twice?"
    )
    repair = (
        "Evaluate on a part without repeats, such as Subset(data, range(rank, len(data), world_size)), or leave out "
        "what was repeated before it is counted."
    )
    return Finding("examples", words, repair, step=step, place=evaluated.place, is_sure=is_sure)
