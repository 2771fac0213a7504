"""The comparison with one GPU on made-up runs: what is the same, what differs first, what cannot be compared."""

from dataclasses import replace

import pytest
import torch

from ddp_rehearsal.fingerprint import tensor_sample
from ddp_rehearsal.observations import Forward, Loaded, RankObservations, Sampled, Saved, Update
from ddp_rehearsal.same_as_one import compare_with_one

HERE = ("train.py", 7, "main")
NAMES = ("a", "b")


def train(
    k=1,
    num_steps=4,
    *,
    factor=1.0,
    lr=0.1,
    rounding=0.0,
    begin=0.0,
    rows=6,
    seen=None,
    dtype=torch.float64,
    at=1,
    adds=0.0,
    halves=False,
    closure=False,
    **facts,
):
    """Observations of k ranks: SGD on gradients that are drawn; from step `at` on a factor, a rate, more."""
    generator = torch.Generator().manual_seed(0)
    weights = {name: torch.randn(5, 7, generator=generator, dtype=torch.float64) + begin for name in NAMES}
    noted = [[] for _ in range(k)]
    for step in range(1, num_steps + 1):
        grads = {name: torch.randn(5, 7, generator=generator, dtype=torch.float64) for name in NAMES}
        changed = step >= at
        grads = {name: g * (factor if changed else 1) * (1 + rounding) for name, g in grads.items()}
        rate = lr if changed else 0.1
        changes = {name: -rate * g + (adds if changed else 0) for name, g in grads.items()}
        numbers = [f"{step} {i}" for i in range(rows)] if seen is None else [f"{step} {s}" for s in seen]
        for r, of in enumerate(noted):
            of.append(Forward(step, HERE, model=0, name="Net", rows=tuple(numbers[r::k]), **facts))
            of.append(Update(step, HERE, optimizer=0, name="SGD", lrs=(rate,), grads={}, weights={}, closure=closure))
        tensors = {"weights": weights, "grads": grads, "changes": changes}
        samples = {what: {n: tensor_sample(t.to(dtype)) for n, t in of.items()} for what, of in tensors.items()}
        types = dict.fromkeys(NAMES, str(dtype).removeprefix("torch."))
        noted[0].append(Sampled(step, HERE, optimizer=0, **samples, dtypes=types, halves=halves))
        weights = {name: weights[name] + changes[name] for name in NAMES}
    return [RankObservations(r, of) for r, of in enumerate(noted)]


def compared(k=2, one=None, **facts):
    return compare_with_one((one or train())[0], train(k, **facts))


@pytest.mark.parametrize("k", [1, 2, 3])
def test_the_same_updates_are_the_same(k):
    found = compared(k)
    assert (found.finding, found.steps, found.largest, found.ended) == (None, 4, 0, "")
    found = compared(k, rounding=1e-13)
    assert found.finding is None and found.steps == 4 and 0 < found.largest < 1e-9


@pytest.mark.parametrize(
    ("facts", "step", "words"),
    [
        ({"lr": 0.2}, 1, "the learning rate of step 1 is 0.1 on 1 GPU and 0.2 on 2, so that the weights (a) differ"),
        ({"lr": 0.2, "at": 3}, 3, "the learning rate of step 3 is 0.1 on 1 GPU and 0.2 on 2"),
        ({"factor": 2}, 1, "the gradients (a) of step 1 are 2 times as large as on 1 GPU: they are added up"),
        ({"factor": 0.5}, 1, "the gradients (a) of step 1 are 2 times smaller than on 1 GPU"),
        ({"factor": 1.1, "at": 2}, 2, "the gradient of a in step 2 is not that of 1 GPU"),
        ({"factor": 1 + 1e-6}, 1, "the gradient of a in step 1 is not that of 1 GPU"),
        ({"adds": 1e-4, "at": 2}, 2, "the weights (a) after the update of step 2 are not those of 1 GPU"),
        ({"begin": 1e-3}, 1, "the weights (a) before the first update are not the same on 1 GPU and on 2"),
        ({"factor": float("nan"), "at": 3}, 3, "the gradient of a in step 3"),
    ],
)
def test_the_first_difference_is_named(facts, step, words):
    found = compared(**facts)
    assert words in found.finding.words and found.finding.repair
    assert (found.finding.kind, found.finding.step, found.finding.place) == ("same", step, HERE)
    assert found.finding.is_sure and found.steps == step - 1


def test_a_tensor_that_differs_alone_is_named():
    run = train(2)
    first = run[0].of(Sampled)[0]
    wrong = replace(first, grads={**first.grads, "b": None})
    found = compare_with_one(train()[0], [replaced(run[0], first, wrong), run[1]]).finding
    assert "the gradient of b" in found.words and found.is_sure


def replaced(run, old, new):
    return replace(run, noted=[new if other is old else other for other in run.noted])


def test_ranks_with_different_numbers_of_rows_are_told():
    found = compared(2, one=train(rows=5), rows=5, factor=1.1).finding
    assert "The ranks had 3 and 2 rows." in found.words


