"""Comparing two arms: Student's distribution against tables, false alarms and power over simulated pairs, its words."""

import doctest
import random

import pytest

from d2lite.profiling import ArmComparison, compare_arms, seeds_needed, significance, student_quantile

# probability, degrees of freedom, t: Abramowitz and Stegun, table 26.10
TABLE = [
    (0.9, 1, 3.078), (0.975, 1, 12.706), (0.975, 4, 2.776), (0.995, 4, 4.604), (0.975, 10, 2.228),
    (0.995, 8, 3.355), (0.95, 30, 1.697), (0.995, 120, 2.617),
]  # fmt: skip


@pytest.mark.parametrize(("probability", "freedom", "t"), TABLE)
def test_student_quantiles_are_those_of_the_tables(probability, freedom, t):
    assert student_quantile(probability, freedom) == pytest.approx(t, abs=6e-4)
    assert student_quantile(1 - probability, freedom) == pytest.approx(-t, abs=6e-4)


def shown(num_pairs, num_seeds, difference=0.0, spread=1.0):
    draw = random.Random(num_seeds).gauss
    pairs = [
        ([draw(0, 1) for _ in range(num_seeds)], [draw(difference, spread) for _ in range(num_seeds)])
        for _ in range(num_pairs)
    ]
    return sum(compare_arms(a, b).is_shown for a, b in pairs) / num_pairs


@pytest.mark.parametrize("num_seeds", [2, 3, 5, 8])
@pytest.mark.parametrize("spread", [1.0, 3.0])
def test_equal_arms_are_found_different_in_less_than_5_percent_of_200_pairs(num_seeds, spread):
    assert shown(200, num_seeds, spread=spread) < 0.05


def shown_in_pairs(num_pairs, num_seeds, difference=0.0, spread=1.0, paired=True):
    """The share that is shown if a seed gives the same to both arms, and each arm has a spread of its own."""
    draw, found = random.Random(num_seeds).gauss, 0
    for _ in range(num_pairs):
        of_seed = [draw(0, 3) for _ in range(num_seeds)]
        a = [value + draw(0, 0.5**0.5) for value in of_seed]
        b = [value + draw(difference, 0.5**0.5 * spread) for value in of_seed]
        found += compare_arms(a, b, paired=paired).is_shown
    return found / num_pairs


@pytest.mark.parametrize("num_seeds", [2, 3, 5, 8])
@pytest.mark.parametrize("spread", [1.0, 3.0])
def test_equal_arms_with_equal_seeds_are_found_different_in_less_than_5_percent(num_seeds, spread):
    assert shown_in_pairs(200, num_seeds, spread=spread) < 0.05


def test_power_in_pairs_is_what_seeds_needed_promises_for_the_spread_of_the_differences():
    for difference in (1.5, 3.0):
        n = seeds_needed(difference, 1.0, 0.0)
        assert 0.7 < shown_in_pairs(200, n, difference) < 0.95
    assert shown_in_pairs(200, 5, 3.0) > 0.7 > 0.2 > shown_in_pairs(200, 5, 3.0, paired=False)


def test_the_interval_in_pairs_is_that_of_the_differences():
    paired = compare_arms([1.0, 2.0, 4.0], [2.0, 4.0, 5.0], confidence=0.95, paired=True)
    reach = student_quantile(0.975, 2) * (1 / 3) ** 0.5 / 3**0.5  # differences 1, 2, 1: variance 1/3
    assert (paired.low, paired.high) == pytest.approx((4 / 3 - reach, 4 / 3 + reach))
    assert paired.paired_spread == pytest.approx((1 / 3) ** 0.5)
    assert compare_arms([1.0, 2.0, 4.0], [2.0, 4.0, 5.0]).paired_spread is None
    assert compare_arms([0.1, 0.3], [0.2, 0.5], paired=True).seeds_needed == seeds_needed(0.15, 0.05 * 2**0.5, 0.0)
    assert compare_arms([0.1, 0.3], [0.1, 0.3], paired=True).is_shown is False


def test_the_examples_run():
    assert doctest.testmod(significance).failed == 0


