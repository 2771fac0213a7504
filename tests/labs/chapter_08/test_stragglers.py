import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from d2lite.labs.chapter_08.stragglers import maximum_of_sample, normal_wait


def test_normal_times():
    assert abs(normal_wait(1, 1.0)) < 1e-9
    assert math.isclose(normal_wait(2, 1.0), 1 / math.sqrt(math.pi), rel_tol=1e-9)
    assert math.isclose(normal_wait(3, 1.0), 1.5 / math.sqrt(math.pi), rel_tol=1e-9)
    assert normal_wait(8, 0.0) == 0.0
    assert math.isclose(normal_wait(8, 0.02), 0.02 * normal_wait(8, 1.0))


def test_normal_times_against_drawn_ones():
    draws = torch.randn(20_000, 64, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    slowest = draws.amax(dim=1)
    error = slowest.std() / math.sqrt(len(slowest))
    assert abs(normal_wait(64, 1.0) - slowest.mean()) < 5 * error


@given(k=st.integers(1, 2000))
def test_more_devices_wait_longer(k):
    assert normal_wait(k + 1, 1.0) > normal_wait(k, 1.0)


@given(st.lists(st.floats(0.001, 10), min_size=1, max_size=6), st.integers(1, 4))
def test_a_sample_by_all_its_draws(seconds, k):
    draws = torch.cartesian_prod(*[torch.tensor(seconds, dtype=torch.float64)] * k).reshape(-1, k)
    assert math.isclose(maximum_of_sample(k, seconds), draws.amax(dim=1).mean(), rel_tol=1e-9)


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda: normal_wait(0, 1.0), "k: expected a positive"),
        (lambda: normal_wait(2, -1.0), "std_s"),
        (lambda: maximum_of_sample(2, []), "seconds: expected 1 or more, got 0"),
        (lambda: maximum_of_sample(2, [1.0, math.nan]), r"seconds\[1\]: expected a finite number from 0 on"),
    ],
)
def test_wrong_input_is_explained(call, text):
    with pytest.raises(ValueError, match=text):
        call()