@pytest.mark.parametrize("layer", ["drops_out", "batch_norms"])
def test_what_may_be_right_is_a_note(layer):
    facts = {layer: True}
    note = compared(one=train(**facts), factor=1.1, **facts).finding
    assert not note.is_sure and {"drops_out": "dropout", "batch_norms": "BatchNorm"}[layer] in note.words
    assert compared(one=train(**facts), lr=0.2, **facts).finding.is_sure  # no layer explains that
    assert compared(one=train(**facts), factor=2, **facts).finding.is_sure


def test_different_examples_cannot_be_compared():
    note = compared(rows=12).finding
    assert (
        not note.is_sure and "did not see the same examples in step 1, so they cannot be compared: 6 on 1" in note.words
    )
    assert "12 on 2 GPUs together" in note.words and "--same" in note.repair
    note = compared(seen="a1234b").finding
    assert "only 4 of 6 are the same" in note.words and "DistributedSampler" in note.repair
    assert compared(seen="543210").finding is None  # in a different order
    assert compared(rows=0).finding is None  # not known
    many = train(rows=4096)
    assert compared(one=many, rows=8000).finding is None  # not all rows of one GPU were read


def test_all_rows_on_each_rank_are_the_same_examples():
    run = [RankObservations(r, train()[0].noted if r == 0 else train()[0].of(Forward)) for r in range(2)]
    assert compare_with_one(train()[0], run).finding is None


def test_what_else_keeps_runs_from_being_compared():
    def of(one, run):
        found = compare_with_one(one, run)
        assert not found.finding.is_sure and found.finding.repair
        return found.finding.words

    one, run = train()[0], train(2)
    assert "one has made no update" in of(RankObservations(0), run)
    assert "made 4 updates, and that on 2 made 3" in of(one, train(2, num_steps=3))
    loaded = RankObservations(0, [Loaded(1, HERE, "/x/net.pt", False), *one.noted])
    saved = [RankObservations(0, [*run[0].noted, Saved(5, HERE, "/x/net.pt")]), run[1]]
    assert "begins with net.pt, which that on 2 has saved" in of(loaded, saved)
    assert compare_with_one(loaded, run).finding is None  # both have loaded it
    first = one.of(Sampled)[0]
    other = replace(first, weights={"c": first.weights["a"]}, grads={}, changes={}, dtypes={"c": "float64"})
    assert "different tensors" in of(replaced(one, first, other), run)


def test_weights_that_are_changed_between_updates():
    run = train(2)
    third = run[0].of(Sampled)[2]
    moved = replace(third, weights={**third.weights, "b": tuple(2 * x for x in third.weights["b"])})
    found = compare_with_one(train()[0], [replaced(run[0], third, moved), run[1]]).finding
    assert found.is_sure and found.step == 3 and "the weights (b) are changed between two updates" in found.words


def test_gradients_of_a_closure_are_not_compared():
    found = compared(one=train(closure=True), factor=2, adds=0.0, lr=0.1, closure=True).finding
    assert "the weights (a) after the update of step 1" in found.words


def test_gradients_that_are_zero_but_for_rounding_are_the_same():
    """The bias of keys in an attention: Adam makes changes of what is only noise."""
    one, run = train()[0], train(2)
    for sign, of in ((1, one), (-1, run[0])):
        for sampled in of.of(Sampled):
            noise = (4e-15, 1e-15, *(sign * 1e-15 for _ in range(7)))
            change = (0.2, 0.1, *(sign * 0.1 for _ in range(7)))
            weight = (0.2, 0.1, *(sign * 0.1 * (sampled.step - 1) for _ in range(7)))
            for of_sampled, sample in ((sampled.grads, noise), (sampled.changes, change), (sampled.weights, weight)):
                of_sampled["c"] = sample
            sampled.dtypes["c"] = "float64"
    found = compare_with_one(one, run)
    assert found.finding is None and found.steps == 4


def test_rounding_that_has_grown_ends_the_comparison_of_tensors():
    float32 = {"dtype": torch.float32}
    assert compared(one=train(**float32), rounding=2e-3, at=9, **float32).finding is not None  # in the first step
    one, run = train(num_steps=6, **float32)[0], train(2, num_steps=6, **float32)
    for sampled in run[0].of(Sampled)[1:]:  # grows from step 2 on
        grown = tuple(x * (1 + 0.005 * sampled.step) for x in sampled.grads["a"])
        sampled.grads["a"] = grown
    found = compare_with_one(one, run)
    assert found.finding is None and found.steps == 2 and "rounding had grown" in found.ended
    scheduled = [replace(u, lrs=(1.0,)) if u.step == 5 else u for u in run[0].noted if isinstance(u, Update)]
    noted = [*[e for e in run[0].noted if not isinstance(e, Update)], *scheduled]
    found = compare_with_one(one, [RankObservations(0, noted), run[1]])
    assert found.finding.step == 5 and found.steps == 2  # rates are compared on


def test_sixteen_bits_round_more():
    halves = {"halves": True, "dtype": torch.float32}
    found = compared(one=train(**halves), rounding=5e-3, **halves)
    assert found.finding is None and found.steps < 4 and found.ended
    assert compared(one=train(**halves), factor=1.1, **halves).finding.is_sure
