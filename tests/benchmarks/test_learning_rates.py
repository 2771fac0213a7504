"""What chapter 9 says in words about the record of learning rates, without figures, and how a record is made."""

import pytest

from benchmarks.quotes import RATES, _kept, grid_column, linear_against_root
from benchmarks.records import learning_rates
from benchmarks.records.learning_rates import BATCH_SIZES, LRS


@pytest.fixture(scope="module")
def record():
    return _kept(RATES)


def test_no_effect_of_warm_up_is_shown(record):
    rows = [row for row in record["arms"] if row["settings"]["warm_up_epochs"]]
    assert len(rows) == 4 and not any(row["shown"] or row["renewed_shown"] for row in rows)


def test_the_linear_rule_is_shown_to_be_better_than_the_square_root_for_sgd_with_decay_and_for_adam():
    assert linear_against_root("SGD with decay").low > 0 and linear_against_root("Adam").low > 0


def test_the_grid_is_as_the_chapter_reads_it():
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
    assert [len(found[part]) for part in ("arms", "noise")] == [20, 4]
