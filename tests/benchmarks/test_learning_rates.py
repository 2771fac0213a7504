"""What chapter 9 says in words about the record of learning rates, without figures, and how a record is made."""

import pytest

from benchmarks.quotes import RATES, _kept, arm_loss, best_lr, grid_column
from benchmarks.records import learning_rates
from benchmarks.records.learning_rates import BATCH_SIZES, LRS
from d2lite.profiling import compare_arms


@pytest.fixture(scope="module")
def record():
    return _kept(RATES)


def differences(record, row, of):
    (base,) = [r for r in record["arms"] if r["settings"]["name"] == row["against"]]
    return [100 * (b - a) for a, b in zip(base[of], row[of], strict=True)]


def test_no_warm_up_is_shown_and_the_four_differences_have_both_signs(record):
    rows = [row for row in record["arms"] if row["settings"]["warm_up_epochs"]]
    assert len(rows) == 4 and not any(row["shown"] or row["renewed_shown"] for row in rows)
    means = [sum(differences(record, row, "accuracies")) / 5 for row in rows]
    assert min(means) < 0 < max(means)
    assert all(abs(sum(differences(record, row, "renewed"))) / 5 < 1 for row in rows)


def test_no_change_alone_is_shown_nor_what_a_reset_leaves(record):
    assert len(record["changes"]) == 6 and len(record["kept"]) == 5
    for row in record["changes"][1:] + record["kept"][1:]:
        assert not row["shown"] and not row["renewed_shown"], row["settings"]["name"]


def test_new_statistics_give_back_more_than_half_with_the_linear_rule_and_less_at_the_same_rate():
    for base in ("SGD", "SGD with decay"):
        assert arm_loss(base, "linear", "renewed") < arm_loss(base, "linear", "accuracies") / 2
        assert arm_loss(base, "same", "renewed") > arm_loss(base, "same", "accuracies") / 2


def test_with_decay_warm_up_and_new_statistics_512_comes_closest_to_64(record):
    loss = {row["settings"]["name"]: 0 for row in record["arms"] if row["settings"]["batch_size"] == 512}
    for name in loss:
        (row,) = [r for r in record["arms"] if r["settings"]["name"] == name]
        (base,) = [r for r in record["arms"] if r["settings"]["name"] == name.split(",")[0]]
        loss[name] = sum(base["renewed"]) - sum(row["renewed"])
    assert min(loss, key=loss.get) == "SGD with decay, 8 times the minibatch, linear lr, warm-up"


def test_the_grid_is_as_the_chapter_reads_it():
    assert best_lr(32) == best_lr(64) == best_lr(512) == 0.8
    assert all(grid_column(512)[lr] < grid_column(64)[lr] for lr in LRS)
    near = {
        size: [lr for lr in LRS if grid_column(size)[lr] > max(grid_column(size).values()) - 0.5]
        for size in BATCH_SIZES
    }
    assert near[32][0] < near[512][0] and {lrs[-1] for lrs in near.values()} <= {0.8, 1.6}


@pytest.mark.slow
def test_a_small_record(monkeypatch):
    monkeypatch.setattr(learning_rates, "NUM_EXAMPLES", 600)
    monkeypatch.setattr(learning_rates, "NUM_EPOCHS", 1)
    monkeypatch.setattr(learning_rates, "LRS", (0.1,))
    monkeypatch.setattr(learning_rates, "BATCH_SIZES", (512,))
    monkeypatch.setattr(learning_rates, "ARM_SEEDS", range(2))
    found = learning_rates.record()
    (cell,) = found["grid"]["cells"]
    assert len(cell["accuracies"]) == len(cell["renewed"]) == 2
    assert [len(found[part]) for part in ("arms", "changes", "kept", "noise")] == [20, 6, 5, 4]
    base, row = found["changes"][:2]
    assert row["verdict"] == str(compare_arms(base["accuracies"], row["accuracies"], paired=True))
    assert row["renewed_verdict"] == str(compare_arms(base["renewed"], row["renewed"], paired=True))
    assert "verdict" not in base and row["against"] == "nothing changed"
