"""A control for each parameter, with bounds that make sense."""

import math

import ipywidgets as widgets
import numpy as np
import pytest
import torch

from d2lite import train
from d2lite.devices import num_cores, num_gpus
from d2lite.widgets import controls


def kinds(made):
    return {name: type(control).__name__ for name, control in made.items()}


def test_the_book_s_own_function():
    made = controls.make(train, {})
    assert list(made) == ["num_gpus", "batch_size", "lr", "num_epochs", "seed"]  # in its order, None left out
    assert kinds(made) == {
        "num_gpus": "IntSlider",
        "batch_size": "Dropdown",
        "lr": "FloatLogSlider",
        "num_epochs": "IntSlider",
        "seed": "BoundedIntText",
    }
    assert (made["num_gpus"].min, made["num_gpus"].max) == (1, max(4, num_gpus(), num_cores()))
    assert made["batch_size"].options == (32, 64, 128, 256, 512, 1024, 2048)
    assert (made["lr"].min, made["lr"].max) == pytest.approx((-3, 1), abs=0.02)
    assert controls.values(made) == {"num_gpus": 1, "batch_size": 256, "lr": 0.1, "num_epochs": 10, "seed": 0}
    assert [control.description for control in made.values()] == list(made)


def test_initial_values_widen_the_bounds():
    made = controls.make(train, {"num_gpus": 9, "lr": 20, "batch_size": 300, "num_epochs": 50, "seed": 7})
    assert controls.values(made) == {"num_gpus": 9, "batch_size": 300, "lr": 20.0, "num_epochs": 50, "seed": 7}
    assert made["num_gpus"].max == 9 and 10 ** made["lr"].max == pytest.approx(20) and made["num_epochs"].max == 50
    assert 300 in made["batch_size"].options and 256 in made["batch_size"].options


def test_tuples_are_bounds_and_lists_selections():
    given = {"num_gpus": (2, 3), "lr": (0.001, 0.01), "batch_size": (64, 300), "num_epochs": [1, 5], "seed": (3, 9)}
    made = controls.make(train, given)
    assert (made["num_gpus"].min, made["num_gpus"].max, made["num_gpus"].value) == (2, 3, 2)
    assert (made["lr"].min, made["lr"].max) == pytest.approx((-3, -2), abs=0.02)
    assert made["batch_size"].options == (64, 128, 256, 300)
    assert type(made["num_epochs"]).__name__ == "Dropdown" and made["num_epochs"].options == (1, 5)
    assert (made["seed"].min, made["seed"].max, made["seed"].value) == (3, 9, 3)


def function(lr, width=16, drop=0.5, name="x", fast=True, momentum=0.0, limit=None, shift=-2, *, animator=None, **more):
    pass


def test_other_parameters_by_the_type_of_their_default():
    made = controls.make(function, {})
    assert kinds(made) == {
        "lr": "FloatLogSlider",
        "width": "IntSlider",
        "drop": "FloatLogSlider",
        "name": "Text",
        "fast": "Checkbox",
        "momentum": "FloatText",
        "shift": "IntSlider",
    }
    values = {"lr": 0.1, "width": 16, "drop": 0.5, "name": "x", "fast": True, "momentum": 0.0, "shift": -2}
    assert controls.values(made) == values
    for name, value in values.items():
        control = made[name]
        if hasattr(control, "min") and not isinstance(control, widgets.FloatLogSlider):
            assert control.min <= value <= control.max
    assert (made["width"].min, made["width"].max) == (1, 64)
    linear = controls.make(function, {"drop": (0, 1), "width": (8, 32), "limit": 5})
    assert (linear["drop"].min, linear["drop"].max, linear["drop"].value) == (0, 1, 0.5)
    assert (linear["width"].min, linear["width"].max) == (8, 32)
    assert controls.values(linear)["limit"] == 5


@pytest.mark.parametrize("bounds", [(0.5, 2), (0.5, 1.5), (np.float32(0.5), 2)])
def test_a_bound_that_is_no_whole_number_makes_no_slider_of_whole_numbers(bounds):
    def fn(weight=1):
        pass

    slider = controls.make(fn, {"weight": bounds})["weight"]
    assert type(slider).__name__ == "FloatLogSlider" and slider.value == 1
    assert 10**slider.min == pytest.approx(0.5, rel=0.05) and 10**slider.max == pytest.approx(bounds[1])


def test_a_log_slider_gives_readable_numbers_and_keeps_what_was_given():
    made = controls.make(train, {"lr": 0.12345})
    slider = made["lr"]
    assert controls.values(made)["lr"] == 0.12345
    slider.value = 0.12345 * (1 + 1e-15)  # a page's way to send it back
    assert slider.value != 0.12345 and controls.values(made)["lr"] == 0.12345
    slider.value = 0.12345 * 10 ** (5 * slider.step)  # moved by five steps on the page
    assert controls.values(made)["lr"] == 0.16
    slider.value = 0.0375  # set by a cell
    assert controls.values(made)["lr"] == 0.0375
    steps = (math.log10(0.12345) - slider.min) / slider.step
    assert steps == pytest.approx(round(steps), abs=1e-6)  # what was given is one of its steps


def test_fixed_and_none_have_no_control():
    assert "lr" not in controls.make(train, {}, {"lr": 0.1})
    assert "seed" not in controls.make(train, {"seed": None})


def many(**more):
    pass


def test_thirty_parameters_and_keywords_have_a_control_each():
    space = {}
    exec(f"def wide({', '.join(f'a{i}={i}' for i in range(30))}, *rest, **more): pass", space)
    made = controls.make(space["wide"], {"lr": 0.5, "b": True})
    assert len(made) == 32 and controls.values(made) == {f"a{i}": i for i in range(30)} | {"lr": 0.5, "b": True}
    assert controls.make(many, {}) == {} and list(controls.make(many, {"width": 3}, {"net": object()})) == ["width"]


