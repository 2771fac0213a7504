"""Each rule on made-up observations: what it finds, and what it must not find."""

from dataclasses import replace

import pytest

from ddp_rehearsal.observations import (
    Clipped,
    DataSet,
    Ended,
    Forward,
    JoinBegins,
    Joined,
    Loaded,
    LoaderBegins,
    RankObservations,
    Saved,
    Update,
    Wrapped,
)
from ddp_rehearsal.rules import RULES
from ddp_rehearsal.rules.copies import are_copies, copies
from ddp_rehearsal.rules.devices import one_gpu, train_on_cpu
from ddp_rehearsal.rules.examples import (
    data_sets,
    equal_minibatches,
    forgotten_set_epoch,
    num_steps,
    shared_examples,
)
from ddp_rehearsal.rules.files import loaded_to_gpu_0, one_file, wrapper_in_names
from ddp_rehearsal.rules.gradients import (
    clipped_before_the_reduction,
    gradients_kept,
    missing_gradients,
    several_backward_passes,
)
from ddp_rehearsal.rules.minibatches import minibatch_rows
from ddp_rehearsal.rules.networks import statistics_per_rank
from ddp_rehearsal.rules.optimizers import learning_rates
from packages.ddp_rehearsal.tests.packing import packed

HERE = ("train.py", 7, "main")
JOINED = Joined(1, HERE, "nccl")


def prints(**values):
    """Made-up prints: a number is a tensor that has it four times, a list one of its values, None no gradient."""
    lists = {name: value if isinstance(value, list) else 4 * [value] for name, value in values.items()}
    return {name: None if None in of else (str(of), packed(*of)) for name, of in lists.items()}


def update(step=1, grads=None, weights=None, **facts):
    """An update of the parameters w and b."""
    facts = {"lrs": (0.1,), "devices": ("cuda:0",), "passes": step, **facts}
    grads = prints(w=[step, 1], b=step) if grads is None else grads
    weights = prints(w=[step, 2], b=-step) if weights is None else weights
    return Update(step, HERE, optimizer=0, name="SGD", grads=grads, weights=weights, **facts)


def forward(step, *rows, **facts):
    return Forward(step, HERE, model=0, name="Net", rows=rows, **facts)


def ranks(*noted):
    """Observations of ranks 0, 1, ...: a list for each."""
    return [RankObservations(rank, of) for rank, of in enumerate(noted)]


def rightly(step, rank):
    """What a rank does in a right step."""
    rows = [f"{rank} {step} {i}" for i in range(2)]
    return [forward(step, *rows, in_ddp=True), update(step, group=(0, 1), devices=(f"cuda:{rank}",))]


def the_one(found):
    (finding,) = found
    return finding


def test_a_right_run_has_no_finding_and_no_note():
    observed = ranks(*([JOINED, *rightly(1, r), *rightly(2, r), Ended(3, None, "returned")] for r in (0, 1)))
    assert [finding for rule in RULES for finding in rule(observed)] == []
    assert are_copies(observed)


def test_no_rule_needs_any_observation():
    for observed in (ranks([]), ranks([], []), ranks([JOINED], [])):
        assert [finding for rule in RULES for finding in rule(observed)] == []
        assert not are_copies(observed)


# copies

DIVIDED = LoaderBegins(1, HERE, loader=0, epoch=0, sampler="DistributedSampler")
OWN = [update(1, prints(w=r), prints(w=r)) for r in (1, 2)]  # of a network of its own
ONE = [JOINED, DIVIDED, forward(1, "a row", loader=0)]  # a rank trains on its part: there should be one network


def test_gradients_that_nothing_averages():
    apart = [(prints(w=[r, 1], b=r), prints(w=[r, 9], b=r + 9)) for r in (0, 1)]
    runs = [[*ONE, update(1), update(2, *apart[r])] for r in (0, 1)]
    finding = the_one(copies(ranks(*runs)))
    assert (finding.ranks, finding.step, finding.place, finding.is_sure) == ((0, 1), 2, HERE, True)
    assert "the gradients (w)" in finding.words and "nothing averages them" in finding.words
    assert not are_copies(ranks(*runs))


