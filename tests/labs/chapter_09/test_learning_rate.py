"""Scaling rules and the warm-up."""

import pytest

from d2lite.labs.chapter_09 import LR_RULES, scaled_lr, warm_up


def test_the_rules():
    assert [scaled_lr(0.1, 64, 256, rule) for rule in LR_RULES] == pytest.approx([0.1, 0.4, 0.2])
    assert scaled_lr(0.4, 256, 64) == pytest.approx(0.1)  # and back


def test_a_warm_up_ends_at_the_rate_and_starts_a_part_above_its_start():
    assert [warm_up(0.8, step, 4) for step in range(6)] == pytest.approx([0.2, 0.4, 0.6, 0.8, 0.8, 0.8])
    assert [warm_up(0.8, step, 4, start=0.4) for step in range(5)] == pytest.approx([0.5, 0.6, 0.7, 0.8, 0.8])
    assert warm_up(0.8, 0, 0) == warm_up(0.8, 10**6, 0) == 0.8


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: scaled_lr(0, 64, 128), ValueError, "lr: expected a finite number above 0, got 0"),
        (lambda: scaled_lr("0.1", 64, 128), TypeError, "lr: expected a finite number above 0, got '0.1'"),
        (lambda: scaled_lr(0.1, 0, 128), ValueError, "batch_size: expected a positive whole number, got 0"),
        (lambda: scaled_lr(0.1, 64, 1.5), TypeError, "new_batch_size: expected a positive whole number"),
        (lambda: scaled_lr(0.1, 64, 128, "cubic"), ValueError, "rule: expected one of same, linear, square root"),
        (lambda: warm_up(0.1, -1, 5), ValueError, "step: expected a whole number from 0 on, got -1"),
        (lambda: warm_up(0.1, 0, -5), ValueError, "num_steps: expected a finite number from 0 on, got -5"),
        (lambda: warm_up(0.1, 0, 5, start=-1), ValueError, "start: expected a finite number from 0 on"),
    ],
)
def test_what_is_no_rate_is_refused(call, error, words):
    with pytest.raises(error, match=words):
        call()
