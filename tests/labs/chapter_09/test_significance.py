"""Comparing two arms: Student's distribution against tables, false alarms and power over simulated pairs, its words."""

import collections
import doctest
import itertools
import math
import random

import pytest

from d2lite.labs.chapter_09 import ArmComparison, compare_arms, seeds_needed, significance, student_quantile

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
    paired = compare_arms([1.0, 2.1, 4.3], [2.0, 5.1, 6.3], confidence=0.95, paired=True)
    reach = student_quantile(0.975, 2) / 3**0.5  # differences 1, 3, 2: variance 1
    assert (paired.low, paired.high) == pytest.approx((2 - reach, 2 + reach))
    assert paired.paired_spread == pytest.approx(1.0)
    assert compare_arms([1.0, 2.1, 4.3], [2.0, 5.1, 6.3]).paired_spread is None
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
    comparison = compare_arms([1.0, 2.0, 3.0], [2.5, 4.5, 6.5, 8.5], confidence=0.95)
    error = (1 / 3 + (20 / 3) / 4) ** 0.5
    freedom = (1 / 3 + 5 / 3) ** 2 / ((1 / 3) ** 2 / 2 + (5 / 3) ** 2 / 3)
    reach = student_quantile(0.975, freedom) * error
    assert (comparison.low, comparison.high) == pytest.approx((3.5 - reach, 3.5 + reach))
    assert comparison.means == (2.0, 5.5) and comparison.num_seeds == (3, 4)


def test_in_words():
    assert compare_arms([0.7, 0.71, 0.72], [0.9, 0.91, 0.92]).in_words("A", "B") == (
        "Shown: B: +20.0 points against A (99% interval +16.2 to +23.8)."
    )
    words = str(compare_arms([0.7, 0.71, 0.72], [0.70, 0.72, 0.72]))
    assert words.startswith("Not shown: the second arm: +0.3 points against") and "seeds per arm" in words
    assert "more than 1,000 seeds" in str(compare_arms([0.7, 0.8], [0.8, 0.7]))


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("num_seeds", [2, 3, 5])
def test_equal_results_have_an_unknown_spread_and_not_none(num_seeds, paired):
    for low, high in ((0.1, 0.1), (0.1, 0.9), (0.1 + 0.2, 0.3)):
        found = compare_arms([low] * num_seeds, [high] * num_seeds, paired=paired)
        assert isinstance(found, ArmComparison) and not found.is_shown
        assert found.low <= high - low <= found.high
        assert str(found).startswith("Cannot tell: ") and str(found).endswith("spread is not known. Take more seeds.")
    shifted = compare_arms([0.7, 0.75, 0.8][:num_seeds], [0.71, 0.76, 0.81][:num_seeds], paired=True)
    assert "The differences of all seeds are equal" in str(shifted)
    assert compare_arms([0.1] * 12, [0.9] * 12, paired=paired).is_shown  # by chance only once in 2**11 or less


def test_results_that_repeat_have_half_a_step_as_their_least_spread():
    results = [0.70, 0.70, 0.70], [0.75, 0.75, 0.76]
    found = compare_arms(*results)
    assert found.least_spread == pytest.approx(0.005) and found.spreads[0] == 0.0
    error = (0.005**2 / 3 + found.spreads[1] ** 2 / 3) ** 0.5
    assert found.high - found.difference == pytest.approx(error * student_quantile(0.995, 3.92) + 0.01 / 6, rel=1e-3)
    assert compare_arms([0.70, 0.71, 0.72], [0.75, 0.74, 0.76]).least_spread < 1e-6  # nothing repeats
    paired = compare_arms([0.70, 0.71, 0.74], [0.72, 0.73, 0.77], paired=True)  # differences 0.02, 0.02, 0.03
    assert paired.least_spread == pytest.approx(0.005) and paired.is_shown is False
    paired = compare_arms([0.70, 0.71, 0.70], [0.72, 0.70, 0.74], paired=True)  # 0.70 repeats, and no difference
    assert paired.least_spread == pytest.approx(0.005 * 2**0.5)  # two results, each with half a step


def chance_of_shown(values, chances, num_seeds, paired):
    """The exact probability that equal arms are shown, for results that have `values` with these `chances`."""
    of_seed = list(zip(values, chances, strict=True))
    if paired:  # one draw is a pair
        of_seed = [((a, b), p * q) for a, p in of_seed for b, q in of_seed]
    draws = []
    for drawn in itertools.combinations_with_replacement(of_seed, num_seeds):
        orders = math.factorial(num_seeds)
        for n in collections.Counter(drawn).values():
            orders //= math.factorial(n)
        draws.append(([value for value, _ in drawn], orders * math.prod(p for _, p in drawn)))
    assert sum(chance for _, chance in draws) == pytest.approx(1.0)
    if paired:
        return sum(p for draw, p in draws if compare_arms(*zip(*draw, strict=True), paired=True).is_shown)
    return sum(2 * p * q for (a, p), (b, q) in itertools.combinations(draws, 2) if compare_arms(a, b).is_shown)


def binomial(num_images, accuracy):
    """(values, chances) of an accuracy that is measured on so many test images."""
    chances = [
        math.comb(num_images, n) * accuracy**n * (1 - accuracy) ** (num_images - n) for n in range(num_images + 1)
    ]
    return [n / num_images for n in range(num_images + 1)], chances


GRADED = {
    "two values": ([0.1, 0.9], [0.5, 0.5]),
    "two values, one rare": ([0.1, 0.9], [0.8, 0.2]),
    "three values": ([0.7, 0.71, 0.72], [1 / 3] * 3),
    "two images": binomial(2, 0.5),
    "four images": binomial(4, 0.9),
    "a normal, rounded to its spread": ([-2, -1, 0, 1, 2], [0.0668, 0.2417, 0.383, 0.2417, 0.0668]),
}
CASES = [(name, n, paired) for name in GRADED for n in (2, 3, 5, 10) for paired in (False, True)]


def num_draws(name, num_seeds, paired):
    num_values = len(GRADED[name][0]) ** (2 if paired else 1)
    return math.comb(num_values + num_seeds - 1, num_seeds) ** (1 if paired else 2)


@pytest.mark.parametrize(("name", "num_seeds", "paired"), [case for case in CASES if num_draws(*case) < 2_000])
def test_graded_results_of_equal_arms_are_shown_in_at_most_1_percent(name, num_seeds, paired):
    assert chance_of_shown(*GRADED[name], num_seeds, paired) <= 0.01


@pytest.mark.slow
@pytest.mark.parametrize(("name", "num_seeds", "paired"), [c for c in CASES if 2_000 <= num_draws(*c) < 20_000])
def test_many_graded_results_of_equal_arms_are_shown_in_at_most_1_percent(name, num_seeds, paired):
    assert chance_of_shown(*GRADED[name], num_seeds, paired) <= 0.01


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
