import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from d2lite.costs.alpha_beta import COST_FORMULAS, Device, Link, all_reduce_seconds
from d2lite.labs.chapter_04.fitting import fit_device, fit_link
from d2lite.labs.chapter_04.timed_on_ranks import SIZES, time_all_reduces
from d2lite.workers import Workers


def times(link, k, algorithm, sizes=SIZES):
    return [(n_bytes, all_reduce_seconds(algorithm, k, n_bytes, link)) for n_bytes in sizes]


@given(
    latency_s=st.floats(1e-7, 1e-3),
    bandwidth=st.floats(1e7, 1e11),
    k=st.integers(2, 16),
    algorithm=st.sampled_from(sorted(COST_FORMULAS)),
)
def test_a_link_is_found_again(latency_s, bandwidth, k, algorithm):
    link = Link(latency_s, bandwidth)
    fit = fit_link(times(link, k, algorithm), k, algorithm)
    assert math.isclose(fit.link.bandwidth_bytes_per_s, bandwidth, rel_tol=1e-4)
    assert math.isclose(fit.link.latency_s, latency_s, rel_tol=1e-4)
    assert fit.misfit < 1e-6


@pytest.mark.parametrize("seed", range(5))
def test_of_noisy_times_the_errors_say_how_far_off_it_may_be(seed):
    generator = torch.Generator().manual_seed(seed)
    link = Link(2e-4, 1e9)
    noise = 1 + 0.1 * torch.randn(8 * len(SIZES), generator=generator, dtype=torch.float64)
    noisy = [(n, s * float(z)) for (n, s), z in zip(times(link, 2, "ring", SIZES * 8), noise, strict=True)]
    fit = fit_link(noisy)
    assert 0 < fit.latency_error_s < 2e-5
    assert abs(fit.link.latency_s - 2e-4) < 4 * fit.latency_error_s
    assert abs(fit.link.bandwidth_bytes_per_s - 1e9) < 4 * fit.bandwidth_error_bytes_per_s
    assert 0.05 < fit.misfit < 0.15
    assert "µs" in str(fit) and "MB/s" in str(fit)


@given(flops_per_s=st.floats(1e9, 1e14), overhead_s=st.floats(0, 1e-2))
def test_a_device_is_found_again(flops_per_s, overhead_s):
    flops = 1e7
    steps = [(b, overhead_s + b * flops / flops_per_s) for b in (8, 64, 512, 4096)]
    device = fit_device(steps, flops)
    assert math.isclose(device.flops_per_s, flops_per_s, rel_tol=1e-4)
    assert math.isclose(device.overhead_s, overhead_s, rel_tol=1e-4, abs_tol=1e-4 * steps[0][1])


def test_a_latency_that_is_zero_within_its_error_is_zero():
    fit = fit_link([(1000, 0.9e-3), (2000, 2.1e-3), (4000, 3.9e-3), (8000, 8.1e-3)])
    assert fit.link.latency_s == 0 < fit.latency_error_s
    assert math.isclose(fit.link.bandwidth_bytes_per_s, 1e6, rel_tol=0.1)


def test_a_device_never_has_less_than_no_overhead():
    device = fit_device([(1, 0.9), (2, 2.0), (4, 4.4)], 1e9)
    assert device.overhead_s == 0
    assert math.isclose(device.flops_per_s, 1e9, rel_tol=0.1)


@pytest.mark.parametrize(
    "measurements, k, text",
    [
        ([(1000, 1e-3), (2000, 2e-3)], 2, "three or more"),
        ([(1000, 1e-3)] * 3, 2, "of two sizes or more"),
        ([], 2, "three or more .* time_all_reduces"),
        ([(1000, 1e-3), (2000, 2e-3), (3000, -1e-3)], 2, "above 0, got"),
        ([(1000, 1e-3), (2000, 2e-3), (3000, math.nan)], 2, "above 0, got"),
        ([(1000, 3e-3), (2000, 2e-3), (3000, 1e-3)], 2, "more seconds for more bytes"),
        ([(i, i**2) for i in range(5, 15)], 2, "a latency of 0 or more, the line gives -"),
        (
            [(1000, 1e-3), (2000, 2e-3), (3000, 3e-3)],
            1,
            "2 devices or more, got 1. One device sends nothing",
        ),
    ],
)
def test_measurements_that_give_no_link_are_explained(measurements, k, text):
    with pytest.raises(ValueError, match=text):
        fit_link(measurements, k)


def test_steps_that_give_no_device_are_explained():
    with pytest.raises(ValueError, match="Three batch sizes"):
        fit_device([(1, 1.0)], 1e9)
    with pytest.raises(ValueError, match="more seconds for more examples"):
        fit_device([(1, 3.0), (2, 2.0), (3, 1.0)], 1e9)
    assert isinstance(fit_device([(1, 1.0), (2, 2.0), (3, 3.0)], 1e9), Device)


@pytest.mark.slow
def test_two_ranks_measure_their_link():
    with Workers(2) as workers:
        measurements = workers.run(time_all_reduces, (1024, 262_144, 1_048_576), 3)[0]
    assert [n_bytes for n_bytes, _ in measurements] == [1024, 262_144, 1_048_576]
    assert all(0 < seconds < 10 for _, seconds in measurements)
