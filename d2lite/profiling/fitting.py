"""The learner's machine in numbers: a link from the times of all-reduces, a device from the times of steps."""

import math
import statistics
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist

from d2lite._checks import positive_int
from d2lite.costs.alpha_beta import Device, Link, all_reduce_seconds
from d2lite.devices import synchronize

__all__ = ["SIZES", "Fit", "fit_device", "fit_link", "time_all_reduces"]

SIZES = tuple(2**i for i in (10, 14, 16, 18, 20, 21, 22, 23, 24, 25))  # 1 KiB to 32 MiB
CACHE_N_BYTES = 2**26  # more than fits into the caches of one core


@dataclass(frozen=True)
class Fit:
    """A fitted Link with the standard errors of both numbers, and how far a measurement lies from the fit on average.

    `misfit` is the root of the mean square of (measured - fitted) / measured.
    """

    link: Link
    latency_error_s: float
    bandwidth_error_bytes_per_s: float
    misfit: float

    def __str__(self):
        latency, bandwidth = 1e6 * self.link.latency_s, self.link.bandwidth_bytes_per_s / 1e6
        return (
            f"latency {latency:.1f} ± {1e6 * self.latency_error_s:.1f} µs, bandwidth {bandwidth:,.0f} ± "
            f"{self.bandwidth_error_bytes_per_s / 1e6:,.0f} MB/s, misfit {self.misfit:.0%}"
        )


def time_all_reduces(sizes=SIZES, repeats=15):
    """Return [(n_bytes, seconds)], times of float32 all-reduces of the current process group.

    Each is the first quartile of `repeats`: other programs can only make it slower. As in a training, other data went
    through the caches before. Runs inside a rank: `Workers(2).run(time_all_reduces)[0]` is for `fit_link`.
    """
    device = torch.device("cuda") if dist.get_backend() == "nccl" else torch.device("cpu")
    measurements, other = [], torch.zeros(CACHE_N_BYTES // 4, device=device)
    for n_bytes in sizes:
        tensor = torch.zeros(max(1, n_bytes // 4), device=device)
        seconds = []
        for i in range(repeats + 2):  # the first two warm up
            other.add_(1.0)
            dist.barrier()
            synchronize([device])
            start = time.perf_counter()
            dist.all_reduce(tensor)
            synchronize([device])
            if i >= 2:
                seconds.append(time.perf_counter() - start)
        measurements.append((tensor.numel() * tensor.element_size(), statistics.quantiles(seconds, n=4)[0]))
    return measurements


def fit_link(measurements, k=2, algorithm="ring", name="fitted"):
    """Return the Fit of a Link to [(n_bytes, seconds)], times of all-reduces over k devices.

    All formulas are a * latency + b * n_bytes / bandwidth, so this is a straight line, fitted by least squares of the
    relative errors: a millisecond counts for more on a short message than on a long one. Errors are those of a linear
    regression. A latency below zero by no more than two errors is zero. Raises ValueError for fewer than three
    measurements or two sizes, numbers that are not positive, and a line with a latency further below zero or a time
    that does not grow with the bytes.
    """
    positive_int("k", k)
    if k == 1:
        raise ValueError("k: expected 2 devices or more, got 1: one device sends nothing.")
    points = _checked(measurements, "n_bytes", "time_all_reduces() measures ten sizes.")
    latencies = all_reduce_seconds(algorithm, k, 0, Link(1.0, 1.0))  # how many latencies,
    traffic = all_reduce_seconds(algorithm, k, 1, Link(0.0, 1.0))  # and how many times the bytes, an all-reduce takes
    values, errors, misfit = _line([(latencies, traffic * n_bytes, seconds) for n_bytes, seconds in points])
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
    if latency_s < 0:  # not to be told from zero
        latency_s, s_per_byte = 0.0, _through_zero([(traffic * n_bytes, seconds) for n_bytes, seconds in points])
    link = Link(latency_s, 1 / s_per_byte, name, f"least squares of {len(points)} all-reduces over {k} devices")
    return Fit(link, latency_error_s, s_per_byte_error / s_per_byte**2, misfit)


def fit_device(measurements, flops, name="fitted"):
    """Return a Device from [(batch_size, seconds)], times of steps on one device, `flops` for each example.

    The line is overhead + examples * flops / rate, fitted as in fit_link; where its overhead would be below zero, it is
    zero. Raises ValueError for too few measurements, or a time that does not grow with the examples.
    """
    points = _checked(measurements, "batch_size", "Three batch sizes will do.")
    (overhead_s, s_per_flop), _, _ = _line([(1.0, flops * size, seconds) for size, seconds in points])
    if overhead_s < 0:
        overhead_s, s_per_flop = 0.0, _through_zero([(flops * size, seconds) for size, seconds in points])
    if s_per_flop <= 0:
        raise ValueError(f"measurements: expected more seconds for more examples, got {points}. Measure larger ones.")
    return Device(1 / s_per_flop, overhead_s, name, f"least squares of {len(points)} steps on one device")


def _checked(measurements, what, hint):
    points = [(float(size), float(seconds)) for size, seconds in measurements]
    if len(points) < 3 or len({size for size, _ in points}) < 2:
        raise ValueError(
            f"measurements: expected three or more ({what}, seconds), of two sizes or more, got {points}. {hint}"
        )
    for point in points:
        if not all(math.isfinite(value) and value > 0 for value in point):
            raise ValueError(f"measurements: expected {what} and seconds above 0, got {point}.")
    return points


def _line(rows):
    """Fit u * x + v * y = seconds to rows (x, y, seconds); return (u, v), their standard errors, and the misfit."""
    X = torch.tensor([[x / s, y / s] for x, y, s in rows], dtype=torch.float64)  # relative errors: all sides over s
    scale = X.norm(dim=0)  # columns of one size: bytes and seconds differ by many powers of ten
    X = X / scale
    solution = torch.linalg.lstsq(X, torch.ones(len(rows), 1, dtype=torch.float64)).solution[:, 0]
    residuals = 1 - X @ solution
    square = float(residuals @ residuals)
    errors = (square / (len(rows) - 2) * torch.linalg.inv(X.T @ X).diagonal()).clamp(min=0).sqrt() / scale
    return (solution / scale).tolist(), errors.tolist(), math.sqrt(square / len(rows))


def _through_zero(rows):
    """Fit v * y = seconds to rows (y, seconds), of relative errors too."""
    ratios = [y / seconds for y, seconds in rows]
    return sum(ratios) / sum(ratio**2 for ratio in ratios)
