"""Fit the cost model to measured times: latency and bandwidth to all-reduces, compute rate and overhead to steps."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from d2lite.costs.alpha_beta import Device, Link, all_reduce_seconds
from notebook_ranks.shared.checks import whole_number

__all__ = ["Fit", "fit_device", "fit_link"]


@dataclass(frozen=True)
class Fit:
    """A fitted Link, the standard errors of its latency and bandwidth, and the misfit.

    `misfit` is the root mean square of (measured - fitted) / measured.
    """

    link: Link
    latency_error_s: float
    bandwidth_error_bytes_per_s: float
    misfit: float

    def __str__(self) -> str:
        latency, bandwidth = 1e6 * self.link.latency_s, self.link.bandwidth_bytes_per_s / 1e6
        return (
            f"latency {latency:.1f} ± {1e6 * self.latency_error_s:.1f} µs, bandwidth {bandwidth:,.0f} ± "
            f"{self.bandwidth_error_bytes_per_s / 1e6:,.0f} MB/s, misfit {self.misfit:.0%}"
        )


def fit_link(
    measurements: Iterable[tuple[float, float]], k: int = 2, algorithm: str = "ring", name: str = "fitted"
) -> Fit:
    """Return the Fit of a Link to [(n_bytes, seconds)], times of all-reduces over k devices.

    Every formula of all_reduce_seconds is a * latency + b * n_bytes / bandwidth, a straight line in n_bytes. The line
    is fitted by least squares of the relative errors, so that short messages count as much as long ones. The standard
    errors are those of a linear regression. A latency below zero by at most two standard errors is set to zero.

    Raises ValueError for fewer than three measurements, fewer than two sizes, numbers that are not positive, one
    device, a latency further below zero, or times that do not grow with the bytes.
    """
    whole_number("k", k, 2, hint="One device sends nothing.", expected="2 devices or more")
    points = _checked_pairs(measurements, "n_bytes", "time_all_reduces() measures ten sizes.")
    latencies = all_reduce_seconds(algorithm, k, 0, Link(1.0, 1.0))  # the latencies in one all-reduce,
    traffic = all_reduce_seconds(algorithm, k, 1, Link(0.0, 1.0))  # and the bytes on the link, per byte of the tensor
    values, errors, misfit = _fitted_line([(latencies, traffic * n_bytes, seconds) for n_bytes, seconds in points])
    (latency_s, s_per_byte), (latency_error_s, s_per_byte_error) = values, errors
    if s_per_byte <= 0:
        raise ValueError(
            f"measurements: expected more seconds for more bytes, got {points}. Measure longer messages as well."
        )
    if latency_s < -2 * latency_error_s:
        raise ValueError(
            f"measurements: expected a latency of 0 or more, the line gives {1e6 * latency_s:.3g} ± "
            f"{1e6 * latency_error_s:.3g} µs. Measure short messages as well (1 KiB), and each more often."
        )
    if latency_s < 0:  # zero within its error
        latency_s, s_per_byte = 0.0, _through_zero([(traffic * n_bytes, seconds) for n_bytes, seconds in points])
    link = Link(latency_s, 1 / s_per_byte, name, f"least squares of {len(points)} all-reduces over {k} devices")
    return Fit(link, latency_error_s, s_per_byte_error / s_per_byte**2, misfit)


def fit_device(measurements: Iterable[tuple[float, float]], flops: float, name: str = "fitted") -> Device:
    """Return a Device from [(batch_size, seconds)], times of steps on one device; `flops` is the cost of one example.

    The line is overhead_s + batch_size * flops / flops_per_s, fitted as in `fit_link`. An overhead below zero is set to
    zero. Raises ValueError for measurements as in `fit_link`, or times that do not grow with the examples.
    """
    points = _checked_pairs(measurements, "batch_size", "Three batch sizes will do.")
    (overhead_s, s_per_flop), _, _ = _fitted_line([(1.0, flops * size, seconds) for size, seconds in points])
    if overhead_s < 0:
        overhead_s, s_per_flop = 0.0, _through_zero([(flops * size, seconds) for size, seconds in points])
    if s_per_flop <= 0:
        raise ValueError(f"measurements: expected more seconds for more examples, got {points}. Measure larger ones.")
    return Device(1 / s_per_flop, overhead_s, name, f"least squares of {len(points)} steps on one device")


def _checked_pairs(measurements: Iterable[tuple[float, float]], what: str, hint: str) -> list[tuple[float, float]]:
    points = [(float(size), float(seconds)) for size, seconds in measurements]
    if len(points) < 3 or len({size for size, _ in points}) < 2:
        raise ValueError(
            f"measurements: expected three or more ({what}, seconds), of two sizes or more, got {points}. {hint}"
        )
    for point in points:
        if not all(math.isfinite(value) and value > 0 for value in point):
            raise ValueError(f"measurements: expected {what} and seconds above 0, got {point}.")
    return points


def _fitted_line(rows: Sequence[tuple[float, float, float]]) -> tuple[list[float], list[float], float]:
    """Fit u * x + v * y = seconds to rows (x, y, seconds); return [u, v], their standard errors, and the misfit."""
    X = torch.tensor([[x / s, y / s] for x, y, s in rows], dtype=torch.float64)  # relative errors: all is divided by s
    scale = X.norm(dim=0)  # columns of equal norm: x and y can differ by many powers of ten
    X = X / scale
    solution = torch.linalg.lstsq(X, torch.ones(len(rows), 1, dtype=torch.float64)).solution[:, 0]
    residuals = 1 - X @ solution
    square = float(residuals @ residuals)
    errors = (square / (len(rows) - 2) * torch.linalg.inv(X.T @ X).diagonal()).clamp(min=0).sqrt() / scale
    return (solution / scale).tolist(), errors.tolist(), math.sqrt(square / len(rows))


def _through_zero(rows: Sequence[tuple[float, float]]) -> float:
    """Fit v * y = seconds to rows (y, seconds), by least squares of the relative errors, too."""
    ratios = [y / seconds for y, seconds in rows]
    return sum(ratios) / sum(ratio**2 for ratio in ratios)
