"""The record of the diagnosis of hangs: faults that are drawn, and verdicts that know them."""

import json

import pytest

from benchmarks.records import hang_diagnosis
from benchmarks.records.hanging_jobs import LOOPS, Plan
from benchmarks.report import RESULTS
from notebook_ranks import Diagnosis


def test_draws_are_repeatable_and_reach_each_fault_and_loop():
    plans = [hang_diagnosis.draw(seed) for seed in range(2000)]
    assert plans[:20] == [hang_diagnosis.draw(seed) for seed in range(20)]
    assert {plan.fault for plan in plans} == set(hang_diagnosis.FAULTS) and {plan.loop for plan in plans} == set(LOOPS)
    assert {plan.world_size for plan in plans} == {2, 3, 4}
    assert not any(hang_diagnosis.draw(seed, healthy=True).fault for seed in range(50))


@pytest.mark.parametrize(
    ("found", "column"),
    [
        (Diagnosis(cause="size", rank=1, words=""), "right"),
        (Diagnosis(cause="dtype", rank=1, words=""), "wrong cause"),
        (Diagnosis(cause="dtype", rank=1, words="", is_sure=False), "right rank, cause open"),
        (Diagnosis(cause="size", rank=0, words=""), "wrong rank"),
        (Diagnosis(cause="size", rank=0, words="", is_sure=False), "wrong rank"),
        (Diagnosis(cause="size", rank=0, words="", is_sure=False, rank_is_sure=False), "unsure"),
        (Diagnosis(cause="", rank=None, words=""), "wrong cause"),
    ],
)
def test_a_verdict_knows_the_fault(found, column):
    assert hang_diagnosis.verdict(Plan("one_all_reduce", 3, "wrong size", 1), found) == column


def test_of_different_numbers_of_minibatches_the_rank_that_differs_is_right():
    plan = Plan("one_all_reduce", 3, "different numbers of minibatches", counts=(4, 3, 3))
    assert hang_diagnosis.verdict(plan, Diagnosis(cause="uneven", rank=0, words="")) == "right"
    assert hang_diagnosis.verdict(plan, Diagnosis(cause="uneven", rank=1, words="")) == "wrong rank"


def test_a_healthy_job_that_is_accused_is_a_false_accusation():
    plan = Plan("one_all_reduce", 3)
    assert hang_diagnosis.verdict(plan, Diagnosis(cause="slow", rank=1, words="")) == "wrong rank"
    assert hang_diagnosis.verdict(plan, Diagnosis(cause="", rank=None, words="")) == "right"


def test_the_kept_table_has_at_most_one_false_accusation_in_a_hundred():
    kept = json.loads((RESULTS / "hang-diagnosis-2-cores.json").read_text())
    assert kept["failed"] >= 200 and kept["healthy"] >= 100
    columns = hang_diagnosis.COLUMNS
    total = {c: sum(row.get(c, 0) for row in kept["by_fault"].values()) for c in columns}
    assert sum(total.values()) == kept["failed"] + kept["healthy"]
    assert 100 * (total["wrong rank"] + total["wrong cause"]) <= sum(total.values())


@pytest.mark.slow
def test_jobs_of_real_ranks_are_run_and_kept(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(hang_diagnosis, "TIMEOUT_S", 1.5)
    file = tmp_path / "records.pkl"
    hang_diagnosis.main(["--failed", "2", "--healthy", "1", "--pools", "1", "--keep", str(file)])
    shown = capsys.readouterr().out
    assert "all failed jobs" in shown and "(healthy)" in shown
    hang_diagnosis.main(["--again", str(file)])
    assert capsys.readouterr().out in shown