def test_its_power_is_what_seeds_needed_promises():
    for difference in (1.5, 3.0):
        n = seeds_needed(difference, 1.0, 1.0)
        assert 0.7 < shown(200, n, difference) < 0.95
    assert shown(200, 5, 3.0) > 0.7 > shown(200, 3, 3.0)


def test_more_seeds_are_needed_for_smaller_differences_and_none_are_enough_for_nothing():
    needed = [seeds_needed(difference, 1.0, 1.0) for difference in (0.25, 0.5, 1.0, 2.0, 4.0)]
    assert needed == sorted(needed, reverse=True) and 3.5 < needed[0] / needed[1] < 4.5
    assert seeds_needed(0.0, 1.0, 1.0) is None and seeds_needed(0.01, 1.0, 1.0) is None
    assert seeds_needed(0.1, 0.0, 0.0) == 2


def test_welch_interval_of_a_worked_example():
    comparison = compare_arms([1.0, 2.0, 3.0], [2.0, 4.0, 6.0, 8.0], confidence=0.95)
    error = (1 / 3 + (20 / 3) / 4) ** 0.5
    freedom = (1 / 3 + 5 / 3) ** 2 / ((1 / 3) ** 2 / 2 + (5 / 3) ** 2 / 3)
    reach = student_quantile(0.975, freedom) * error
    assert (comparison.low, comparison.high) == pytest.approx((3 - reach, 3 + reach))
    assert comparison.means == (2.0, 5.0) and comparison.num_seeds == (3, 4)


def test_in_words():
    assert compare_arms([0.7, 0.71, 0.72], [0.9, 0.91, 0.92]).in_words("A", "B") == (
        "Shown: B +20.0 points against A (99% interval +16.2 to +23.8)."
    )
    words = str(compare_arms([0.7, 0.71, 0.72], [0.70, 0.72, 0.72]))
    assert words.startswith("Not shown: the second arm +0.3 points against") and "seeds per arm" in words
    assert "more than 1,000 seeds" in str(compare_arms([0.7, 0.8], [0.8, 0.7]))


def test_arms_without_any_spread():
    same, other = compare_arms([0.1, 0.1], [0.1, 0.1]), compare_arms([0.1, 0.1], [0.9, 0.9])
    assert isinstance(same, ArmComparison) and not same.is_shown and same.seeds_needed is None
    assert other.is_shown and other.low == other.high == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (([0.5], [0.5, 0.6]), ValueError, r"a: expected results of two seeds or more, got 1"),
        (([0.5, 0.6], []), ValueError, r"b: expected results of two seeds or more, got 0"),
        (([0.5, float("nan")], [0.5, 0.6]), ValueError, r"a\[1\]: expected a finite number, got nan"),
        ((["0.5", 0.6], [0.5, 0.6]), TypeError, r"a\[0\]: expected a finite number, got '0.5'"),
        (([0.5, 0.6], [0.5], 0.99, True), ValueError, "b: expected results of two seeds or more, got 1"),
        (([0.5, 0.6], [0.5, 0.6, 0.7], 0.99, True), ValueError, "b: expected 2 results, one per seed of a, got 3"),
        (([0.5, 0.6], [0.5, 0.6], 1.5), ValueError, "confidence: expected a number between 0 and 1, got 1.5"),
    ],
)
def test_what_is_no_arm_is_refused(arguments, error, words):
    with pytest.raises(error, match=words):
        compare_arms(*arguments)


@pytest.mark.parametrize("arguments", [(1.0, -1.0, 1.0), (1.0, 1.0, float("inf")), (1.0, 1.0, 1.0, 0.99, 1.0)])
def test_seeds_needed_refuses_impossible_numbers(arguments):
    with pytest.raises(ValueError, match="expected a"):
        seeds_needed(*arguments)


@pytest.mark.parametrize("arguments", [(0.0, 5), (0.5, 0)])
def test_student_quantile_refuses_impossible_numbers(arguments):
    with pytest.raises(ValueError, match="expected a"):
        student_quantile(*arguments)