def test_a_script_without_a_process_group_is_told_so():
    finding = the_one(copies(ranks(*([DIVIDED, forward(1, f"{r}", loader=0), OWN[r]] for r in (0, 1)))))
    assert finding.is_sure and "never joins a process group" in finding.words and "init_process_group" in finding.repair


def networks_of_their_own(*noted, facts=None):
    """What is found if each of two ranks trains a network of its own, from the same seed, after what is `noted`."""
    return the_one(copies(ranks(*([JOINED, *noted, replace(OWN[r], **(facts or {}))] for r in (0, 1)))))


@pytest.mark.parametrize(
    "facts", [{}, {"closure": True}, {"grads": prints(w=1)}], ids=["gradients", "closure", "other weight decay"]
)
def test_networks_of_their_own_may_be_there_on_purpose(facts):
    """A fold, a member or a setting for each rank: the same seed, and nothing that is averaged, is no bug."""
    note = networks_of_their_own(facts=facts)
    assert not note.is_sure and "on purpose" in note.words and "fold" in note.words
    assert "If there should be one network" in note.repair and "nothing is wrong" in note.repair
    assert networks_of_their_own(DIVIDED, forward(1, "x", loader=0), facts=facts).is_sure  # but a sampler for ranks
    assert not networks_of_their_own(forward(1, "x"), facts=facts).is_sure


def test_equal_gradients_of_different_minibatches_show_that_there_is_one_network():
    def run(r, rows, grads):
        return [JOINED, forward(1, rows), update(1, grads, prints(w=1)), update(2, prints(w=r), prints(w=r))]

    averaged = [run(r, f"{r}", prints(w=5)) for r in (1, 2)]
    assert the_one(copies(ranks(*averaged))).is_sure
    for rows, grads in (("same", prints(w=5)), (None, prints(w=0))):  # the same minibatch; no gradient at all
        runs = [run(r, rows or f"{r}", grads) for r in (1, 2)]
        assert not the_one(copies(ranks(*runs))).is_sure


def test_folds_have_examples_in_common():
    runs = [[*drawn(r, range(9 * r, 9 * r + 20)), OWN[r]] for r in (0, 1)]
    assert shared_examples(ranks(*(run[:-1] for run in runs))) != []
    assert shared_examples(ranks(*runs)) == []


def test_a_small_learning_rate_does_not_hide_different_gradients():
    runs = [[JOINED, update(1, prints(w=r), prints(w=1 + r * 1e-7))] for r in (1, 2)]
    assert copies(ranks(*runs))


@pytest.mark.parametrize("apart", [1e-6, 0.0])
def test_rounding_is_no_finding(apart):
    runs = [[JOINED, update(1, prints(w=[1 + r * apart, 3]), prints(w=[2 + r * apart, 3]))] for r in (0, 1)]
    assert copies(ranks(*runs)) == [] and are_copies(ranks(*runs))


def test_numbers_that_are_not_finite_are_equal():
    values = packed(float("nan"), float("inf"))
    nan = {"w": ("one", values)}, {"w": ("other", values)}
    assert copies(ranks(*([JOINED, update(1, nan[r], nan[r])] for r in (0, 1)))) == []


def test_weights_that_differ_at_the_start():
    def run(r, grads, sampler="RandomSampler"):
        data = [LoaderBegins(1, HERE, loader=0, epoch=0, sampler=sampler), forward(1, f"{r}", loader=0, epoch=0)]
        return [JOINED, *data, update(1, grads, prints(w=[r, 1], b=[r, 1]), before=prints(w=[r, 2], b=[r, 0]))]

    same = the_one(copies(ranks(*(run(r, prints(w=1, b=1)) for r in (0, 1)))))
    assert "begin with different weights (w)" in same.words and same.is_sure
    apart = the_one(copies(ranks(*(run(r, prints(w=r, b=r), "DistributedSampler") for r in (0, 1)))))
    assert "a network of its own" in apart.words and apart.is_sure
    ensemble = the_one(copies(ranks(*(run(r, prints(w=r, b=r)) for r in (0, 1)))))
    assert "a network of its own" in ensemble.words and not ensemble.is_sure


