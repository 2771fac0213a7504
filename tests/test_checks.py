import math

import numpy as np
import pytest

from d2lite._checks import positive_int, positive_number


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


@pytest.mark.parametrize("value", [0, -0.1, math.nan, math.inf, -math.inf])
def test_positive_number_out_of_range(value):
    with pytest.raises(ValueError, match="lr: expected a finite number above 0, got"):
        positive_number("lr", value)


@pytest.mark.parametrize("value", [True, "0.1", None, 1j])
def test_positive_number_wrong_type(value):
    with pytest.raises(TypeError, match="lr: expected a finite number above 0, got"):
        positive_number("lr", value)