def test_numbers_of_numpy_are_numbers():
    sixteen, half = np.int64(16), np.float32(0.5)

    def fn(width=sixteen, rate=half):
        pass

    made = controls.make(fn, {})
    assert kinds(made) == {"width": "IntSlider", "rate": "FloatLogSlider"}
    assert controls.values(made) == {"width": 16, "rate": 0.5} and type(made["width"].value) is int


@pytest.mark.parametrize(
    ("default", "error", "message"),
    [
        (math.inf, ValueError, "x: expected a finite number, got inf. Pass it as fixed="),
        (math.nan, ValueError, "x: expected a finite number, got nan"),
        (2**60, ValueError, "x: expected a whole number from -9007199254740991 to 9007199254740991"),
        (np.zeros(2), TypeError, r"x: expected a number, a text, .* got array\(\[0., 0.\]\) \(ndarray\)"),
        (torch.zeros(2), TypeError, "x: expected a number, a text"),
        ([1, 2], TypeError, "x: expected a number, a text"),
        ((0.9, 0.99), TypeError, "x: expected a number, a text"),
        (["x" * 10**6], TypeError, "x: expected a number, a text"),
        (1j, TypeError, "x: expected a number, a text"),
        (np.bool_(True), TypeError, "x: expected a number, a text"),
        (object(), TypeError, "x: expected a number, a text, .* Pass other things as fixed="),
    ],
)
def test_defaults_without_a_control_say_so(default, error, message):
    def fn(x=default):
        pass

    with pytest.raises(error, match=message) as caught:
        controls.make(fn, {})
    assert len(str(caught.value)) < 500
    assert controls.make(fn, {}, {"x": default}) == {} and controls.make(fn, {"x": None}) == {}


def test_numbers_at_the_ends_of_what_a_float_holds():
    for value in (1e-320, 1e308, -1e308, 2**53 - 1):

        def fn(x=value):
            pass

        assert controls.values(controls.make(fn, {})) == {"x": value}


def without_default(query):
    pass


def positional(lr, /):
    pass


@pytest.mark.parametrize(
    ("fn", "given", "fixed", "error", "message"),
    [
        (train, {"momentum": 1}, {}, TypeError, r"momentum: expected a parameter of train \(num_gpus, batch_size, lr"),
        (train, {}, {"momentum": 1}, TypeError, "momentum: expected a parameter of train"),
        (train, {"animator": 1}, {}, TypeError, "animator: expected a parameter"),
        (train, {"lr": 1}, {"lr": 1}, TypeError, "lr: expected this parameter once"),
        (without_default, {}, {}, TypeError, r"query: .* Give one: Panel\(without_default, query=...\), or fixed="),
        (train, {"num_gpus": 2.0}, {}, TypeError, "num_gpus: expected a whole number from 1 to 64, got 2.0"),
        (train, {"num_gpus": True}, {}, TypeError, "num_gpus: expected a whole number"),
        (train, {"num_gpus": 0}, {}, ValueError, "num_gpus: expected a whole number from 1 to 64, got 0"),
        (train, {"num_gpus": 65}, {}, ValueError, "num_gpus: expected a whole number from 1 to 64"),
        (train, {"num_gpus": None}, {}, TypeError, "num_gpus: expected a value, got None; train has no default"),
        (train, {"num_gpus": (1, 2.5)}, {}, TypeError, "num_gpus: expected a whole number"),
        (train, {"lr": 0}, {}, ValueError, "lr: expected a finite number above 0, got 0"),
        (train, {"lr": (0, 1)}, {}, ValueError, "lr: expected a finite number above 0, got 0"),
        (train, {"lr": (1, 0.1)}, {}, ValueError, "lr: expected finite bounds with low < high"),
        (train, {"lr": (1, 2, 3)}, {}, TypeError, r"lr: expected a tuple of two numbers \(low, high\)"),
        (train, {"batch_size": "256"}, {}, TypeError, "batch_size: expected a positive whole number"),
        (train, {"batch_size": []}, {}, ValueError, "batch_size: expected a list with at least one value"),
        (train, {"seed": -1}, {}, ValueError, "seed: expected a whole number from 0 to"),
        (train, {"seed": (0.5, 9)}, {}, TypeError, "seed: expected a whole number from 0 to .*, got 0.5"),
        (function, {"name": (1, "b")}, {}, TypeError, "name: expected a tuple of two numbers"),
        (function, {"fast": (0, 1)}, {}, TypeError, "fast: expected a number if bounds are given, got True"),
        (function, {"width": {}}, {}, TypeError, "width: expected a number, a text, True or False, a tuple"),
        (positional, {}, {}, TypeError, "lr: expected a parameter that can be passed by name, .* Leave out the /"),
        (max, {}, {}, TypeError, "expected a function whose parameters can be read, got <built-in function max>"),
        (train, {"batch_size": ["256", 512]}, {}, TypeError, "batch_size: expected a positive whole number, got '256'"),
        (train, {"num_gpus": [1, 0]}, {}, ValueError, "num_gpus: expected a positive whole number, got 0"),
        (train, {"lr": ["0.1"]}, {}, TypeError, "lr: expected a finite number above 0, got '0.1'"),
        (train, {"lr": "0.1"}, {}, TypeError, "lr: expected a finite number above 0, got '0.1'"),
        (function, {"width": [np.zeros(2), np.ones(2)]}, {}, TypeError, "width: .* values that can be compared"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(fn, given, fixed, error, message):
    with pytest.raises(error, match=message):
        controls.make(fn, given, fixed)
