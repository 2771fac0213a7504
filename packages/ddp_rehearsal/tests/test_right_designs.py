"""What right scripts do that looks like a bug: no rule accuses it, on made-up observations."""

from dataclasses import replace

import pytest

from ddp_rehearsal.observations import (
    Evaluated,
    Loaded,
    LoaderBegins,
    NotObserved,
    Opened,
    Reduced,
    Saved,
    State,
    Strangers,
)
from ddp_rehearsal.ranks import Outcome
from ddp_rehearsal.report import run_facts
from ddp_rehearsal.rules.collectives import reductions_in_another_order
from ddp_rehearsal.rules.copies import copies, replicas
from ddp_rehearsal.rules.examples import equal_minibatches, forgotten_set_epoch, padded_evaluation
from ddp_rehearsal.rules.files import loaded_to_gpu_0, one_file
from ddp_rehearsal.rules.optimizers import not_held
from ddp_rehearsal.rules.script_text import averages_weights
from packages.ddp_rehearsal.tests.packing import packed
from packages.ddp_rehearsal.tests.test_rules import HERE, JOINED, forward, prints, ranks, the_one, update


def begins(**facts):
    return LoaderBegins(
        1, HERE, **{"loader": 0, "epoch": 0, "sampler": "DistributedSampler", "shuffles": True, **facts}
    )


def two_epochs(**facts):
    first, second = ({"sampler_epoch": 0, "seed": 0, **{name: of[i] for name, of in facts.items()}} for i in (0, 1))
    trained = [forward(1, "a", loader=0, epoch=0), forward(2, "b", loader=0, epoch=1)]
    return ranks([begins(**first), begins(epoch=1, **second), *trained])


def test_a_sampler_whose_number_is_not_known_or_whose_seed_changes():
    assert "set_epoch was not called" in the_one(forgotten_set_epoch(two_epochs())).words
    assert forgotten_set_epoch(two_epochs(sampler_epoch=(-1, -1))) == []
    assert forgotten_set_epoch(two_epochs(seed=(0, 1))) == []
    assert forgotten_set_epoch(two_epochs(sampler=("mmdet.DistributedSampler",) * 2)) == []


def test_a_teacher_in_training_is_no_evaluation_and_a_largest_time_counts_nothing():
    loader = begins(repeats=1, num_examples=101)
    reduced = Reduced(3, HERE, "all_reduce", 1)
    evaluation = [loader, Evaluated(3, HERE, 0, 0), reduced]
    assert the_one(padded_evaluation(ranks(evaluation))).is_sure
    assert padded_evaluation(ranks([forward(1, "a", loader=0), *evaluation])) == []
    assert padded_evaluation(ranks([*evaluation[:2], replace(reduced, adds_up=False)])) == []


def test_each_rank_loads_its_own_checkpoint_or_sees_its_own_gpu_alone():
    saved, load = Saved(3, HERE, "/a/1.pt", on_gpu=True), Loaded(4, HERE, "/a/1.pt", mapped=False)
    assert loaded_to_gpu_0(ranks([], [saved, load])) == []
    alone = [replace(load, devices=("cuda:0",)), update(1, devices=("cuda:0",), visible="1")]
    assert loaded_to_gpu_0(ranks([], alone)) == []


def test_ranks_elect_one_by_a_file_that_only_one_can_make():
    claims = [[Opened(1, HERE, "/a/claimed", "x")] for _ in range(2)]
    assert one_file(ranks(*claims)) == []


def test_a_network_that_computes_a_part_on_each_rank():
    run = [forward(s, f"{s}", output="y") for s in (1, 2)] + [update(1), update(2)]
    assert the_one(equal_minibatches(ranks(run, run))).is_sure
    gathers = [*run, Reduced(1, HERE, "all_gather", 8, in_forward=True)]
    assert not the_one(equal_minibatches(ranks(gathers, gathers))).is_sure


def test_ranks_of_two_groups_are_not_named_together():
    runs = [[forward(s, f"{s} {half}", output=half) for s in (1, 2)] + [update(1), update(2)] for half in "aabb"]
    assert the_one(equal_minibatches(ranks(*runs))).ranks == (0, 1)


LOCAL = """
for step in range(100):
    train()
    if step % 50 == 49:
        for param in model.parameters():
            dist.all_reduce(param.data)
"""
OF_GRADIENTS = """
def average(model):
    for param in model.parameters():
        dist.all_reduce(param.grad)
"""


@pytest.mark.parametrize(("text", "is_sure"), [(LOCAL, False), (OF_GRADIENTS, True), ("train()", True)])
def test_weights_that_are_averaged_after_more_steps_than_were_seen(tmp_path, text, is_sure):
    (path := tmp_path / "train.py").write_text(text)
    there = (str(path), 1, "main")
    assert averages_weights(there) is not is_sure
    of = [
        [
            JOINED,
            begins(),
            forward(1, f"{r}", loader=0),
            replace(update(1, prints(w=[r, 3.0, 5, 7]), prints(w=[r, 1])), place=there),
        ]
        for r in (1, 2)
    ]
    assert the_one(copies(ranks(*of))).is_sure is is_sure


def test_equal_values_that_were_read_do_not_show_that_all_are_equal():
    one, other = update(1), replace(update(1), weights={"w": ("another digest", packed(1, 2, 1, 2)), **prints(b=-1)})
    assert replicas(ranks([one], [one]))
    same = replace(one, weights={"w": ("a digest", packed(1, 2, 1, 2)), **prints(b=-1)})
    assert not replicas(ranks([same], [other])) and copies(ranks([same], [other])) == []


def test_a_tensor_of_an_optimizer_that_is_used_later():
    state = State(3, HERE, model=0, name="Net", params=prints(w=1), unheld=("a", "b", "c"))
    assert not the_one(not_held(ranks([update(1), state, Strangers(2, HERE, 0, ((3, 4),))]))).is_sure


def test_reductions_in_groups_of_their_own():
    calls = [[Reduced(1, ("train.py", line, "main"), "all_reduce", 1, group=(r,)) for line in of]
             for r, of in enumerate(((3, 4), (4, 3)))]  # fmt: skip
    assert reductions_in_another_order(ranks(*calls)) == []


def test_what_was_not_compared_or_observed_is_said():
    def facts(*noted):
        observed = ranks(list(noted), list(noted))
        return " ".join(run_facts(Outcome(observed=observed, ending="enough", seconds=1.0, outputs={}, offered=2)))

    assert "Sharded weights were not compared" in facts(update(1, sharded=True))
    assert "Not all of rank 1 was observed: KeyError: 3" in facts(update(1), NotObserved(1, None, "KeyError: 3"))
    assert "Sharded" not in facts(update(1)) and "observed" not in facts(update(1))
