import math

import numpy as np
import pytest
import torch

from d2lite import Animator


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"xlabel": 1}, TypeError, r"xlabel: expected a text, got 1 \(int\)"),
        ({"ylabel": b"loss"}, TypeError, "ylabel: expected a text"),
        ({"xlabel": list(range(10**5))}, TypeError, "xlabel: expected a text, got .{,90}list"),
        ({"legend": {"a", "b"}}, TypeError, "legend: expected a text, or a list of texts"),
        ({"xlim": {1: 2, 10: 20}}, ValueError, r"xlim: expected two numbers \(low, high\), got {1: 2, 10: 20}"),
        ({"xlim": {1, 10}}, ValueError, r"xlim: expected two numbers \(low, high\), got {1, 10}"),
        ({"figsize": ("7", 4)}, TypeError, "figsize: expected a finite number, got '7'"),
        ({"legend": 3}, TypeError, "legend: expected a text, or a list of texts with one per curve, got 3"),
        ({"legend": [1, 2]}, TypeError, r"legend: expected a text, .* got \[1, 2\]"),
        ({"xlim": [0, 1e400]}, ValueError, "xlim: expected a finite number, got inf"),
        ({"ylim": [math.nan, 1]}, ValueError, "ylim: expected a finite number, got nan"),
        ({"ylim": ["0", "1"]}, TypeError, "ylim: expected a finite number, got '0'"),
        ({"xlim": [1]}, ValueError, r"xlim: expected two numbers \(low, high\), got \[1\]"),
        ({"xlim": 5}, ValueError, r"xlim: expected two numbers \(low, high\), got 5"),
        (
            {"xlim": [0, 10], "xscale": "log"},
            ValueError,
            r"xlim: expected limits above 0 on a log axis.* got \[0, 10\]",
        ),
        ({"ylim": [-1, 1], "yscale": "log"}, ValueError, "ylim: expected limits above 0 on a log axis"),
        ({"figsize": (1e400, 1)}, ValueError, "figsize: expected a finite number, got inf"),
        ({"figsize": (0, 1)}, ValueError, "figsize: expected width and height from 1 to 100 inches"),
        ({"figsize": "large"}, ValueError, r"figsize: expected \(width, height\) in inches, got 'large'"),
    ],
)
def test_options_that_no_plot_can_have(options, error, message):
    with pytest.raises(error, match=message):
        Animator(**options)


@pytest.mark.parametrize(
    ("x", "y", "error", "message"),
    [
        (1, "0.5", TypeError, "add: expected a number, or one per curve, got '0.5'"),
        ("1", 0.5, TypeError, "add: expected a number, or one per curve, got '1'"),
        (1, b"12", TypeError, "add: expected a number"),
        (1, {"loss": 0.5}, TypeError, "add: expected a number, or one per curve, got {'loss': 0.5}"),
        (1, {7: 0.5}, TypeError, "add: expected a number, or one per curve, got {7: 0.5}"),
        (1, {0.5, 0.6}, TypeError, "add: expected a number, or one per curve, got {0.5, 0.6}"),
        (1, 10**400, TypeError, "add: expected a number"),
        (1, 1j, TypeError, "add: expected a number"),
        (1, torch.tensor(1j), TypeError, "add: expected a number"),
        (1, [torch.ones(3)], TypeError, "add: expected a number"),
        (1, torch.ones((), device="meta"), TypeError, "add: expected a number, got a tensor on the device meta"),
        (1, [torch.ones(10**6)], TypeError, "add: expected a number"),
        (1e400, 0.5, ValueError, "add: expected a finite x, got inf"),
    ],
)
def test_what_is_no_point_is_refused_at_once_and_not_kept(x, y, error, message):
    animator = Animator()
    with pytest.raises(error, match=message) as caught:
        animator.add(x, y)
    assert animator.X == [] and len(str(caught.value)) < 300


def test_what_d2l_s_own_code_passes_is_taken():
    assert Animator(xlim=[1, 1]).xlim == [1, 1]  # num_epochs = 1
    assert Animator(xlim=np.array([1, 10]), legend=("a", "b"), figsize=(3.5, 2.5)).names(2) == ["a", "b"]
    animator = Animator(yscale="log", ylim=(1e-3, 1))
    assert animator._layout()["yaxis"]["range"] == [-3, 0]
    assert Animator(xlim=[]).xlim is None and Animator(legend=[]).names(1) == ["value"]