def test_parts_of_one_network_are_only_a_note():
    def run(r, rows):  # b is the same at the start, as a norm in tensor parallelism
        before = prints(w=[r, 2], b=[5, 6])
        return [JOINED, forward(1, *rows), update(1, prints(w=r, b=r), prints(w=r, b=r), before=before)]

    assert not the_one(copies(ranks(*(run(r, [f"{r}"]) for r in (0, 1))))).is_sure
    both = [[JOINED, forward(1, "a"), update(1, prints(w=r), prints(w=r), before=prints(w=[r, 2]))] for r in (0, 1)]
    assert not the_one(copies(ranks(*both))).is_sure


def some_differ(of, begin=(JOINED,)):
    """Two ranks with different gradients w; of(r) has further ones of rank r, which may be the same."""
    grads = [prints(w=r, **of(r)) for r in (0, 1)]
    return the_one(copies(ranks(*([*begin, update(1, some, some)] for some in grads))))


@pytest.mark.parametrize(
    "values",
    [
        lambda r: [1],
        lambda r: [5 + 1e-6 * r, 5],  # a few that differ by rounding
        lambda r: [5 + 1e-3 * r, 1, 2, 3],  # four that are close
        lambda r: [5 + 1e-3 * r, 1, 0, 2, 0, 3],
    ],
)
def test_some_gradients_that_differ_are_only_a_note(values):
    one, two = some_differ(lambda r: {"b": values(r)}), some_differ(lambda r: {"b": values(r), "c": 1})
    assert not one.is_sure and "and that of b was. " in one.words
    assert not two.is_sure and "and 2 others were. " in two.words


@pytest.mark.parametrize(
    "values",
    [
        lambda r: [5 + 1e-3 * r],  # three that are close by chance
        lambda r: [5 + 1e-3 * r, 1, 2],
        lambda r: [5 + 1e-3 * r, 1, 2, 0, 0],
        lambda r: [0, 0, 0, 0, -0.0 if r else 0],  # as of an embedding: the digests differ
        lambda r: 0,
    ],
)
def test_a_few_values_that_are_close_by_chance_and_zeros_are_not_the_same(values):
    finding = some_differ(lambda r: {"b": values(r)}, ONE)
    assert finding.is_sure and finding.words.endswith("step 1: nothing averages them.")


def test_a_tensor_that_is_not_read_shows_nothing():
    grads = [prints(w=r) | {"b": ("not read", "")} for r in (0, 1)]
    runs = ranks(*([*ONE, update(1, of, of)] for of in grads))
    assert the_one(copies(runs)).words.endswith("step 1: nothing averages them.")
    grads = [prints(w=r) | {"b": (digest, "")} for r, digest in enumerate(("one", "other"))]  # complex numbers
    runs = ranks(*([*ONE, update(1, of, of)] for of in grads))
    assert the_one(copies(runs)).words.endswith("step 1: nothing averages them.")


def test_one_number_that_is_clipped_is_no_average():
    clipped = [Clipped(1, HERE, {"w": f"{r}"}, 20.0 + r, 1.0) for r in (0, 1)]
    runs = [
        [JOINED, forward(1, f"{r}"), clipped[r], update(1, prints(w=[1]), prints(w=[r]), before=prints(w=[3 + r]))]
        for r in (0, 1)
    ]
    assert clipped_before_the_reduction(ranks(*runs)) == []
    assert "their gradients are averaged" not in the_one(copies(ranks(*runs))).words.lower()


@pytest.mark.parametrize("values", [[0.5], [0.5, 1, 2, 3]])
def test_weights_that_differ_by_rounding_later_are_only_a_note(values):
    def run(r):
        start = {"w": (f"{r}", packed(values[0] + 5e-5 * r, *values[1:]))}
        return [*ONE, OWN[r], update(2, prints(w=r), prints(w=r), start=start)]

    assert the_one(copies(ranks(run(0), run(1)))).is_sure == (len(values) == 1)


@pytest.mark.parametrize("facts", [{}, {"start": prints(w=7)}])
def test_weights_that_are_averaged_now_and_then_are_only_a_note(facts):
    def run(r):
        return [
            JOINED,
            update(1, prints(w=r), prints(w=r)),
            update(2, prints(w=r), prints(w=r if facts else 7), **facts),
        ]

    note = the_one(copies(ranks(run(1), run(2))))
    assert "equal again later" in note.words and not note.is_sure
    still = [[*ONE, OWN[r], update(2, prints(w=r), prints(w=r), start=prints(w=r))] for r in (0, 1)]
    assert the_one(copies(ranks(*still))).is_sure


