import math

import numpy as np
import pytest

from d2lite._checks import positive_int, positive_number, whole_number


@pytest.mark.parametrize("value", [0, -1, 65])
def test_positive_int_out_of_range(value):
    with pytest.raises(ValueError, match=rf"num_gpus: expected a whole number from 1 to 64, got {value}\. Do"):
        positive_int("num_gpus", value, 64, "Do this.")


@pytest.mark.parametrize("value", [True, False, 2.5, 2.0, "2", None, [2]])
def test_positive_int_wrong_type(value):
    with pytest.raises(TypeError, match="n: expected a positive whole number, got .*" + type(value).__name__):
        positive_int("n", value)


def test_positive_int_takes_numpy_and_returns_plain():
    assert type(positive_int("n", np.int64(3))) is int


@pytest.mark.parametrize(
    ("limits", "value", "text"),
    [
        ({}, -1, "a whole number from 0 on, got -1."),
        ({"least": 2, "most": 5}, 6, "a whole number from 2 to 5, got 6."),
        ({"least": -2, "most": 5, "hint": "Try 0."}, -3, "a whole number from -2 to 5, got -3. Try 0."),
        ({"expected": "the index of a GPU (0, 1, ...)"}, -1, "the index of a GPU (0, 1, ...), got -1."),
    ],
)
def test_whole_number_out_of_range(limits, value, text):
    with pytest.raises(ValueError) as caught:
        whole_number("n", value, **limits)
    assert str(caught.value) == f"n: expected {text}"
    with pytest.raises(TypeError, match=r"got 1\.0 \(float\)"):
        whole_number("n", 1.0, **limits)


def test_whole_number_takes_both_ends():
    assert [whole_number("n", i, -2, 5) for i in (-2, 5)] == [-2, 5] and whole_number("n", 0) == 0


@pytest.mark.parametrize("value", [0, -0.1, math.nan, math.inf, -math.inf])
def test_positive_number_out_of_range(value):
    with pytest.raises(ValueError, match="lr: expected a finite number above 0, got"):
        positive_number("lr", value)


@pytest.mark.parametrize("value", [True, "0.1", None, 1j])
def test_positive_number_wrong_type(value):
    with pytest.raises(TypeError, match="lr: expected a finite number above 0, got"):
        positive_number("lr", value)
