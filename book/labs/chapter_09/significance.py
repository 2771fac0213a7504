"""Whether the accuracies of two arms, over seeds, differ by more than chance, and how many seeds it takes to see it.

Arms with seeds of their own have Welch's interval (Welch 1947, doi:10.1093/biomet/34.1-2.28): their spreads need not be
equal. Arms that share their seeds have Student's interval of the differences, seed by seed (Student 1908,
doi:10.1093/biomet/6.1.1). Student's distribution is computed here, from the incomplete beta function: the package needs
no statistics library.

Both intervals are those of normally distributed results. An accuracy is a count out of n test examples: its values have
steps, and a few of them are easily all equal. Their spread of zero would make every difference significant. So where
results repeat, the interval counts with half a step as the least spread, which two neighbouring values have that come
equally often, and with a continuity correction (Yates 1934, doi:10.2307/2983604).
"""

import bisect
import itertools
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from notebook_ranks.shared.checks import all_of, finite_number, positive_number

__all__ = ["CONFIDENCE", "ArmComparison", "compare_arms", "seeds_needed", "student_quantile"]

CONFIDENCE = 0.99  # a chapter makes many comparisons: at 95% one in twenty equal pairs would look different
POWER = 0.8
_MOST_SEEDS = 1000
_ROUNDING = 1e-9  # results that differ by less than this fraction are equal


@dataclass(frozen=True, kw_only=True)
class ArmComparison:
    """The difference of two arms: the mean of the second minus the mean of the first, with its interval.

    `spreads` are the standard deviations over the seeds, `num_seeds` their numbers. `paired_spread` is the standard
    deviation of the differences, one per seed, if the arms share their seeds; None otherwise. A spread that is smaller
    than `least_spread` counts as `least_spread` in the interval.
    """

    means: tuple[float, float]
    spreads: tuple[float, float]
    num_seeds: tuple[int, int]
    low: float
    high: float
    confidence: float
    paired_spread: float | None = None
    least_spread: float = 0.0

    @property
    def difference(self) -> float:
        """The second mean minus the first."""
        return self.means[1] - self.means[0]

    @property
    def seeds_needed(self) -> int | None:
        """How many seeds per arm would show a difference as large as this one, in four of five repetitions."""
        spreads = _that_count(self.spreads, self.paired_spread, self.least_spread)
        return seeds_needed(self.difference, *spreads, confidence=self.confidence)

    @property
    def is_shown(self) -> bool:
        """Whether the interval leaves out zero: the difference is larger than the spread explains."""
        return self.low > 0 or self.high < 0

    def in_words(self, first: str = "the first arm", second: str = "the second arm") -> str:
        """Return the result for accuracies (0..1) in words, in percentage points."""
        interval = f"{self.confidence:.0%} interval {100 * self.low:+.1f} to {100 * self.high:+.1f}"
        seen = f"{second}: {100 * self.difference:+.1f} points against {first} ({interval})"
        if self.is_shown:
            return f"Shown: {seen}."
        if max(_that_count(self.spreads, self.paired_spread)) <= _ROUNDING * max(map(abs, self.means)):
            equal = "results of each arm are" if self.paired_spread is None else "differences of all seeds are"
            return f"Cannot tell: {seen}. The {equal} equal: their spread is not known. Take more seeds."
        needed = self.seeds_needed
        if needed is None:
            return f"Not shown: {seen}. A difference this small would take more than {_MOST_SEEDS:,} seeds per arm."
        return f"Not shown: {seen}. To show one of this size takes about {needed} seeds per arm."

    def __str__(self) -> str:
        return self.in_words()


def compare_arms(
    a: Iterable[float], b: Iterable[float], confidence: float = CONFIDENCE, paired: bool = False
) -> ArmComparison:
    """Compare two arms by one result per seed of each, and return their difference with its interval.

    A seed that is good for one arm is often good for the other arm as well. Where both arms have the same seeds,
    `paired` therefore compares seed by seed: the part of the results that a seed gives to both arms does not widen the
    interval.

    If two arms of as many seeds are equal, at most 1% of the comparisons are "shown" at a confidence of 99%. This holds
    for results that are normal, rounded or not, that have two values, and for accuracies of few test examples. With
    different spreads it is approximate: 1.2% for five seeds, if one spread is three times the other. It does not hold
    for results in two groups that lie far apart, as where a part of the runs diverges: 2% with three seeds, more with
    two.

    Args:
        a, b: Results, for example accuracies after the same number of examples; two seeds or more of each.
        confidence: The confidence of the interval.
        paired: Whether result i of both arms has the same seed.

    Raises:
        TypeError: if a result is not a number.
        ValueError: if a result is not finite, an arm has fewer than two, `paired` arms have different numbers of
            results, or the confidence is not between 0 and 1.

    Example:
        >>> comparison = compare_arms([0.70, 0.72, 0.71, 0.69], [0.75, 0.74, 0.76, 0.75])
        >>> comparison.is_shown, round(comparison.difference, 3)
        (True, 0.045)
        >>> print(comparison)
        Shown: the second arm: +4.5 points against the first arm (99% interval +1.3 to +7.7).
        >>> print(compare_arms([0.70, 0.80, 0.60], [0.712, 0.81, 0.611], paired=True))
        Shown: the second arm: +1.1 points against the first arm (99% interval +0.5 to +1.7).
    """
    results = [all_of(name, values, finite_number) for name, values in (("a", a), ("b", b))]
    for name, values in zip("ab", results, strict=True):
        if len(values) < 2:
            raise ValueError(f"{name}: expected results of two seeds or more, got {len(values)}. One has no spread.")
    _between_0_and_1("confidence", confidence)
    means = statistics.fmean(results[0]), statistics.fmean(results[1])
    spreads = statistics.stdev(results[0]), statistics.stdev(results[1])
    num_seeds, paired_spread = (len(results[0]), len(results[1])), None
    if paired and num_seeds[0] != num_seeds[1]:
        raise ValueError(f"b: expected {num_seeds[0]} results, one per seed of a, got {num_seeds[1]}.")
    rounding = _ROUNDING * max(map(abs, [*results[0], *results[1]]))
    step = _smallest_step([*results[0], *results[1]], rounding)
    least_spread = max(rounding, step / 2)
    if paired:
        differences = [q - p for p, q in zip(*results, strict=True)]
        paired_spread = statistics.stdev(differences)
        least_spread *= 2**0.5  # of the difference of two
        step = _smallest_step(
            [*differences, *(-d for d in differences)], rounding
        )  # of equal arms, both signs are as likely
        least_spread = max(least_spread, step / 2)
    error, freedom = _standard_error(_that_count(spreads, paired_spread, least_spread), num_seeds)
    reach = student_quantile((1 + confidence) / 2, freedom) * error + step / 2 / max(num_seeds) if error else 0.0
    low, high = (means[1] - means[0] + sign * reach for sign in (-1, 1))
    return ArmComparison(
        means=means,
        spreads=spreads,
        num_seeds=num_seeds,
        low=low,
        high=high,
        confidence=confidence,
        paired_spread=paired_spread,
        least_spread=least_spread,
    )


