import math

import numpy as np
import pytest

from notebook_ranks.shared.checks import (
    all_of,
    finite_number,
    instance_of,
    non_negative_number,
    one_of,
    positive_int,
    positive_number,
    true_or_false,
    whole_number,
)


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


@pytest.mark.parametrize("power", [63, 400, 20_000])
def test_whole_numbers_end_where_those_of_torch_end(power):
    with pytest.raises(ValueError, match=rf"positive whole number, less than 2\*\*63, got one with {power + 1} bits"):
        positive_int("n", 2**power)
    with pytest.raises(ValueError, match=rf"n: expected a whole number from 0 to 5, got one with {power + 1} bits"):
        whole_number("n", -(2**power), most=5)
    assert whole_number("n", 2**63 - 1) == 2**63 - 1 and whole_number("n", 2**64, most=2**65) == 2**64


def test_an_array_is_no_whole_number():
    with pytest.raises(TypeError, match="n: expected a positive whole number, got array"):
        positive_int("n", np.ones(2))


@pytest.mark.parametrize("check", [finite_number, non_negative_number, positive_number])
def test_numbers(check):
    assert check("n", np.float32(0.5)) == 0.5 and type(check("n", 1)) is float
    for value in (math.nan, math.inf, 10**400):
        with pytest.raises(ValueError, match="n: expected a finite number.*, got (nan|inf)"):
            check("n", value)
    for value in ("32", b"32", None, 1j, True, [1.0], np.ones(2)):
        with pytest.raises(TypeError, match=r"n: expected a finite number.*, got .*\(" + type(value).__name__):
            check("n", value)


def test_which_numbers_may_be_0_or_below():
    assert finite_number("n", -1) == -1 and non_negative_number("n", 0) == 0
    with pytest.raises(ValueError, match="n: expected a finite number from 0 on, got -1. Try 1."):
        non_negative_number("n", -1, "Try 1.")


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: one_of("op", "min", ["sum", "mean"]), ValueError, "op: expected one of sum, mean, got 'min'."),
        (lambda: one_of("op", None, ["sum", "mean"]), TypeError, "op: expected one of sum, mean, got None (NoneType)."),
        (lambda: true_or_false("on", "no"), TypeError, "on: expected True or False, got 'no' (str)."),
        (lambda: instance_of("x", 1, str, list), TypeError, "x: expected str or list, got 1 (int)."),
        (lambda: all_of("ks", [1, 0], positive_int), ValueError, "ks[1]: expected a positive whole number, got 0."),
        (lambda: all_of("ks", "12", positive_int), TypeError, "ks: expected a list, got '12' (str)."),
        (lambda: all_of("ks", 12, positive_int), TypeError, "ks: expected a list, got 12 (int)."),
        (lambda: all_of("ks", [], positive_int, least=1), ValueError, "ks: expected 1 or more, got 0."),
    ],
)
def test_what_is_no_number(call, error, message):
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value) == message


def test_what_is_right_comes_back():
    assert one_of("op", "sum", {"sum": 1}) == "sum" and true_or_false("on", False) is False
    assert all_of("ks", (n for n in (1, np.int64(2))), positive_int) == [1, 2] and instance_of("x", [1], list) == [1]


def test_a_long_value_is_cut_in_the_message():
    with pytest.raises(TypeError) as caught:
        positive_number("n", "1" * 10_000)
    assert len(str(caught.value)) < 200
    with pytest.raises(TypeError, match=r"op: expected one of sum, got a value \(int\)"):
        one_of("op", 10**5000, ["sum"])