def test_weights_that_were_equal_before_they_came_apart_are_not_averaged_later():
    def run(r):
        first = update(1, prints(w=r), prints(w=r), start=prints(w=7))
        return [*ONE, first, update(2, prints(w=r), prints(w=r), start=prints(w=r))]

    finding = the_one(copies(ranks(run(1), run(2))))
    assert finding.is_sure and "equal again later" not in finding.words


def test_why_ddp_averages_nothing():
    def run(r, **facts):
        return [JOINED, forward(1, f"{r}", **facts), update(1, prints(w=r), prints(w=r), group=(0, 1))]

    past = the_one(copies(ranks(*(run(r, around_ddp=True) for r in (0, 1)))))
    assert "inside of DistributedDataParallel" in past.words and "model(X)" in past.repair
    without = the_one(copies(ranks(*(run(r, in_ddp=True, syncs=False) for r in (0, 1)))))
    assert "no_sync()" in without.words
    other = the_one(copies(ranks(*(run(r, in_ddp=True) for r in (0, 1)))))
    assert "although" in other.words
    local = [[*run(r, in_ddp=True)[:2], update(1, prints(w=r), prints(w=r), group=(0, 1), hooked=True)] for r in (0, 1)]
    assert not the_one(copies(ranks(*local))).is_sure


def test_weights_that_something_else_changes():
    runs = [[JOINED, update(1, prints(w=1), prints(w=1)), update(2, prints(w=1), prints(w=r + 1))] for r in (0, 1)]
    finding = the_one(copies(ranks(*runs)))
    assert "something else changes them" in finding.words and finding.step == 2
    runs = [[JOINED, update(1, weights=prints(w=r), closure=True)] for r in (1, 2)]
    assert "no longer the same" in the_one(copies(ranks(*runs))).words