def seeds_needed(
    difference: float, spread_a: float, spread_b: float, confidence: float = CONFIDENCE, power: float = POWER
) -> int | None:
    """Return how many seeds per arm show a true difference with a probability of `power`; None for more than 1,000.

    It is the smallest n for which the difference is at least (t of the confidence + t of the power) standard errors.
    This is the usual approximation (for example Cohen 1988, section 2.4). For arms that share their seeds, `spread_a`
    is the standard deviation of the differences, and `spread_b` is 0.

    Raises:
        TypeError: if an argument is not a number.
        ValueError: if a spread is below 0 or not finite, or confidence or power is not between 0 and 1.
    """
    difference = abs(finite_number("difference", difference))
    for name, spread in (("spread_a", spread_a), ("spread_b", spread_b)):
        if spread != 0:
            positive_number(name, spread)
    _between_0_and_1("confidence", confidence)
    _between_0_and_1("power", power)

    def is_enough(n: int) -> bool:
        error, freedom = _standard_error((spread_a, spread_b), (n, n))
        if not error:
            return difference > 0
        return (
            difference >= (student_quantile((1 + confidence) / 2, freedom) + student_quantile(power, freedom)) * error
        )

    numbers = range(2, _MOST_SEEDS + 1)  # one seed has no spread
    i = bisect.bisect_left(numbers, True, key=is_enough)
    return numbers[i] if i < len(numbers) else None


def student_quantile(probability: float, freedom: float) -> float:
    """Return t of Student's distribution with `freedom` degrees of freedom: a share of `probability` lies below it.

    Raises:
        ValueError: if `probability` is not between 0 and 1, or `freedom` not above 0.
        TypeError: if one of them is not a number.

    Example:
        >>> round(student_quantile(0.975, 10), 3)
        2.228
    """
    _between_0_and_1("probability", probability)
    positive_number("freedom", freedom)
    if probability < 0.5:
        return -student_quantile(1 - probability, freedom)
    low, high = 0.0, 1.0
    while _student_cdf(high, freedom) < probability and high < 1e9:
        high *= 2
    while high - low > 1e-10 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _student_cdf(middle, freedom) < probability else (low, middle)
    return (low + high) / 2


def _that_count(spreads: tuple[float, float], paired_spread: float | None, least: float = 0.0) -> tuple[float, float]:
    """Return the two spreads for the interval: those of the arms, or for pairs the one of the differences and 0."""
    a, b = (max(spread, least) for spread in spreads)
    return (a, b) if paired_spread is None else (max(paired_spread, least), 0.0)


def _smallest_step(results: Sequence[float], rounding: float) -> float:
    """Return the smallest difference between results that are not equal, if some are equal; 0 otherwise."""
    values = sorted(results)
    gaps = [following - value for value, following in itertools.pairwise(values)]
    steps = [gap for gap in gaps if gap > rounding]
    return min(steps) if steps and len(steps) < len(gaps) else 0.0


def _standard_error(spreads: Sequence[float], num_seeds: Sequence[int]) -> tuple[float, float]:
    """Return the standard error of the difference, and Welch's degrees of freedom (equation 28)."""
    parts = [spread**2 / n for spread, n in zip(spreads, num_seeds, strict=True)]
    total = sum(parts)
    if not total > 0:
        return 0.0, 1.0
    shares = [part / total for part in parts]
    return total**0.5, 1 / sum(share**2 / (n - 1) for share, n in zip(shares, num_seeds, strict=True) if share)


def _student_cdf(t: float, freedom: float) -> float:
    """The share below t >= 0 (DLMF 8.17, https://dlmf.nist.gov/8.17)."""
    return 1 - 0.5 * _incomplete_beta(freedom / (freedom + t * t), freedom / 2, 0.5)


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function, by its continued fraction (DLMF 8.17.22)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # there the fraction of the complement converges faster
        return 1 - _incomplete_beta(1 - x, b, a)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, 300):
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d, c = 1 / (1 + numerator * d), 1 + numerator / c
            value *= c * d
        if abs(c * d - 1) < 1e-14:
            break
    return math.exp(log_front) * value / a


def _between_0_and_1(name: str, value: float) -> None:
    if not 0 < positive_number(name, value) < 1:
        raise ValueError(f"{name}: expected a number between 0 and 1, got {value}. Try 0.95.")
