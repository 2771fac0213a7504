"""Stragglers: k devices that wait for each other take the time of the slowest; its expected value, exactly."""

from collections.abc import Callable, Iterable
from functools import cache
from statistics import NormalDist

from d2lite._checks import all_of, finite_number, non_negative_number, positive_int

__all__ = ["expected_maximum", "maximum_of_sample", "normal_wait"]

POINTS = 1001  # of the integral; with the trapezoid rule the error for the normal distribution is below 1e-9


def expected_maximum(k: int, cdf: Callable[[float], float], low: float, high: float) -> float:
    """Return the expected largest of k independent draws from a distribution with `cdf`, all between low and high.

    It is low plus the integral of 1 - cdf(x)^k from low to high, since cdf(x)^k is the probability that all k are below
    x. Raises ValueError if cdf is not 0 at low and 1 at high, TypeError if `k` is not a whole number, `low` or `high`
    not a number, or `cdf` not a function.
    """
    k, low, high = positive_int("k", k), finite_number("low", low), finite_number("high", high)
    if not callable(cdf):
        raise TypeError(f"cdf: expected a function of a number, got {type(cdf).__name__}.")
    if not low < high:
        raise ValueError(f"low, high: expected low below high, got {low} and {high}.")
    finite_number("high - low", high - low)
    for x in (low, high):
        finite_number(f"cdf({x:g})", cdf(x))
    if not (abs(cdf(low)) < 1e-9 and abs(cdf(high) - 1) < 1e-9):
        raise ValueError(f"cdf: expected 0 at {low} and 1 at {high}, got {cdf(low):.3g} and {cdf(high):.3g}.")
    step = (high - low) / (POINTS - 1)
    above = [1 - cdf(low + i * step) ** k for i in range(POINTS)]
    return low + step * (sum(above) - (above[0] + above[-1]) / 2)


def normal_wait(k: int, std_s: float) -> float:
    """Return how many seconds longer than the mean the slowest of k devices takes, if times are normal with `std_s`.

    Raises ValueError or TypeError for less than one device, and for an `std_s` that is not a finite number from 0 on.
    """
    k, std_s = positive_int("k", k), non_negative_number("std_s", std_s)
    return std_s * _normal_maximum(k) if std_s else 0.0


@cache
def _normal_maximum(k: int) -> float:
    return max(0.0, expected_maximum(k, NormalDist().cdf, -9.0, 9.0))  # for k = 1 the sum is 0 but for rounding


def maximum_of_sample(k: int, seconds: Iterable[float]) -> float:
    """Return the expected largest of k draws, with replacement, from measured `seconds`: no distribution assumed.

    The i-th smallest of n is the largest with probability (i/n)^k - ((i-1)/n)^k. Raises ValueError for an empty list,
    or one with infinities, NaN or negative numbers, TypeError for one with anything but numbers.
    """
    k = positive_int("k", k)
    values = sorted(all_of("seconds", seconds, non_negative_number, least=1))
    n = len(values)
    return sum(value * ((i / n) ** k - ((i - 1) / n) ** k) for i, value in enumerate(values, 1))