def test_only_ranks_of_one_group_are_compared():
    runs = [
        [JOINED, update(1, prints(w=r // 2), prints(w=r // 2), group=(r // 2 * 2, r // 2 * 2 + 1))] for r in range(4)
    ]
    assert copies(ranks(*runs)) == []


@pytest.mark.parametrize("facts", [{"sharded": True}, {"weights": prints(v=1)}])
def test_parts_are_not_compared(facts):
    runs = [[JOINED, update(1, prints(w=1))], [JOINED, update(1, prints(w=2), **facts)]]
    assert copies(ranks(*runs)) == []


# examples


def test_rows_of_a_step_are_those_of_all_microbatches_of_the_first_network():
    noted = [forward(1, "a"), forward(1, "b"), replace(forward(1, "noise"), model=1), forward(2, "c"), forward(2)]
    assert minibatch_rows(RankObservations(0, noted)) == {1: ["a", "b"], 2: ["c"]}


def test_the_same_minibatch_on_two_ranks():
    loader = LoaderBegins(1, ("train.py", 3, "main"), loader=0, epoch=0, sampler="SequentialSampler", num_examples=4)
    facts = {"loader": 0, "output": "y"}
    runs = [
        [JOINED, loader, forward(1, "a", "b", **facts), update(1), forward(2, "c", "d", **facts), update(2)]
        for _ in range(2)
    ]
    finding = the_one(equal_minibatches(ranks(*runs)))
    assert finding.ranks == (0, 1) and finding.place == loader.place and finding.is_sure
    assert "DistributedSampler" in finding.repair
    without = ranks(*([e for e in run if e is not loader] for run in runs))
    assert "rank::world_size" in the_one(equal_minibatches(without)).repair
    three = ranks(*runs, [JOINED, forward(1, "x"), update(1), forward(2, "y"), update(2)])
    assert the_one(equal_minibatches(three)).ranks == (0, 1)


def test_the_same_minibatch_in_parts_is_only_a_note():
    """In context parallelism each rank computes a part of each example; tensors of a part have different weights."""

    def run(r, facts=None, **more):
        steps = ((forward(s, f"{s}", "z", loader=0, **(facts or {"output": "y"})), update(s, **more)) for s in (1, 2))
        return [JOINED, *(one for step in steps for one in step)]

    assert the_one(equal_minibatches(ranks(run(0), run(1)))).is_sure
    parts = [run(r, {"output": f"part {r}"}) for r in (0, 1)]
    assert not the_one(equal_minibatches(ranks(*parts))).is_sure
    facts = {"drops_out": True, "in_ddp": True, "entry": "x"}
    dropped = [run(r, {**facts, "output": f"{r}"}) for r in (0, 1)]
    assert the_one(equal_minibatches(ranks(*dropped))).is_sure
    augmented = [run(r, {**facts, "output": f"{r}", "entry": f"{r}"}) for r in (0, 1)]  # before the first layer
    assert not the_one(equal_minibatches(ranks(*augmented))).is_sure
    tensors = [run(r, weights=prints(w=r), group=(r, r + 2)) for r in (0, 1)]
    assert not the_one(equal_minibatches(ranks(*tensors))).is_sure


@pytest.mark.parametrize("rows", [["a a", "a a"], ["a b", "a b"], ["a b"]])
def test_made_up_input_is_only_a_note(rows):
    runs = [[JOINED, *(e for s, of in enumerate(rows, 1) for e in (forward(s, *of.split()), update(s)))] for _ in "ab"]
    assert not the_one(equal_minibatches(ranks(*runs))).is_sure


def test_the_same_minibatch_for_parts_of_a_network_is_only_a_note():
    runs = [[JOINED, *(e for s in (1, 2) for e in (forward(s, f"{s}", "z"), update(s, sharded=True)))] for _ in "ab"]
    assert not the_one(equal_minibatches(ranks(*runs))).is_sure


def drawn(rank, rows, sampler="RandomSampler", n=100, **facts):
    loader = LoaderBegins(1, HERE, loader=0, epoch=0, sampler=sampler, num_examples=n, **facts)
    return [loader, *(forward(s, f"{row}", loader=0, epoch=0) for s, row in enumerate(rows, 1))]


def test_ranks_that_draw_from_the_whole_data_set():
    finding = the_one(shared_examples(ranks(drawn(0, range(10)), drawn(1, range(9, 1, -1)))))
    assert finding.ranks == (0, 1) and "8 of the 10 of rank 0" in finding.words
    assert "all 100" in finding.words


@pytest.mark.parametrize(
    "other",
    [
        drawn(1, range(3, 20)),  # too few to be sure
        drawn(1, [*range(9, 1, -1), 5]),  # an example twice on one rank
        drawn(1, range(9, 1, -1), sampler="DistributedSampler"),
        drawn(1, range(9, 1, -1), n=99),
        drawn(1, range(9, 1, -1), repeats_at_random=True),
        [],
    ],
)
def test_examples_that_may_be_shared_rightly(other):
    assert shared_examples(ranks(drawn(0, range(10)), other)) == []


def epochs(*numbers, shuffles=True, trains=True):
    noted = []
    for epoch, number in enumerate(numbers):
        noted.append(
            LoaderBegins(
                epoch + 1,
                HERE,
                loader=0,
                epoch=epoch,
                sampler="DistributedSampler",
                shuffles=shuffles,
                sampler_epoch=number,
            )
        )
        noted += [forward(epoch + 1, "a", loader=0, epoch=epoch)] if trains else []
    return noted


def test_a_sampler_that_is_not_told_the_epoch():
    finding = the_one(forgotten_set_epoch(ranks(epochs(0, 0), epochs(0, 1))))
    assert (finding.ranks, finding.step) == ((0,), 2) and "epoch 2" in finding.words and "set_epoch" in finding.repair
    for right in (epochs(0, 1), epochs(0, 0, shuffles=False), epochs(0, 0, trains=False), epochs(0)):
        assert forgotten_set_epoch(ranks(right, right)) == []


def test_data_sets_that_differ():
    def run(*items, trains=True, labels=(), chosen=""):
        begins = LoaderBegins(1, HERE, loader=0, epoch=0, sampler="DistributedSampler")
        return [begins, *([forward(1, "x", loader=0)] if trains else []), DataSet(9, None, 0, items, labels, chosen)]

    note = the_one(data_sets(ranks(run("a", "z"), run("a", "y"))))
    assert not note.is_sure and note.ranks == (0, 1) and note.place == HERE
    assert the_one(data_sets(ranks(run("a", "z", chosen="0 1"), run("a", "y", chosen="0 2")))).is_sure  # random_split
    one, other = run("a", "z", labels=("3", "4")), run("a", "y", labels=("3", "5"))
    assert the_one(data_sets(ranks(one, other))).is_sure
    kept = run("a", "y", labels=("3", "4"))  # a random change of the same example, kept in memory
    assert not the_one(data_sets(ranks(one, kept))).is_sure
    assert data_sets(ranks(run("a", "z"), run("a", "z"))) == []
    assert data_sets(ranks(run("a", "z", trains=False), run("a", "y", trains=False))) == []
    assert data_sets(ranks(run("a", "z"), [])) == []


def test_different_numbers_of_updates():
    end = Ended(9, None, "returned")
    fewer, more = [update(1), end], [update(1), update(2), end]
    finding = the_one(num_steps(ranks(more, fewer, more)))
    assert finding.ranks == (1,) and "2 on rank 0, 1 on rank 1, 2 on rank 2" in finding.words
    for right in ([more, more], [more, [update(1)]], [more, [update(1), Ended(9, None, "exit", 1)]]):
        assert num_steps(ranks(*right)) == []
    assert num_steps(ranks([JoinBegins(1, None), *more], fewer)) == []
    probe = [update(1), replace(update(2), optimizer=1), end]  # rank 0 trains one more network
    assert num_steps(ranks(probe, fewer)) == [] and num_steps(ranks([end], fewer)) == []
    actors = [[update(1, weights=prints(w=r)), *[update(2)] * r, end] for r in (0, 1)]
    assert not the_one(num_steps(ranks(*actors))).is_sure


# arithmetic


def test_different_learning_rates():
    runs = [[forward(2, f"{r}"), update(1), update(2, lrs=(lr,))] for r, lr in enumerate((0.1, 0.2, 0.1))]
    finding = the_one(learning_rates(ranks(*runs)))
    assert (finding.ranks, finding.step, finding.is_sure) == ((1,), 2, True)
    assert "0.1 on rank 0, 0.2 on rank 1, 0.1 on rank 2" in finding.words
    assert the_one(learning_rates(ranks(*runs[:2]))).ranks == ()
    assert learning_rates(ranks(runs[0], runs[2])) == []
    own = [[update(1, prints(w=lr), lrs=(lr,))] for lr in (1, 2)]  # each rank trains with a rate of its own
    assert not the_one(learning_rates(ranks(*own))).is_sure
    search = [[forward(1, "a"), update(1, lrs=(lr,))] for lr in (1, 2)]  # from the same seed, on the same data
    closures = [[forward(1, f"{lr}"), update(1, lrs=(lr,), closure=True)] for lr in (1, 2)]  # and as L-BFGS does
    unknown = [[update(1, lrs=(lr,))] for lr in (1, 2)]  # on minibatches that are not seen
    for runs in (search, closures, unknown):
        assert not the_one(learning_rates(ranks(*runs))).is_sure


def test_gradients_of_the_update_before():
    wrong = [update(1), update(2, kept=True), update(3, kept=True)]
    finding = the_one(gradients_kept(ranks(wrong, wrong)))
    assert (finding.ranks, finding.step) == ((0, 1), 2) and "zero_grad" in finding.repair
    for right in (
        [update(1), update(2, kept=True), update(3)],
        [update(1), update(2, kept=True)],
        [update(1), *(update(s, kept=True, backwards=2) for s in (2, 3))],
        [update(1), *(update(s, kept=True, closure=True) for s in (2, 3))],
        [*wrong, replace(update(4), optimizer=1)],
    ):
        assert gradients_kept(ranks(wrong, right)) == []


def test_clipping_before_the_reduction():
    def run(r, norm=3.0, later=1.5, most=1.0):
        return [Clipped(1, HERE, {"w": f"{r}"}, norm, most, clipped=prints(w=1.0 + r)), update(1, prints(w=later))]

    finding = the_one(clipped_before_the_reduction(ranks(run(0), run(1, 0.5))))
    note = the_one(clipped_before_the_reduction(ranks(run(0, later=1.6), run(1, 0.5, later=1.6))))
    assert not note.is_sure and "noise" in note.repair  # something was added to the average
    assert finding.is_sure and finding.ranks == (0, 1) and "3 on rank 0, 0.5 on rank 1" in finding.words
    assert clipped_before_the_reduction(ranks(run(0), run(0))) == []  # reduced before
    assert clipped_before_the_reduction(ranks(run(0, 0.5), run(1, 0.5))) == []  # nothing was clipped
    assert clipped_before_the_reduction(ranks(run(0), run(1, later=2.0))) == []  # never reduced
    assert clipped_before_the_reduction(ranks(run(0), [])) == []


def test_what_is_only_noted():
    never = [update(s, prints(w=s, b=None)) for s in (1, 2)]
    note = the_one(missing_gradients(ranks(never, never)))
    assert "1 of the optimizer's parameters" in note.words and "b." in note.words and not note.is_sure
    assert missing_gradients(ranks(never, [update(1)])) == []
    several = [update(s, backwards=4) for s in (1, 2)]
    note = the_one(several_backward_passes(ranks(several, several)))
    assert "divided by 4" in note.words and not note.is_sure
    assert several_backward_passes(ranks(several, [update(1)])) == []
    at_work = [Wrapped(1, HERE, (0, 1), "Net", 3), forward(1, "a", in_ddp=True, batch_norms=3)]
    note = the_one(statistics_per_rank(ranks(at_work, at_work)))
    assert "3 BatchNorm layers" in note.words and not note.is_sure
    assert statistics_per_rank(ranks([Wrapped(1, HERE, (0,), "Net", 3)])) == []
    on_cpu = [update(1, devices=("cpu",))]
    assert not the_one(train_on_cpu(ranks(on_cpu, on_cpu))).is_sure
    assert train_on_cpu(ranks(on_cpu, [update(1)])) == []


# devices and files


def test_all_ranks_on_one_gpu():
    wrapped = Wrapped(1, ("train.py", 3, "main"), (0, 1), "Net")
    finding = the_one(one_gpu(ranks([wrapped, update(1)], [wrapped, update(1)])))
    assert finding.ranks == (0, 1) and finding.place == wrapped.place and "cuda:0" in finding.words
    own = [[update(1, devices=(f"cuda:{r}",))] for r in (0, 1)]
    hidden = [[update(1, visible=f"{r}")] for r in (0, 1)]  # CUDA_VISIBLE_DEVICES: the number 0 is another GPU
    on_cpu = [[update(1, devices=("cpu",))]] * 2
    for right in (own, hidden, on_cpu):
        assert one_gpu(ranks(*right)) == []


def test_a_file_that_several_ranks_write():
    finding = the_one(one_file(ranks([Saved(3, HERE, "/a/x.pt")], [], [Saved(3, HERE, "/a/x.pt")])))
    assert (finding.ranks, finding.step) == ((0, 2), 3) and "x.pt" in finding.words
    assert one_file(ranks([Saved(3, HERE, "/a/0.pt")], [Saved(3, HERE, "/a/1.pt")])) == []


def test_a_checkpoint_that_is_loaded_to_gpu_0():
    saved = Saved(3, HERE, "/a/x.pt", on_gpu=True)
    load = Loaded(4, HERE, "/a/x.pt", mapped=False)
    assert the_one(loaded_to_gpu_0(ranks([saved, load], [load]))).ranks == (1,)
    assert the_one(loaded_to_gpu_0(ranks([], [replace(load, devices=("cuda:0",))]))).ranks == (1,)
    assert loaded_to_gpu_0(ranks([saved, load], [replace(load, mapped=True)])) == []
    assert loaded_to_gpu_0(ranks([load], [load])) == []


def test_names_that_begin_with_module():
    note = the_one(wrapper_in_names(ranks([Saved(3, HERE, "/a/x.pt", prefix="module.")])))
    assert "x.pt" in note.words and not note.is_sure
    assert wrapper_in_names(ranks([Saved(3, HERE, "/a/x.pt")])) == []
    compiled = ranks([Saved(3, HERE, "/a/x.pt", prefix="_orig_mod.")])
    assert the_one(wrapper_in_names(compiled)).repair == "Save model._orig_mod.state_dict()."
