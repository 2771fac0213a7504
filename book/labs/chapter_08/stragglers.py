"""Stragglers: k devices that wait for each other take the time of the slowest. Its expected value is computed here."""

from collections.abc import Iterable
from functools import cache
from statistics import NormalDist

from notebook_ranks.shared.checks import all_of, non_negative_number, positive_int

__all__ = ["maximum_of_sample", "normal_wait"]

LOW, HIGH, POINTS = -9.0, 9.0, 1001  # of the integral by the trapezoid rule: its error is below 1e-9


def normal_wait(k: int, std_s: float) -> float:
    """Return how many seconds longer than the mean the slowest of k devices takes, if their times are normal.

    `std_s` is the standard deviation of the times.

    Raises ValueError or TypeError for less than one device, and for an `std_s` that is not a finite number from 0 on.
    """
    k, std_s = positive_int("k", k), non_negative_number("std_s", std_s)
    return std_s * _normal_maximum(k) if std_s else 0.0


@cache
def _normal_maximum(k: int) -> float:
    """Return the expected largest of k draws from the standard normal distribution.

    With Phi(x)^k, the probability that all k draws are below x, it is low plus the integral of 1 - Phi(x)^k from low to
    high, here from -9 to 9.
    """
    step = (HIGH - LOW) / (POINTS - 1)
    above = [1 - NormalDist().cdf(LOW + i * step) ** k for i in range(POINTS)]
    return max(0.0, LOW + step * (sum(above) - (above[0] + above[-1]) / 2))  # for k = 1 it is 0 but for rounding


def maximum_of_sample(k: int, seconds: Iterable[float]) -> float:
    """Return the expected largest of k draws, with replacement, from measured `seconds`.

    No distribution is assumed: the i-th smallest of n values is the largest draw with probability
    (i/n)^k - ((i-1)/n)^k. Raises ValueError for an empty list or one with infinities, NaN or negative numbers, and
    TypeError for a list with anything but numbers.
    """
    k = positive_int("k", k)
    values = sorted(all_of("seconds", seconds, non_negative_number, least=1))
    n = len(values)
    return sum(value * ((i / n) ** k - ((i - 1) / n) ** k) for i, value in enumerate(values, 1))
