"""The record behind chapter 6: it is measured with the chapter's own functions, and holds plain numbers."""

import json
import os

import pytest

from benchmarks.records import horovod_arms
from benchmarks.report import RESULTS

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Workers needs Linux or macOS")


def test_all_variants_of_the_chapter_are_among_the_arms():
    names = horovod_arms.chapter_names(256)
    assert {variant for variant, *_ in horovod_arms.ARMS.values()} == set(horovod_arms.VARIANTS)
    hvd, forgetful, wrong = (names[variant] for variant in horovod_arms.VARIANTS)
    assert forgetful.broadcast_parameters is names["nothing"] and forgetful.allreduce is hvd.allreduce
    assert wrong.DistributedOptimizer is names["AveragesParameters"] is not hvd.DistributedOptimizer


@pytest.mark.slow
def test_each_arm_has_a_loss_and_an_accuracy_per_seed_and_rank():
    arms = {name: horovod_arms.ARMS[name] for name in ("small, 0.02", "no broadcast, 0.02")}
    record = horovod_arms.record(arms, num_examples=256, num_epochs=1, num_seeds=2)
    assert json.loads(json.dumps(record)) == record
    assert record["seeds"] == [0, 1] and record["num_examples"] == 256
    right, forgotten = record["arms"]
    for row in (right, forgotten):
        for what in ("losses", "accuracies"):
            assert [len(ranks) for ranks in row[what]] == [2, 2], (row["name"], what)
    assert all(a == b for a, b in right["accuracies"]), "the ranks must train one network"
    assert right["accuracies"][0] != right["accuracies"][1], "the seeds must differ"
    assert any(a != b for a, b in forgotten["accuracies"]), "without the broadcast there are two networks"


def test_the_kept_record_has_the_arms_at_the_learner_s_size():
    kept = json.loads((RESULTS / "horovod-arms-2-cores.json").read_text())
    arms = {row["name"]: (row["variant"], row["rank_batch"], row["lr"]) for row in kept["arms"]}
    assert arms == horovod_arms.ARMS
    assert (kept["num_examples"], kept["num_epochs"]) == (horovod_arms.NUM_EXAMPLES, horovod_arms.NUM_EPOCHS)
    assert all(len(row[what]) == horovod_arms.NUM_SEEDS for row in kept["arms"] for what in ("losses", "accuracies"))
